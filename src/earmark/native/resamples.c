/* Metrics of resamples.

   A block of resamples is a row of 64 counts for each clip, so that a clip is one line of the cache
   and sums run on vectors. Sums of counts are whole numbers and exact; sums of fractions keep the
   order of their clips and no product is fused with a sum (-ffp-contract=off), so results are the
   same to the bit on every processor. Other threads run meanwhile. */
#include "loops.h"

#define N_LANES 64
#define N_AHEAD 16

#ifdef __GNUC__
#define ASK_FOR(place) __builtin_prefetch(place)
#else
#define ASK_FOR(place) ((void)(place))
#endif

/* Counts of a block [clip, lane]: as bytes, or as wide numbers where one does not fit a byte. */
typedef struct {
    const uint8_t *bytes;
    const uint32_t *wide;
} Block;

/* Add the rows of some clips to the sums: four at a time, or the sums would be stored each time,
   and with those to come asked for, because no processor foresees a list. */
#define ADD_ROWS(rows, Sum)                                                                       \
    for (; n >= 4; n -= 4, clips += 4) {                                                          \
        const size_t a = (size_t)clips[0] * N_LANES, b = (size_t)clips[1] * N_LANES;              \
        const size_t c = (size_t)clips[2] * N_LANES, d = (size_t)clips[3] * N_LANES;              \
        if (last - clips >= N_AHEAD + 4)                                                          \
            for (int i = 0; i < 4; i++)                                                           \
                ASK_FOR(&rows[(size_t)clips[N_AHEAD + i] * N_LANES]);                             \
        for (int i = 0; i < N_LANES; i++)                                                         \
            sums[i] += (Sum)(rows[a + i] + rows[b + i] + rows[c + i] + rows[d + i]);              \
    }                                                                                             \
    for (; n > 0; n--, clips++)                                                                   \
        for (int i = 0; i < N_LANES; i++)                                                         \
            sums[i] += rows[(size_t)clips[0] * N_LANES + i];

/* ``last`` is the end of the whole list, of which these are ``n``. */
static inline void add_rows(Block block, const int32_t *restrict clips, int64_t n,
                            const int32_t *last, uint32_t *restrict sums)
{
    const uint8_t *restrict bytes = block.bytes;
    const uint32_t *restrict wide = block.wide;
    if (bytes) {
        ADD_ROWS(bytes, uint16_t)
    } else {
        ADD_ROWS(wide, uint32_t)
    }
}

typedef struct {
    const int32_t *clips, *last;
    const int64_t *ends;
    const uint32_t *totals;
    double *auc, *average_precision, *n_positives, *n_negatives;
} Ladders;

/* Climb down one class's ladder from its top: see compiled.pyi. */
ON_VECTORS
static void climb(Block block, Ladders own, int64_t begin, int64_t n_rungs, int is_rest_outside)
{
    uint32_t above[N_LANES] = {0}, hits[N_LANES] = {0}, tied[N_LANES], positives[N_LANES];
    double lost[N_LANES] = {0}, precision[N_LANES] = {0};
    const int64_t *ends = own.ends;
    for (int64_t rung = 0; rung + 3 < n_rungs; rung += 3, ends += 3) {
        add_rows(block, own.clips + begin, ends[0] - begin, own.last, above);
        memset(tied, 0, sizeof tied);
        add_rows(block, own.clips + ends[0], ends[1] - ends[0], own.last, tied);
        memset(positives, 0, sizeof positives);
        add_rows(block, own.clips + ends[1], ends[2] - ends[1], own.last, positives);
        begin = ends[2];
        for (int i = 0; i < N_LANES; i++) {
            const double n = positives[i], higher = above[i], same = tied[i];
            const double n_hits = n + hits[i], retrieved = n_hits + higher + same;
            lost[i] += n * (higher + same / 2);
            precision[i] += n * n_hits / (retrieved > 1 ? retrieved : 1);
            hits[i] += positives[i];
            above[i] += tied[i];
        }
    }
    memset(tied, 0, sizeof tied);
    add_rows(block, own.clips + begin, ends[0] - begin, own.last, tied);
    for (int i = 0; i < N_LANES; i++) {
        const uint32_t inside = above[i] + tied[i];
        const double n = hits[i];
        const double n_negatives = is_rest_outside ? own.totals[i] - hits[i] - tied[i] : inside;
        const int is_measured = n > 0 && n_negatives > 0;
        own.n_positives[i] = n;
        own.n_negatives[i] = n_negatives;
        own.auc[i] = is_measured ? 1 - lost[i] / (n * n_negatives) : Py_NAN;
        own.average_precision[i] = is_measured ? precision[i] / n : Py_NAN;
    }
}

