/* Scores into bins, and those of some bins out as keys: ../keys.py says what they are. */
#include "loops.h"

/* Codes that wait for each strip, fewer than a uint16 can tell, and the most bins of a class. */
#define WAITING 32768
#define MOST_BINS 1024

/* Return how many bins each class has, or -1 after an error. */
static Py_ssize_t bins_of(const Py_buffer *view, Py_ssize_t n_classes, Py_ssize_t per_item, const char *name)
{
    Py_ssize_t n_bins = view->shape[1] * per_item;
    if (!has_length(view, 0, n_classes, name))
        return -1;
    if (n_bins >= 2 && n_bins <= MOST_BINS && n_classes < INT32_MAX / MOST_BINS)
        return n_bins;
    PyErr_Format(PyExc_ValueError, "%s: expected 2 to %d bins for each of %zd classes, got %zd", name,
                 MOST_BINS, n_classes, n_bins);
    return -1;
}

/* Bins: see ../keys.py. A step is no number where infinity is multiplied by 0: the last bin. */
static inline int32_t bin_above(float score, float low, float scale, float last)
{
    float step = (score - low) * scale;
    step = step < last ? step : last;
    return (int32_t)(step > 0 ? step : 0) + 1;
}

#ifdef HAS_KINDS
/* The steps of bin_above for sixteen scores, and where the bins of sixteen classes begin. */
__attribute__((target("avx512f"))) static inline __m512i steps_of(__m512 scores, __m512 lows,
                                                                  __m512 scales, __m512 last)
{
    __m512 steps = _mm512_mul_ps(_mm512_sub_ps(scores, lows), scales);
    steps = _mm512_max_ps(_mm512_min_ps(steps, last), _mm512_setzero_ps());
    return _mm512_cvttps_epi32(steps);
}

__attribute__((target("avx512f"))) static inline __m512i first_bins(int32_t n_bins, int32_t first)
{
    __m512i classes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i begins = _mm512_mullo_epi32(classes, _mm512_set1_epi32(n_bins));
    return _mm512_add_epi32(begins, _mm512_set1_epi32(first));
}
#endif

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

/* What scores are counted by. */
typedef struct {
    int32_t n_classes, n_bins;
    const float *lows, *scales;
    const uint32_t *fewest, *spans;
} Counted;

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

ON_VECTORS
static void append(const int32_t *restrict hits, int32_t n_hits, uint16_t *restrict codes)
{
    for (int32_t i = 0; i < n_hits; i++)
        codes[i] = (uint16_t)hits[i];
}

/* Write the codes of a strip's scores above the lows, one after another; return how many. */
static int32_t append_codes(const Counted *by, const float *scores, int32_t n_clips, int32_t first,
                            int32_t n, uint32_t *any_odd, uint16_t *out, int32_t *scratch)
{
    uint32_t is_odd[STRIP] = {0};
    int32_t *hits = scratch + CLIPS * STRIP;
    find_codes(scores + first, by->n_classes, n_clips, n, by->n_bins, by->lows + first,
               by->scales + first, by->fewest + first, by->spans + first, is_odd, scratch);
    int32_t n_hits = squeeze(scratch, n_clips * n, hits);
    append(hits, n_hits, out);
    for (int32_t c = 0; c < n; c++)
        *any_odd |= is_odd[c];
    return n_hits;
}

