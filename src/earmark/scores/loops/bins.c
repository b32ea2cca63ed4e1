/* Scores into bins, and those of some bins out as keys: ../keys.py says what they are. */
#include "loops.h"

/* Return how many bins each class has, or -1 after an error. */
static Py_ssize_t bins_of(const Py_buffer *view, Py_ssize_t n_classes, const char *name)
{
    Py_ssize_t n = view->shape[0], n_bins = n_classes ? n / n_classes : 2;
    if (n == n_bins * n_classes && n_bins >= 2 && n_bins <= 1 << 24 && n < INT32_MAX)
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

/* Write class * n_bins + bin of scores above the lows, 0 for others; mark classes with odd scores. */
WITHIN void codes_of(const float *restrict scores, Py_ssize_t n_classes, int32_t n_clips, int32_t n,
                     int32_t n_bins, const float *restrict lows, const float *restrict scales,
                     const uint32_t *restrict fewest, const uint32_t *restrict spans,
                     uint32_t *restrict is_odd, int32_t *restrict codes)
{
    const float last = (float)(n_bins - 2);
    for (int32_t clip = 0; clip < n_clips; clip++, scores += n_classes, codes += n)
        for (int32_t c = 0; c < n; c++) {
            uint32_t bits;
            memcpy(&bits, scores + c, sizeof bits);
            is_odd[c] |= (bits & 0x7FFFFFFF) - fewest[c] > spans[c];
            int32_t code = bin_above(scores[c], lows[c], scales[c], last) + c * n_bins;
            codes[c] = scores[c] > lows[c] ? code : 0;
        }
}

ON_VECTORS
static void find_codes(const float *restrict scores, Py_ssize_t n_classes, int32_t n_clips, int32_t n,
                       int32_t n_bins, const float *restrict lows, const float *restrict scales,
                       const uint32_t *restrict fewest, const uint32_t *restrict spans,
                       uint32_t *restrict is_odd, int32_t *restrict codes)
{
    if (n == STRIP) /* a number that the compiler knows */
        codes_of(scores, n_classes, n_clips, STRIP, n_bins, lows, scales, fewest, spans, is_odd, codes);
    else
        codes_of(scores, n_classes, n_clips, n, n_bins, lows, scales, fewest, spans, is_odd, codes);
}

/* What scores are counted by. */
typedef struct {
    int32_t n_classes, n_bins;
    const float *lows, *scales;
    const uint32_t *fewest, *spans;
} Counted;

/* Count the scores of some clips, explicit ones too; tell whether any is odd. */
static int count_clips(const Counted *by, const float *scores, int32_t n_clips, int32_t *counts,
                       int32_t *codes, int32_t *hits)
{
    uint32_t any = 0;
    for (int32_t first = 0; first < by->n_classes; first += STRIP) {
        int32_t n = by->n_classes - first < STRIP ? by->n_classes - first : STRIP;
        int32_t *own = counts + (Py_ssize_t)first * by->n_bins;
        uint32_t is_odd[STRIP] = {0};
        find_codes(scores + first, by->n_classes, n_clips, n, by->n_bins, by->lows + first,
                   by->scales + first, by->fewest + first, by->spans + first, is_odd, codes);
        int32_t n_hits = squeeze(codes, n_clips * n, hits);
        for (int32_t hit = 0; hit < n_hits; hit++)
            own[hits[hit]]++;
        for (int32_t c = 0; c < n; c++)
            any |= is_odd[c];
    }
    return any != 0;
}

static Py_ssize_t first_odd(const Counted *by, const float *scores, Py_ssize_t n_rows)
{
    for (Py_ssize_t i = 0; i < n_rows * by->n_classes; i++) {
        uint32_t bits;
        memcpy(&bits, scores + i, sizeof bits);
        if ((bits & 0x7FFFFFFF) - by->fewest[i % by->n_classes] > by->spans[i % by->n_classes])
            return i / by->n_classes;
    }
    return -1;
}

/* Take the explicit labels out of the counts, and note their scores. */
static void take_out(const Counted *by, const float *block, Py_ssize_t n_rows, Explicit explicit,
                     float *explicit_scores, int32_t *counts)
{
    const float last = (float)(by->n_bins - 2);
    for (Py_ssize_t row = 0; row < n_rows; row++)
        for (int64_t i = explicit.starts[row]; i < explicit.starts[row + 1]; i++) {
            int32_t c = explicit.columns[i];
            float score = explicit_scores[i] = block[row * by->n_classes + c];
            if (score > by->lows[c])
                counts[(Py_ssize_t)c * by->n_bins + bin_above(score, by->lows[c], by->scales[c], last)]--;
        }
}

static Py_ssize_t count_block(const Counted *by, const float *block, Py_ssize_t n_rows,
                              Explicit explicit, float *explicit_scores, int32_t *counts,
                              int32_t *scratch)
{
    for (Py_ssize_t row = 0; row < n_rows; row += CLIPS) {
        const float *scores = block + row * by->n_classes;
        int32_t n_clips = n_rows - row < CLIPS ? (int32_t)(n_rows - row) : CLIPS;
        if (count_clips(by, scores, n_clips, counts, scratch, scratch + CLIPS * STRIP))
            return row + first_odd(by, scores, n_clips);
    }
    take_out(by, block, n_rows, explicit, explicit_scores, counts);
    return -1;
}

PyObject *count_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"block", "float32", 2, 0},   {"lows", "float32", 1, 0},    {"scales", "float32", 1, 0},
        {"fewest", "uint32", 1, 0},   {"spans", "uint32", 1, 0},    {"starts", "int64", 1, 0},
        {"columns", "int32", 1, 0},   {"explicit", "float32", 1, 1}, {"counts", "int32", 1, 1}};
    Py_buffer v[9];
    if (!has_arguments(n_given, 9) || open_arrays(given, expected, 9, v))
        return NULL;
    PyObject *found = NULL;
    int32_t *scratch = NULL;
    Explicit explicit;
    Py_ssize_t n_rows = v[0].shape[0], n_classes = v[0].shape[1], odd, n_bins;
    for (int i = 1; i < 5; i++)
        if (!has_length(&v[i], 0, n_classes, expected[i].name))
            goto done;
    if ((n_bins = bins_of(&v[8], n_classes, "counts")) < 0 ||
        !take_explicit(&v[5], &v[6], n_rows, n_classes, &explicit) ||
        !has_length(&v[7], 0, v[6].shape[0], "explicit"))
        goto done;
    if (!(scratch = PyMem_Malloc((2 * CLIPS + 1) * STRIP * sizeof *scratch))) {
        PyErr_NoMemory();
        goto done;
    }
    Counted by = {(int32_t)n_classes, (int32_t)n_bins, v[1].buf, v[2].buf, v[3].buf, v[4].buf};
    Py_BEGIN_ALLOW_THREADS
    odd = count_block(&by, v[0].buf, n_rows, explicit, v[7].buf, v[8].buf, scratch);
    Py_END_ALLOW_THREADS
    found = PyLong_FromSsize_t(odd);