/* Open counts as bytes or as wide numbers: see Block. */
static int open_block(PyObject *given, Py_buffer *view, Block *block)
{
    static const Expected bytes = {"weights", "uint8", 2, 0}, wide = {"weights", "uint32", 2, 0};
    if (PyObject_GetBuffer(given, view, PyBUF_RECORDS_RO))
        return -1;
    const int is_wide = view->itemsize != 1;
    if (check_array(view, is_wide ? &wide : &bytes) || !has_length(view, 1, N_LANES, "weights")) {
        PyBuffer_Release(view);
        return -1;
    }
    block->bytes = is_wide ? NULL : view->buf;
    block->wide = is_wide ? view->buf : NULL;
    return 0;
}

/* Whether every clip is one of the block's. */
static int are_clips(const Py_buffer *view, const Py_buffer *block)
{
    const int32_t *clips = view->buf;
    uint32_t highest = 0;
    for (Py_ssize_t i = 0; i < view->shape[0]; i++)
        highest = (uint32_t)clips[i] > highest ? (uint32_t)clips[i] : highest;
    if (!view->shape[0] || highest < (size_t)block->shape[0])
        return 1;
    PyErr_Format(PyExc_ValueError, "clips: expected clips below %zd", block->shape[0]);
    return 0;
}

/* Whether ends rise from 0 up to a length. */
static int are_ends(const Py_buffer *view, Py_ssize_t length, const char *name)
{
    const int64_t *ends = view->buf;
    int64_t end = 0;
    for (Py_ssize_t i = 0; i < view->shape[0]; end = ends[i++])
        if (ends[i] < end)
            break;
        else if (i + 1 == view->shape[0] && ends[i] == length)
            return 1;
    if (!view->shape[0] && !length)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: expected ends that rise up to %zd", name, length);
    return 0;
}

/* Whether every class has three rungs a step and one more. */
static int are_rungs(const Py_buffer *view)
{
    const int64_t *ends = view->buf;
    int64_t end = 0;
    for (Py_ssize_t i = 0; i < view->shape[0]; end = ends[i++])
        if ((ends[i] - end) % 3 != 1) {
            PyErr_SetString(PyExc_ValueError, "rungs: expected three for each step, and one more");
            return 0;
        }
    return 1;
}

static int have_shape(const Py_buffer *views, int n, Py_ssize_t n_classes, const Expected *expected)
{
    for (int i = 0; i < n; i++)
        if (!has_length(&views[i], 0, n_classes, expected[i].name) ||
            !has_length(&views[i], 1, N_LANES, expected[i].name))
            return 0;
    return 1;
}

