/* Scores into bins: counted, strip by strip. */
#include "bins.h"

/* Codes that wait for each strip, fewer than a uint16 can tell. */
#define WAITING 32768

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
    const __m512i unsigned_bits = _mm512_set1_epi32(0x7FFFFFFF), bins = first_bins(by->n_bins);
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

/* Tell whether there is room for the codes of each strip, and no more wait than there is room for. */
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
