/* Histograms of scores by class, and the scores of chosen bins as keys that sort.

   ../scores/order_statistics.py says what bins and keys are, compiled.pyi what comes in and out. A strip of
   classes is looked at for some clips at a time, so that its counts stay in a fast cache. */
#include "loops.h"

#define MOST_BINS 1024 /* of a class */

/* The bins of a block of scores. */
typedef struct {
    Py_ssize_t n_rows;
    int32_t n_classes, n_bins;
    const float *lows, *scales;
} Grid;

/* Take a block's explicit labels out of two arrays if they point into its classes. */
int take_explicit(const Py_buffer *starts, const Py_buffer *columns, Py_ssize_t n_rows,
                  Py_ssize_t n_classes, Explicit *explicit)
{
    *explicit = (Explicit){starts->buf, columns->buf};
    if (!has_length(starts, 0, n_rows + 1, "starts"))
        return 0;
    const int64_t *s = explicit->starts;
    int is_right = s[0] >= 0 && s[n_rows] <= columns->shape[0];
    for (Py_ssize_t row = 0; is_right && row < n_rows; row++)
        is_right = s[row] <= s[row + 1];
    for (int64_t i = s[0]; is_right && i < s[n_rows]; i++)
        is_right = explicit->columns[i] >= 0 && explicit->columns[i] < n_classes;
    if (!is_right)
        PyErr_SetString(PyExc_ValueError, "starts, columns: they point beyond the classes");
    return is_right;
}

/* Check lows, scales and an array [class, bin], and take the grid out of them. */
static int take_grid(const Py_buffer *block, const Py_buffer *lows, const Py_buffer *scales,
                     const Py_buffer *by_bin, const char *name, Grid *grid)
{
    Py_ssize_t n_classes = block->shape[1], n_bins = by_bin->shape[1];
    *grid = (Grid){block->shape[0], (int32_t)n_classes, (int32_t)n_bins, lows->buf, scales->buf};
    if (!has_length(lows, 0, n_classes, "lows") || !has_length(scales, 0, n_classes, "scales") ||
        !has_length(by_bin, 0, n_classes, name))
        return 0;
    if (n_bins >= 2 && n_bins <= MOST_BINS && n_classes < INT32_MAX / MOST_BINS)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: expected 2 to %d bins for each of %zd classes, got %zd", name,
                 MOST_BINS, n_classes, n_bins);
    return 0;
}

/* A step is NaN where infinity is multiplied by 0: the last bin. */
WITHIN int32_t bin_of(float score, float low, float scale, float last)
{
    float step = (score - low) * scale;
    step = step < last ? step : last;
    int32_t bin = (int32_t)(step > 0 ? step : 0) + 1;
    return score > low ? bin : 0;
}

/* Write the bins [clip, STRIP] of n classes. */
WITHIN void find_bins(const float *restrict scores, Py_ssize_t n_classes, int32_t n_clips, int32_t n,
                      float last, const float *restrict lows, const float *restrict scales,
                      int32_t *restrict bins)
{
    for (int32_t clip = 0; clip < n_clips; clip++, scores += n_classes, bins += STRIP)
        for (int32_t c = 0; c < n; c++)
            bins[c] = bin_of(scores[c], lows[c], scales[c], last);
}

/* The bins of a strip of classes that begins with one of them; return how many it has. */
ON_VECTORS
static int32_t strip_bins(const Grid *grid, const float *scores, int32_t n_clips, int32_t first,
                          int32_t *bins)
{
    const float last = (float)(grid->n_bins - 2), *lows = grid->lows + first;
    const float *scales = grid->scales + first;
    int32_t n = grid->n_classes - first;
    if (n >= STRIP) { /* a number that the compiler knows */
        find_bins(scores + first, grid->n_classes, n_clips, STRIP, last, lows, scales, bins);
        return STRIP;
    }
    find_bins(scores + first, grid->n_classes, n_clips, n, last, lows, scales, bins);
    return n;
}

