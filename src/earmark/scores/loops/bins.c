/* Scores into bins, and those of some bins out as keys: ../keys.py says what they are. */
#include "loops.h"

/* Return how many bins each class has, or -1 after an error. */
static Py_ssize_t bins_of(const Py_buffer *view, Py_ssize_t n_classes, const char *name)
{
    Py_ssize_t n = view->shape[0], n_bins = n_classes ? n / n_classes : 2;
    if (n == n_bins * n_classes && n_bins >= 2 && n <= INT32_MAX)
        return n_bins;
    PyErr_Format(PyExc_ValueError, "%s: expected 2 or more for each of %zd classes, got %zd", name,
                 n_classes, n);
    return -1;
}

/* Bins: see ../keys.py. A step is no number where infinity is multiplied by 0: the last bin. */
static inline int32_t bin_above(float score, float low, float scale, float last)
{
    float step = (score - low) * scale;
    step = step < last ? step : last;
    return (int32_t)(step > 0 ? step : 0) + 1;
}

ON_VECTORS
static Py_ssize_t count_block(const float *restrict block, Py_ssize_t n_rows, int32_t n_classes,
                              int32_t n_bins, const float *restrict lows,
                              const float *restrict scales, const uint32_t *restrict fewest,
                              const uint32_t *restrict spans, int32_t *restrict counts,
                              int32_t *restrict codes, int32_t *restrict hits)
{
    const float last = (float)(n_bins - 2);
    for (Py_ssize_t row = 0; row < n_rows; row++, block += n_classes) {
        uint32_t is_odd = 0;
        for (int32_t c = 0; c < n_classes; c++) {
            uint32_t bits;
            memcpy(&bits, block + c, sizeof bits);
            is_odd |= (bits & 0x7FFFFFFF) - fewest[c] > spans[c];
            int32_t code = bin_above(block[c], lows[c], scales[c], last) + c * n_bins;
            codes[c] = block[c] > lows[c] ? code : 0;
        }
        if (is_odd)
            return row;
        int32_t n_hits = 0;
        for (int32_t c = 0; c < n_classes; c++) {
            hits[n_hits] = codes[c];
            n_hits += codes[c] != 0;
        }
        for (int32_t hit = 0; hit < n_hits; hit++)
            counts[hits[hit]]++;
    }
    return -1;
}

PyObject *count_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"block", "float32", 2, 0}, {"lows", "float32", 1, 0}, {"scales", "float32", 1, 0},
        {"fewest", "uint32", 1, 0}, {"spans", "uint32", 1, 0}, {"counts", "int32", 1, 1}};
    Py_buffer v[6];
    if (!has_arguments(n_given, 6) || open_arrays(given, expected, 6, v))
        return NULL;
    PyObject *found = NULL;
    int32_t *scratch = NULL;
    Py_ssize_t n_rows = v[0].shape[0], n_classes = v[0].shape[1], odd, n_bins;
    for (int i = 1; i < 5; i++)
        if (!has_length(&v[i], 0, n_classes, expected[i].name))
            goto done;
    if ((n_bins = bins_of(&v[5], n_classes, "counts")) < 0)
        goto done;
    if (!(scratch = PyMem_Malloc((2 * n_classes + 1) * sizeof *scratch))) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    odd = count_block(v[0].buf, n_rows, (int32_t)n_classes, (int32_t)n_bins, v[1].buf, v[2].buf,
                      v[3].buf, v[4].buf, v[5].buf, scratch, scratch + n_classes);
    Py_END_ALLOW_THREADS
    found = PyLong_FromSsize_t(odd);
done:
    PyMem_Free(scratch);
    release(v, 6);
    return found;
}

/* A score and its clip as a key: see ../keys.py. */
static inline int64_t key_of(float score, int64_t row)
{
    int32_t bits;
    memcpy(&bits, &score, sizeof bits);
    int64_t falling = bits < 0 ? bits & 0x7FFFFFFF : -(int64_t)bits;
    return (int64_t)((uint64_t)falling << 32 | (uint64_t)row);
}