done:
    PyMem_Free(scratch);
    release(v, 9);
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

/* Write 1 + (clip * STRIP + class) * n_bins + bin of scores, 0 in a bin 0 that is not wanted. */
WITHIN void wanted_of(const float *restrict scores, Py_ssize_t n_classes, int32_t n_clips, int32_t n,
                      int32_t n_bins, const float *restrict lows, const float *restrict scales,
                      const int32_t *restrict is_low_hot, int32_t *restrict codes)
{
    const float last = (float)(n_bins - 2);
    for (int32_t clip = 0; clip < n_clips; clip++, scores += n_classes, codes += n)
        for (int32_t c = 0; c < n; c++) {
            int32_t bin = bin_above(scores[c], lows[c], scales[c], last);
            int32_t above = scores[c] > lows[c];
            int32_t code = (above ? bin : 0) + (clip * STRIP + c) * n_bins + 1;
            codes[c] = above | is_low_hot[c] ? code : 0;
        }
}

ON_VECTORS
static void find_wanted(const float *restrict scores, Py_ssize_t n_classes, int32_t n_clips, int32_t n,
                        int32_t n_bins, const float *restrict lows, const float *restrict scales,
                        const int32_t *restrict is_low_hot, int32_t *restrict codes)
{
    if (n == STRIP)
        wanted_of(scores, n_classes, n_clips, STRIP, n_bins, lows, scales, is_low_hot, codes);
    else
        wanted_of(scores, n_classes, n_clips, n, n_bins, lows, scales, is_low_hot, codes);
}

/* Leave those codes whose bins are hot, less 1; a code's last bits are its class and bin. */
static int32_t leave_hot(int32_t *hits, int32_t n_hits, const uint8_t *is_hot, int32_t last_bits)
{
    int32_t n_hot = 0;
    for (int32_t hit = 0; hit < n_hits; hit++) {
        int32_t code = hits[hit] - 1;
        hits[n_hot] = code;
        n_hot += is_hot[code & last_bits] != 0;
    }
    return n_hot;
}

static int is_explicit(Explicit explicit, Py_ssize_t row, int32_t column)
{
    for (int64_t i = explicit.starts[row]; i < explicit.starts[row + 1]; i++)
        if (explicit.columns[i] == column)
            return 1;
    return 0;
}

/* What is picked from a block, and where it goes. */
typedef struct {
    const float *block, *lows, *scales;
    Py_ssize_t n_rows;
    int32_t n_classes, n_bins;
    const uint8_t *is_hot;
    Explicit explicit;
    int64_t first_row;
    int32_t *columns;
    int64_t *keys;
} Picked;