#ifdef HAS_KINDS
/* The same in one go, without writing codes that are not wanted. */
__attribute__((target("avx512f,popcnt"))) static int32_t
append_sixteen(const Counted *by, const float *scores, int32_t n_clips, int32_t first, int32_t n,
               uint32_t *any_odd, uint16_t *out)
{
    const __mmask16 is_there = (__mmask16)((1u << n) - 1);
    const __m512 lows = _mm512_maskz_loadu_ps(is_there, by->lows + first);
    const __m512 scales = _mm512_maskz_loadu_ps(is_there, by->scales + first);
    const __m512i fewest = _mm512_maskz_loadu_epi32(is_there, by->fewest + first);
    const __m512i spans = _mm512_maskz_loadu_epi32(is_there, by->spans + first);
    const __m512i unsigned_bits = _mm512_set1_epi32(0x7FFFFFFF), bins = first_bins(by->n_bins, 1);
    const __m512 last = _mm512_set1_ps((float)(by->n_bins - 2));
    __mmask16 is_odd = 0;
    uint16_t *next = out;
    for (const float *clip = scores + first; n_clips--; clip += by->n_classes) {
        __m512 some = _mm512_maskz_loadu_ps(is_there, clip);
        __m512i bits = _mm512_and_si512(_mm512_castps_si512(some), unsigned_bits);
        is_odd |= _mm512_mask_cmpgt_epu32_mask(is_there, _mm512_sub_epi32(bits, fewest), spans);
        __mmask16 is_above = _mm512_mask_cmp_ps_mask(is_there, some, lows, _CMP_GT_OQ);
        __m512i codes = _mm512_add_epi32(bins, steps_of(some, lows, scales, last));
        __m512i hits = _mm512_maskz_compress_epi32(is_above, codes);
        _mm256_storeu_si256((__m256i *)next, _mm512_cvtepi32_epi16(hits));
        next += __builtin_popcount(is_above);
    }
    *any_odd |= is_odd;
    return (int32_t)(next - out);
}
#endif

/* Codes of scores above the lows that wait to be counted, a list for each strip of classes: the counts of
   all classes are too many for a core's cache, so one strip's are fetched for many scores at once. */
typedef struct {
    uint16_t *codes; /* [strip, WAITING] */
    int32_t *n;      /* [strip] */
} Waiting;

ON_VECTORS
static void add_counts(const uint16_t *restrict more, int32_t n, int32_t *restrict counts)
{
    for (int32_t i = 0; i < n; i++)
        counts[i] += more[i];
}

/* Count the codes of a strip that wait: fewer than a uint16 can tell, in a table that stays in the
   fastest cache. */
static void count_waiting(const Counted *by, Waiting *waiting, int32_t strip, int32_t *counts)
{
    uint16_t more[STRIP * MOST_BINS];
    const uint16_t *codes = waiting->codes + (Py_ssize_t)strip * WAITING;
    int32_t first = strip * STRIP, n_left = by->n_classes - first;
    int32_t n_counts = (n_left < STRIP ? n_left : STRIP) * by->n_bins;
    memset(more, 0, sizeof more);
    for (int32_t i = 0; i < waiting->n[strip]; i++)
        more[codes[i] & (STRIP * MOST_BINS - 1)]++; /* whatever the codes are, not beyond the table */
    add_counts(more, n_counts, counts + (Py_ssize_t)first * by->n_bins);
    waiting->n[strip] = 0;
}

/* Have the scores of some clips counted, explicit ones too; tell whether any is odd. */
static int count_clips(const Counted *by, const float *scores, int32_t n_clips, Waiting *waiting,
                       int32_t *counts, int32_t *scratch)
{
    uint32_t any_odd = 0;
    for (int32_t first = 0, strip = 0; first < by->n_classes; first += STRIP, strip++) {
        int32_t n = by->n_classes - first < STRIP ? by->n_classes - first : STRIP;
        if (waiting->n[strip] + CLIPS * STRIP + STRIP > WAITING) /* a vector is written whole */
            count_waiting(by, waiting, strip, counts);
        uint16_t *out = waiting->codes + (Py_ssize_t)strip * WAITING + waiting->n[strip];
#ifdef HAS_KINDS
        if (has_vectors_of(16)) {
            waiting->n[strip] += append_sixteen(by, scores, n_clips, first, n, &any_odd, out);
            continue;
        }
#endif
        waiting->n[strip] += append_codes(by, scores, n_clips, first, n, &any_odd, out, scratch);
    }
    return any_odd != 0;
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
                              Explicit explicit, float *explicit_scores, Waiting *waiting,
                              int32_t *counts, int32_t *scratch)
{
    for (Py_ssize_t row = 0; row < n_rows; row += CLIPS) {
        const float *scores = block + row * by->n_classes;
        int32_t n_clips = n_rows - row < CLIPS ? (int32_t)(n_rows - row) : CLIPS;
        if (count_clips(by, scores, n_clips, waiting, counts, scratch))
            return row + first_odd(by, scores, n_clips);
    }
    take_out(by, block, n_rows, explicit, explicit_scores, counts);
    return -1;
}