PyObject *climb_ladders(PyObject *Py_UNUSED(self), PyObject *const *given,
                               Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"clips", "int32", 1, 0},         {"ends", "int64", 1, 0},
        {"rungs", "int64", 1, 0},         {"is_rest_outside", "bool", 1, 0},
        {"totals", "uint32", 1, 0},       {"auc", "float64", 2, 1},
        {"average_precision", "float64", 2, 1}, {"n_positives", "float64", 2, 1},
        {"n_negatives", "float64", 2, 1}};
    Py_buffer weights, v[9];
    Block block;
    if (!has_arguments(n_given, 10) || open_block(given[0], &weights, &block))
        return NULL;
    if (open_arrays(given + 1, expected, 9, v)) {
        PyBuffer_Release(&weights);
        return NULL;
    }
    const Py_ssize_t n_classes = v[2].shape[0];
    const int is_fit = are_clips(&v[0], &weights) && are_ends(&v[1], v[0].shape[0], "ends") &&
                       are_ends(&v[2], v[1].shape[0], "rungs") && are_rungs(&v[2]) &&
                       has_length(&v[3], 0, n_classes, "is_rest_outside") &&
                       has_length(&v[4], 0, N_LANES, "totals") &&
                       have_shape(v + 5, 4, n_classes, expected + 5);
    if (is_fit) {
        const int64_t *ends = v[1].buf, *rungs = v[2].buf;
        const uint8_t *is_outside = v[3].buf;
        Py_BEGIN_ALLOW_THREADS
        int64_t begin = 0, first = 0;
        for (Py_ssize_t c = 0; c < n_classes; c++) {
            const Ladders own = {v[0].buf, (const int32_t *)v[0].buf + v[0].shape[0],
                                 ends + first, v[4].buf,
                                 (double *)v[5].buf + c * N_LANES, (double *)v[6].buf + c * N_LANES,
                                 (double *)v[7].buf + c * N_LANES, (double *)v[8].buf + c * N_LANES};
            climb(block, own, begin, rungs[c] - first, is_outside[c]);
            first = rungs[c];
            begin = ends[first - 1];
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&weights);
    release(v, 9);
    return is_fit ? Py_NewRef(Py_None) : NULL;
}

ON_VECTORS
static void weigh_class(Block block, const int32_t *restrict clips, const double *restrict values,
                        int64_t n, double *restrict sums, double *restrict counts)
{
    uint32_t n_drawn[N_LANES] = {0};
    double weighed[N_LANES] = {0};
    add_rows(block, clips, n, clips + n, n_drawn);
    for (int64_t pair = 0; pair < n; pair++) {
        const size_t row = (size_t)clips[pair] * N_LANES;
        const double value = values[pair];
        if (block.bytes)
            for (int i = 0; i < N_LANES; i++)
                weighed[i] += value * block.bytes[row + i];
        else
            for (int i = 0; i < N_LANES; i++)
                weighed[i] += value * block.wide[row + i];
    }
    for (int i = 0; i < N_LANES; i++) {
        sums[i] = weighed[i];
        counts[i] = n_drawn[i];
    }
}

PyObject *weigh_pairs(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {{"clips", "int32", 1, 0},
                                        {"values", "float64", 1, 0},
                                        {"ends", "int64", 1, 0},
                                        {"sums", "float64", 2, 1},
                                        {"counts", "float64", 2, 1}};
    Py_buffer weights, v[5];
    Block block;
    if (!has_arguments(n_given, 6) || open_block(given[0], &weights, &block))
        return NULL;
    if (open_arrays(given + 1, expected, 5, v)) {
        PyBuffer_Release(&weights);
        return NULL;
    }
    const Py_ssize_t n_classes = v[2].shape[0];
    const int is_fit = are_clips(&v[0], &weights) &&
                       has_length(&v[1], 0, v[0].shape[0], "values") &&
                       are_ends(&v[2], v[0].shape[0], "ends") &&
                       have_shape(v + 3, 2, n_classes, expected + 3);
    if (is_fit) {
        const int64_t *ends = v[2].buf;
        Py_BEGIN_ALLOW_THREADS
        int64_t begin = 0;
        for (Py_ssize_t c = 0; c < n_classes; begin = ends[c++])
            weigh_class(block, (const int32_t *)v[0].buf + begin, (const double *)v[1].buf + begin,
                        ends[c] - begin, (double *)v[3].buf + c * N_LANES,
                        (double *)v[4].buf + c * N_LANES);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&weights);
    release(v, 5);
    return is_fit ? Py_NewRef(Py_None) : NULL;
}