/* Return the first row with a score that is not valid, or -1. */
ON_VECTORS
static Py_ssize_t first_odd(const float *restrict scores, Py_ssize_t n_rows, Py_ssize_t n_classes,
                            const uint32_t *restrict fewest, const uint32_t *restrict spans)
{
    for (Py_ssize_t row = 0; row < n_rows; row++, scores += n_classes) {
        uint32_t is_odd = 0;
        for (Py_ssize_t c = 0; c < n_classes; c++) {
            uint32_t bits;
            memcpy(&bits, scores + c, sizeof bits);
            is_odd |= (bits & 0x7FFFFFFF) - fewest[c] > spans[c];
        }
        if (is_odd)
            return row;
    }
    return -1;
}

static void count_block(const Grid *grid, const float *block, Explicit explicit, float *explicit_scores,
                        int32_t *counts)
{
    const int32_t n_bins = grid->n_bins;
    const Py_ssize_t n_classes = grid->n_classes;
    int32_t bins[CLIPS * STRIP];
    for (Py_ssize_t row = 0; row < grid->n_rows; row += CLIPS) {
        int32_t n_clips = grid->n_rows - row < CLIPS ? (int32_t)(grid->n_rows - row) : CLIPS;
        for (int32_t first = 0; first < n_classes; first += STRIP) {
            int32_t n = strip_bins(grid, block + row * n_classes, n_clips, first, bins);
            int32_t *strip = counts + (Py_ssize_t)first * n_bins;
            for (int32_t clip = 0; clip < n_clips; clip++)
                for (int32_t c = 0; c < n; c++)
                    strip[c * n_bins + bins[clip * STRIP + c]]++;
        }
    }
    for (Py_ssize_t row = 0; row < grid->n_rows; row++)
        for (int64_t i = explicit.starts[row]; i < explicit.starts[row + 1]; i++) {
            int32_t c = explicit.columns[i];
            float score = explicit_scores[i] = block[row * n_classes + c];
            int32_t bin = bin_of(score, grid->lows[c], grid->scales[c], (float)(n_bins - 2));
            counts[(Py_ssize_t)c * n_bins + bin]--;
        }
}

PyObject *count_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    enum { BLOCK, LOWS, SCALES, FEWEST, SPANS, STARTS, COLUMNS, EXPLICIT, COUNTS, N };
    static const Expected expected[] = {
        {"block", "float32", 2, 0},  {"lows", "float32", 1, 0},     {"scales", "float32", 1, 0},
        {"fewest", "uint32", 1, 0},  {"spans", "uint32", 1, 0},     {"starts", "int64", 1, 0},
        {"columns", "int32", 1, 0},  {"explicit", "float32", 1, 1}, {"counts", "int32", 2, 1}};
    Py_buffer v[N];
    if (!has_arguments(n_given, N) || open_arrays(given, expected, N, v))
        return NULL;
    Grid grid;
    Explicit explicit;
    Py_ssize_t n_rows = v[BLOCK].shape[0], n_classes = v[BLOCK].shape[1], odd = -1;
    int is_fit = take_grid(&v[BLOCK], &v[LOWS], &v[SCALES], &v[COUNTS], "counts", &grid) &&
                 has_length(&v[FEWEST], 0, n_classes, "fewest") &&
                 has_length(&v[SPANS], 0, n_classes, "spans") &&
                 take_explicit(&v[STARTS], &v[COLUMNS], n_rows, n_classes, &explicit) &&
                 has_length(&v[EXPLICIT], 0, v[COLUMNS].shape[0], "explicit");
    if (is_fit) {
        Py_BEGIN_ALLOW_THREADS
        odd = first_odd(v[BLOCK].buf, n_rows, n_classes, v[FEWEST].buf, v[SPANS].buf);
        if (odd < 0)
            count_block(&grid, v[BLOCK].buf, explicit, v[EXPLICIT].buf, v[COUNTS].buf);
        Py_END_ALLOW_THREADS
    }
    release(v, N);
    return is_fit ? PyLong_FromSsize_t(odd) : NULL;
}

static int64_t key_of(float score, int64_t row)
{
    int32_t bits;
    memcpy(&bits, &score, sizeof bits);
    int64_t falling = bits < 0 ? bits & 0x7FFFFFFF : -(int64_t)bits;
    return (int64_t)((uint64_t)falling << 32 | (uint64_t)row);
}

static int is_explicit(Explicit explicit, Py_ssize_t row, int32_t column)
{
    for (int64_t i = explicit.starts[row]; i < explicit.starts[row + 1]; i++)
        if (explicit.columns[i] == column)
            return 1;
    return 0;
}

