/* Which labels keep their part in the loss: see compiled.pyi. */
#include "loops.h"

ON_VECTORS
static void keep_clip(Py_ssize_t n_classes, const float *restrict scores, const uint8_t *restrict is_open,
                      const float *restrict edges, uint8_t *restrict is_kept)
{
    for (Py_ssize_t c = 0; c < n_classes; c++)
        is_kept[c] = !(scores[c] > edges[c]) | !is_open[c];
}

PyObject *keep_labels(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {{"scores", "float32", 2, 0},
                                        {"is_open", "bool", 2, 0},
                                        {"edges", "float32", 1, 0},
                                        {"is_kept", "bool", 2, 1}};
    Py_buffer v[4];
    if (!has_arguments(n_given, 4) || open_arrays(given, expected, 4, v))
        return NULL;
    const Py_ssize_t n_clips = v[0].shape[0], n = v[0].shape[1];
    const int is_fit = has_length(&v[1], 0, n_clips, "is_open") && has_length(&v[1], 1, n, "is_open") &&
                       has_length(&v[2], 0, n, "edges") && has_length(&v[3], 0, n_clips, "is_kept") &&
                       has_length(&v[3], 1, n, "is_kept");
    if (is_fit) {
        const float *scores = v[0].buf, *edges = v[2].buf;
        const uint8_t *is_open = v[1].buf;
        uint8_t *is_kept = v[3].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t start = 0; start < n_clips * n; start += n)
            keep_clip(n, scores + start, is_open + start, edges, is_kept + start);
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    return is_fit ? Py_NewRef(Py_None) : NULL;
}