/* Tell whether codes of each strip wait where there is room for them, and point into its counts. */
static int take_waiting(const Py_buffer *codes, const Py_buffer *n, const Counted *by, Waiting *waiting)
{
    *waiting = (Waiting){codes->buf, n->buf};
    Py_ssize_t n_strips = (by->n_classes + STRIP - 1) / STRIP;
    if (!has_length(n, 0, n_strips, "n_waiting") || !has_length(codes, 0, n_strips * WAITING, "waiting"))
        return 0;
    int is_right = 1;
    for (Py_ssize_t strip = 0; is_right && strip < n_strips; strip++)
        is_right = waiting->n[strip] >= 0 && waiting->n[strip] <= WAITING;
    if (!is_right)
        PyErr_Format(PyExc_ValueError, "n_waiting: expected 0 to %d for each strip", WAITING);
    return is_right;
}

PyObject *count_scores(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"block", "float32", 2, 0},   {"lows", "float32", 1, 0},    {"scales", "float32", 1, 0},
        {"fewest", "uint32", 1, 0},   {"spans", "uint32", 1, 0},    {"starts", "int64", 1, 0},
        {"columns", "int32", 1, 0},   {"explicit", "float32", 1, 1}, {"waiting", "uint16", 1, 1},
        {"n_waiting", "int32", 1, 1}, {"counts", "int32", 2, 1}};
    Py_buffer v[11];
    if (!has_arguments(n_given, 11) || open_arrays(given, expected, 11, v))
        return NULL;
    PyObject *found = NULL;
    int32_t *scratch = NULL;
    Explicit explicit;
    Waiting waiting;
    Py_ssize_t n_rows = v[0].shape[0], n_classes = v[0].shape[1], odd, n_bins;
    for (int i = 1; i < 5; i++)
        if (!has_length(&v[i], 0, n_classes, expected[i].name))
            goto done;
    if ((n_bins = bins_of(&v[10], n_classes, 1, "counts")) < 0 ||
        !take_explicit(&v[5], &v[6], n_rows, n_classes, &explicit) ||
        !has_length(&v[7], 0, v[6].shape[0], "explicit"))
        goto done;
    Counted by = {(int32_t)n_classes, (int32_t)n_bins, v[1].buf, v[2].buf, v[3].buf, v[4].buf};
    if (!take_waiting(&v[8], &v[9], &by, &waiting))
        goto done;
    if (!(scratch = PyMem_Malloc((2 * CLIPS + 1) * STRIP * sizeof *scratch))) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    odd = count_block(&by, v[0].buf, n_rows, explicit, v[7].buf, &waiting, v[10].buf, scratch);
    Py_END_ALLOW_THREADS
    found = PyLong_FromSsize_t(odd);
done:
    PyMem_Free(scratch);
    release(v, 11);
    return found;
}

PyObject *count_last(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"waiting", "uint16", 1, 1}, {"n_waiting", "int32", 1, 1}, {"counts", "int32", 2, 1}};
    Py_buffer v[3];
    if (!has_arguments(n_given, 3) || open_arrays(given, expected, 3, v))
        return NULL;
    Waiting waiting;
    Py_ssize_t n_classes = v[2].shape[0], n_bins = bins_of(&v[2], n_classes, 1, "counts");
    Counted by = {(int32_t)n_classes, (int32_t)n_bins, NULL, NULL, NULL, NULL};
    int is_done = n_bins > 0 && take_waiting(&v[0], &v[1], &by, &waiting);
    for (Py_ssize_t strip = 0; is_done && strip < v[1].shape[0]; strip++)
        count_waiting(&by, &waiting, (int32_t)strip, v[2].buf);
    release(v, 3);
    return is_done ? Py_NewRef(Py_None) : NULL;
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
    __m512i bins = first_bins(n_bins, 1);
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