static Py_ssize_t pick_strip(const Picked *from, Py_ssize_t row, int32_t n_clips, int32_t first,
                             int32_t *codes, int32_t *hits, Py_ssize_t n_picked)
{
    const int32_t n_bins = from->n_bins, n_left = from->n_classes - first;
    const uint8_t *is_hot = from->is_hot + (Py_ssize_t)first * n_bins;
    int32_t n = n_left < STRIP ? n_left : STRIP, is_low_hot[STRIP];
    for (int32_t c = 0; c < n; c++)
        is_low_hot[c] = is_hot[(Py_ssize_t)c * n_bins] != 0;
    find_wanted(from->block + row * from->n_classes + first, from->n_classes, n_clips, n, n_bins,
                from->lows + first, from->scales + first, is_low_hot, codes);
    int32_t n_hot = leave_hot(hits, squeeze(codes, n_clips * n, hits), is_hot, STRIP * n_bins - 1);
    for (int32_t hit = 0; hit < n_hot; hit++) {
        int32_t place = hits[hit] / n_bins, column = first + place % STRIP;
        Py_ssize_t clip = row + place / STRIP;
        float score = from->block[clip * from->n_classes + column];
        from->columns[n_picked] = column;
        from->keys[n_picked] = key_of(score, from->first_row + clip);
        n_picked += score == score && !is_explicit(from->explicit, clip, column);
    }
    return n_picked;
}

static Py_ssize_t pick_block(const Picked *from, int32_t *scratch)
{
    Py_ssize_t n_picked = 0;
    for (Py_ssize_t row = 0; row < from->n_rows; row += CLIPS) {
        int32_t n_clips = from->n_rows - row < CLIPS ? (int32_t)(from->n_rows - row) : CLIPS;
        for (int32_t first = 0; first < from->n_classes; first += STRIP)
            n_picked = pick_strip(from, row, n_clips, first, scratch, scratch + CLIPS * STRIP, n_picked);
    }
    return n_picked;
}

PyObject *pick_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"block", "float32", 2, 0},  {"lows", "float32", 1, 0},  {"scales", "float32", 1, 0},
        {"is_hot", "uint8", 1, 0},   {"starts", "int64", 1, 0},  {"explicit", "int32", 1, 0},
        {"columns", "int32", 1, 1},  {"keys", "int64", 1, 1}};
    Py_buffer v[8];
    if (!has_arguments(n_given, 9))
        return NULL;
    long long first_row = PyLong_AsLongLong(given[8]);
    if ((first_row == -1 && PyErr_Occurred()) || open_arrays(given, expected, 8, v))
        return NULL;
    PyObject *found = NULL;
    int32_t *scratch = NULL;
    Explicit explicit;
    Py_ssize_t n_rows = v[0].shape[0], n_classes = v[0].shape[1], n_picked, n_bins;
    if (!has_length(&v[1], 0, n_classes, "lows") || !has_length(&v[2], 0, n_classes, "scales") ||
        (n_bins = bins_of(&v[3], n_classes, "is_hot")) < 0 ||
        !take_explicit(&v[4], &v[5], n_rows, n_classes, &explicit))
        goto done;
    if (v[6].shape[0] < n_rows * n_classes || v[7].shape[0] < n_rows * n_classes) {
        PyErr_Format(PyExc_ValueError, "columns, keys: expected places for %zd scores, got %zd, %zd",
                     n_rows * n_classes, v[6].shape[0], v[7].shape[0]);
        goto done;
    }
    if (first_row < 0 || first_row > UINT32_MAX - (long long)n_rows) {
        PyErr_Format(PyExc_ValueError, "first_row: expected clips below 2 ** 32, got %lld", first_row);
        goto done;
    }
    if (n_bins & (n_bins - 1) || n_bins > INT32_MAX / (CLIPS * STRIP)) {
        PyErr_Format(PyExc_ValueError, "is_hot: expected a power of 2 for each class, got %zd", n_bins);
        goto done;
    }
    if (!(scratch = PyMem_Malloc((2 * CLIPS + 1) * STRIP * sizeof *scratch))) {
        PyErr_NoMemory();
        goto done;
    }
    Picked from = {v[0].buf, v[1].buf, v[2].buf, n_rows,   (int32_t)n_classes, (int32_t)n_bins,
                   v[3].buf, explicit, first_row, v[6].buf, v[7].buf};
    Py_BEGIN_ALLOW_THREADS
    n_picked = pick_block(&from, scratch);
    Py_END_ALLOW_THREADS
    found = PyLong_FromSsize_t(n_picked);
done:
    PyMem_Free(scratch);
    release(v, 8);
    return found;
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