ON_VECTORS
static Py_ssize_t pick_block(const float *restrict block, Py_ssize_t n_rows, int32_t n_classes,
                             int64_t first_row, int32_t n_bins, const float *restrict lows,
                             const float *restrict scales, const uint8_t *restrict is_hot,
                             int32_t *restrict columns, int64_t *restrict keys,
                             int32_t *restrict codes, int32_t *restrict hits)
{
    const float last = (float)(n_bins - 2);
    Py_ssize_t n_picked = 0;
    for (Py_ssize_t row = 0; row < n_rows; row++, block += n_classes) {
        for (int32_t c = 0; c < n_classes; c++) {
            int32_t bin = bin_above(block[c], lows[c], scales[c], last);
            codes[c] = (block[c] > lows[c] ? bin : 0) + c * n_bins;
        }
        int32_t n_hits = 0;
        for (int32_t c = 0; c < n_classes; c++) {
            hits[n_hits] = c;
            n_hits += is_hot[codes[c]] != 0;
        }
        for (int32_t hit = 0; hit < n_hits; hit++) {
            float score = block[hits[hit]];
            columns[n_picked] = hits[hit];
            keys[n_picked] = key_of(score, first_row + row);
            n_picked += score == score;
        }
    }
    return n_picked;
}

PyObject *pick_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"block", "float32", 2, 0}, {"lows", "float32", 1, 0},  {"scales", "float32", 1, 0},
        {"is_hot", "uint8", 1, 0},  {"columns", "int32", 1, 1}, {"keys", "int64", 1, 1}};
    Py_buffer v[6];
    if (!has_arguments(n_given, 7))
        return NULL;
    long long first_row = PyLong_AsLongLong(given[6]);
    if ((first_row == -1 && PyErr_Occurred()) || open_arrays(given, expected, 6, v))
        return NULL;
    PyObject *found = NULL;
    int32_t *scratch = NULL;
    Py_ssize_t n_rows = v[0].shape[0], n_classes = v[0].shape[1], n_picked, n_bins;
    if (!has_length(&v[1], 0, n_classes, "lows") || !has_length(&v[2], 0, n_classes, "scales") ||
        (n_bins = bins_of(&v[3], n_classes, "is_hot")) < 0)
        goto done;
    if (v[4].shape[0] < n_rows * n_classes || v[5].shape[0] < n_rows * n_classes) {
        PyErr_Format(PyExc_ValueError, "columns, keys: expected places for %zd scores, got %zd, %zd",
                     n_rows * n_classes, v[4].shape[0], v[5].shape[0]);
        goto done;
    }
    if (first_row < 0 || first_row > UINT32_MAX - (long long)n_rows) {
        PyErr_Format(PyExc_ValueError, "first_row: expected clips below 2 ** 32, got %lld", first_row);
        goto done;
    }
    if (!(scratch = PyMem_Malloc((2 * n_classes + 1) * sizeof *scratch))) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    n_picked = pick_block(v[0].buf, n_rows, (int32_t)n_classes, first_row, (int32_t)n_bins, v[1].buf,
                          v[2].buf, v[3].buf, v[4].buf, v[5].buf, scratch, scratch + n_classes);
    Py_END_ALLOW_THREADS
    found = PyLong_FromSsize_t(n_picked);
done:
    PyMem_Free(scratch);
    release(v, 6);
    return found;
}

static int place_all(Py_ssize_t n, const int32_t *columns, const int64_t *keys, Py_ssize_t n_classes,
                     int64_t *cursors, const int64_t *ends, Py_ssize_t n_places, int64_t *out)
{
    for (Py_ssize_t c = 0; c < n_classes; c++)
        if (cursors[c] < 0 || ends[c] > n_places)
            return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (columns[i] < 0 || columns[i] >= n_classes)
            return -1;
        int64_t place = cursors[columns[i]]++;
        if (place < ends[columns[i]])
            out[place] = keys[i];
    }
    return 0;
}

PyObject *place_keys(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {{"columns", "int32", 1, 0},
                                        {"keys", "int64", 1, 0},
                                        {"cursors", "int64", 1, 1},
                                        {"ends", "int64", 1, 0},
                                        {"out", "int64", 1, 1}};
    Py_buffer v[5];
    if (!has_arguments(n_given, 5) || open_arrays(given, expected, 5, v))
        return NULL;
    int failed = !has_length(&v[1], 0, v[0].shape[0], "keys") ||
                 !has_length(&v[3], 0, v[2].shape[0], "ends");
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        failed = place_all(v[0].shape[0], v[0].buf, v[1].buf, v[2].shape[0], v[2].buf, v[3].buf,
                           v[4].shape[0], v[4].buf);
        Py_END_ALLOW_THREADS
        if (failed)
            PyErr_SetString(PyExc_ValueError, "columns, cursors or ends point beyond their arrays");
    }
    release(v, 5);
    return failed ? NULL : Py_NewRef(Py_None);
}