static Py_ssize_t pick_block(const Grid *grid, const float *block, const uint8_t *is_hot,
                             Explicit explicit, int64_t first_row, int32_t *columns, int64_t *keys)
{
    const int32_t n_bins = grid->n_bins;
    const Py_ssize_t n_classes = grid->n_classes;
    Py_ssize_t n_picked = 0;
    int32_t bins[CLIPS * STRIP];
    for (Py_ssize_t row = 0; row < grid->n_rows; row += CLIPS) {
        int32_t n_clips = grid->n_rows - row < CLIPS ? (int32_t)(grid->n_rows - row) : CLIPS;
        for (int32_t first = 0; first < n_classes; first += STRIP) {
            int32_t n = strip_bins(grid, block + row * n_classes, n_clips, first, bins);
            const uint8_t *strip = is_hot + (Py_ssize_t)first * n_bins;
            for (Py_ssize_t clip = 0; clip < n_clips; clip++)
                for (int32_t c = 0; c < n; c++) {
                    if (!strip[c * n_bins + bins[clip * STRIP + c]])
                        continue;
                    float score = block[(row + clip) * n_classes + first + c];
                    if (score != score || is_explicit(explicit, row + clip, first + c))
                        continue;
                    columns[n_picked] = first + c;
                    keys[n_picked++] = key_of(score, first_row + row + clip);
                }
        }
    }
    return n_picked;
}

PyObject *pick_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    enum { BLOCK, LOWS, SCALES, IS_HOT, STARTS, EXPLICIT, COLUMNS, KEYS, N };
    static const Expected expected[] = {
        {"block", "float32", 2, 0}, {"lows", "float32", 1, 0},   {"scales", "float32", 1, 0},
        {"is_hot", "bool", 2, 0},   {"starts", "int64", 1, 0},   {"explicit", "int32", 1, 0},
        {"columns", "int32", 1, 1}, {"keys", "int64", 1, 1}};
    Py_buffer v[N];
    if (!has_arguments(n_given, N + 1))
        return NULL;
    long long first_row = PyLong_AsLongLong(given[N]);
    if ((first_row == -1 && PyErr_Occurred()) || open_arrays(given, expected, N, v))
        return NULL;
    Grid grid;
    Explicit explicit;
    Py_ssize_t n_rows = v[BLOCK].shape[0], n_classes = v[BLOCK].shape[1], n_picked = 0;
    int is_fit = take_grid(&v[BLOCK], &v[LOWS], &v[SCALES], &v[IS_HOT], "is_hot", &grid) &&
                 take_explicit(&v[STARTS], &v[EXPLICIT], n_rows, n_classes, &explicit);
    if (is_fit && (v[COLUMNS].shape[0] < n_rows * n_classes || v[KEYS].shape[0] < n_rows * n_classes)) {
        PyErr_Format(PyExc_ValueError, "columns, keys: expected places for %zd scores, got %zd, %zd",
                     n_rows * n_classes, v[COLUMNS].shape[0], v[KEYS].shape[0]);
        is_fit = 0;
    }
    if (is_fit && (first_row < 0 || first_row > UINT32_MAX - (long long)n_rows)) {
        PyErr_Format(PyExc_ValueError, "first_row: expected clips below 2 ** 32, got %lld", first_row);
        is_fit = 0;
    }
    if (is_fit) {
        Py_BEGIN_ALLOW_THREADS
        n_picked = pick_block(&grid, v[BLOCK].buf, v[IS_HOT].buf, explicit, first_row, v[COLUMNS].buf,
                              v[KEYS].buf);
        Py_END_ALLOW_THREADS
    }
    release(v, N);
    return is_fit ? PyLong_FromSsize_t(n_picked) : NULL;
}

static int place_all(Py_ssize_t n, const int32_t *columns, const int64_t *keys, Py_ssize_t n_classes,
                     int64_t *cursors, const int64_t *ends, Py_ssize_t n_places, int64_t *out)
{
    for (Py_ssize_t c = 0; c < n_classes; c++)
        if (cursors[c] < 0 || cursors[c] > n_places || ends[c] > n_places)
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
