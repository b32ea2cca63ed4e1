/* What tells clips apart, and whether a block holds anything but numbers: one look at all scores. */
#include "loops.h"

/* Tell whether any of some scores is infinite or NaN: then all bits of its exponent are set. */
ON_VECTORS
static int has_odd(const float *restrict scores, Py_ssize_t n)
{
    uint32_t is_odd = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, scores + i, sizeof bits);
        is_odd |= (bits & 0x7F800000) == 0x7F800000;
    }
    return is_odd != 0;
}

static uint64_t fingerprint(const float *scores, const int32_t *columns, const uint64_t *factors,
                            Py_ssize_t n)
{
    uint64_t mixed = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t bits;
        float score = scores[columns[i]] + 0.0f; /* -0.0 and 0.0 are the same */
        memcpy(&bits, &score, sizeof bits);
        mixed += bits * factors[i];
    }
    mixed ^= mixed >> 31;
    mixed *= 0xBF58476D1CE4E5B9;
    return mixed ^ (mixed >> 27);
}

PyObject *find_fingerprints(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {{"block", "float32", 2, 0},
                                        {"columns", "int32", 1, 0},
                                        {"factors", "uint64", 1, 0},
                                        {"out", "uint64", 1, 1}};
    Py_buffer v[4];
    if (!has_arguments(n_given, 4) || open_arrays(given, expected, 4, v))
        return NULL;
    Py_ssize_t n_clips = v[0].shape[0], n_classes = v[0].shape[1], n = v[1].shape[0];
    const float *block = v[0].buf;
    const int32_t *columns = v[1].buf;
    uint64_t *out = v[3].buf;
    int is_odd = 0;
    int is_fit = has_length(&v[2], 0, n, "factors") && has_length(&v[3], 0, n_clips, "out");
    for (Py_ssize_t i = 0; is_fit && i < n; i++)
        if (columns[i] < 0 || columns[i] >= n_classes) {
            PyErr_SetString(PyExc_ValueError, "columns: they point beyond the classes");
            is_fit = 0;
        }
    if (is_fit) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t clip = 0; clip < n_clips; clip++)
            out[clip] = fingerprint(block + clip * n_classes, columns, v[2].buf, n);
        is_odd = has_odd(block, n_clips * n_classes);
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    return is_fit ? PyBool_FromLong(is_odd) : NULL;
}
