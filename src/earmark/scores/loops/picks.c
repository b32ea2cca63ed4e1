/* The scores of some bins out as keys: ../keys.py says what they are. */
#include "bins.h"

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

#ifdef HAS_KINDS
/* The same codes one after another, without those that are 0; return how many. */
__attribute__((target("avx512f,popcnt"))) static int32_t
squeeze_wanted(const float *scores, Py_ssize_t n_classes, int32_t n_clips, int32_t n, int32_t n_bins,
               const float *lows, const float *scales, const int32_t *is_low_hot, int32_t *hits)
{
    const __mmask16 is_there = (__mmask16)((1u << n) - 1);
    const __m512 low = _mm512_maskz_loadu_ps(is_there, lows);
    const __m512 scale = _mm512_maskz_loadu_ps(is_there, scales);
    const __m512i all_low = _mm512_maskz_loadu_epi32(is_there, is_low_hot);
    const __mmask16 is_wanted_low = _mm512_test_epi32_mask(all_low, all_low);
    const __m512 last = _mm512_set1_ps((float)(n_bins - 2));
    const __m512i per_clip = _mm512_set1_epi32(STRIP * n_bins), one = _mm512_set1_epi32(1);
    __m512i bins = first_bins(n_bins);
    int32_t *next = hits;
    for (; n_clips--; scores += n_classes, bins = _mm512_add_epi32(bins, per_clip)) {
        __m512 some = _mm512_maskz_loadu_ps(is_there, scores);
        __mmask16 is_above = _mm512_mask_cmp_ps_mask(is_there, some, low, _CMP_GT_OQ);
        __m512i steps = _mm512_maskz_add_epi32(is_above, steps_of(some, low, scale, last), one);
        __mmask16 is_hit = is_above | is_wanted_low;
        __m512i codes = _mm512_maskz_compress_epi32(is_hit, _mm512_add_epi32(bins, steps));
        _mm512_storeu_si512(next, codes);
        next += __builtin_popcount(is_hit);
    }
    return (int32_t)(next - hits);
}
#endif

/* Put 0 in place of codes whose bins are not hot; a code's last bits, less 1, are its class and bin. */
ON_VECTORS
static void leave_hot(int32_t *hits, int32_t n_hits, const uint32_t *restrict hot, uint32_t last_bits)
{
    for (int32_t i = 0; i < n_hits; i++) {
        uint32_t place = ((uint32_t)hits[i] - 1) & last_bits;
        hits[i] = hot[place >> 5] >> (place & 31) & 1 ? hits[i] : 0;
    }
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
    const uint32_t *hot; /* a bit for each bin of each class */
    Explicit explicit;
    int64_t first_row;
    int32_t *columns;
    int64_t *keys;
} Picked;

static Py_ssize_t pick_strip(const Picked *from, Py_ssize_t row, int32_t n_clips, int32_t first,
                             int32_t *codes, int32_t *hits, Py_ssize_t n_picked)
{
    const int32_t n_bins = from->n_bins, n_left = from->n_classes - first, n_words = n_bins / 32;
    const uint32_t *hot = from->hot + (Py_ssize_t)first * n_words;
    int32_t n = n_left < STRIP ? n_left : STRIP, is_low_hot[STRIP];
    for (int32_t c = 0; c < n; c++)
        is_low_hot[c] = hot[c * n_words] & 1;
    const float *scores = from->block + row * from->n_classes + first;
    int32_t n_hits;
#ifdef HAS_KINDS
    if (has_vectors_of(16))
        n_hits = squeeze_wanted(scores, from->n_classes, n_clips, n, n_bins, from->lows + first,
                                from->scales + first, is_low_hot, hits);
    else
#endif
    {
        find_wanted(scores, from->n_classes, n_clips, n, n_bins, from->lows + first,
                    from->scales + first, is_low_hot, codes);
        n_hits = squeeze(codes, n_clips * n, hits);
    }
    leave_hot(hits, n_hits, hot, (uint32_t)(STRIP * n_bins - 1));
    int32_t n_hot = squeeze(hits, n_hits, codes);
    for (int32_t hit = 0; hit < n_hot; hit++) {
        int32_t place = (codes[hit] - 1) / n_bins, column = first + place % STRIP;
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
            n_picked = pick_strip(from, row, n_clips, first, scratch, scratch + (CLIPS + 1) * STRIP,
                                  n_picked);
    }
    return n_picked;
}

PyObject *pick_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"block", "float32", 2, 0},  {"lows", "float32", 1, 0},  {"scales", "float32", 1, 0},
        {"hot", "uint32", 2, 0},     {"starts", "int64", 1, 0},  {"explicit", "int32", 1, 0},
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
        (n_bins = bins_of(&v[3], n_classes, 32, "hot")) < 0 ||
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
    if (n_bins & (n_bins - 1)) { /* then the last bits of a code are class and bin */
        PyErr_Format(PyExc_ValueError, "hot: expected a power of 2 for each class, got %zd bits", n_bins);
        goto done;
    }
    if (!(scratch = PyMem_Malloc(2 * (CLIPS + 1) * STRIP * sizeof *scratch))) {
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
