/* What is known of labels before anyone listens, and the sums of their chances. */
#include "loops.h"

#include <math.h>

#define N_CLUES 14
#define N_FACTS 6
#define N_BYTES 4 /* of a float32, by which scores are sorted */

/* Columns of each class or clip, one after another: those of c are [starts[c]:starts[c + 1]]. */
typedef struct {
    const int64_t *starts;
    const int32_t *columns;
} Lists;

typedef struct {
    Py_ssize_t n_clips, n_classes, n_bins;
    const float *scores, *table, *raised, *together; /* together: NULL if not counted */
    const float *low, *per_width, *mean, *per_sd, *mean_positive, *prior; /* facts [class] */
    Lists positives, ancestors, descendants, siblings, children, parents;
} Given;

typedef struct {
    uint8_t *below, *above, *beside; /* whether a class below, above or beside is labelled */
    float *lift, *rank, *log_rank, *first, *places, *pairs;
    int32_t *cells;
    uint64_t *order, *spare;
} Scratch;

/* Return where in the middles of a class's bins a score lies. */
static inline float place_of(float score, float low, float per_width, float last)
{
    float place = (score - low) * per_width - 0.5f;
    place = place > 0 ? place : 0;
    return place < last ? place : last;
}

/* Find the places of a clip's scores, and the cells of the table that are left of them. */
ON_VECTORS
static void find_cells(const float *restrict scores, int32_t n_classes, int32_t n_bins,
                       const float *restrict lows, const float *restrict per_width,
                       float *restrict places, int32_t *restrict cells)
{
    const float last = (float)(n_bins - 1);
    for (int32_t c = 0; c < n_classes; c++) {
        places[c] = place_of(scores[c], lows[c], per_width[c], last);
        int32_t left = (int32_t)places[c];
        cells[c] = c * n_bins + (left < n_bins - 2 ? left : n_bins - 2);
    }
}

/* Take two neighbours out of the table for each class: one by one, as gathering vectors are slow. */
static void take_pairs(const float *table, const int32_t *cells, int32_t n_classes, float *pairs)
{
    for (int32_t c = 0; c < n_classes; c++)
        memcpy(pairs + 2 * c, table + cells[c], 2 * sizeof *pairs);
}

/* Write the value between two neighbours; NaN for a score that is NaN. */
ON_VECTORS
static void go_between(const float *restrict scores, int32_t n_classes, int32_t n_bins,
                       const float *restrict places, const int32_t *restrict cells,
                       const float *restrict pairs, float *restrict out)
{
    for (int32_t c = 0; c < n_classes; c++) {
        float here = pairs[2 * c], next = pairs[2 * c + 1];
        double part = (double)places[c] - (cells[c] - c * n_bins);
        float value = (float)((double)here + part * (double)(next - here));
        out[c] = scores[c] == scores[c] ? value : NAN;
    }
}

/* Write the first clue of some classes, as if no class below were labelled. */
static void first_clues(const float *scores, int32_t n_classes, int32_t n_bins, const float *table,
                        const float *lows, const float *per_width, Scratch *s, float *out)
{
    find_cells(scores, n_classes, n_bins, lows, per_width, s->places, s->cells);
    take_pairs(table, s->cells, n_classes, s->pairs);
    go_between(scores, n_classes, n_bins, s->places, s->cells, s->pairs, out);
}

/* Write the first clue of one class, a class below which is labelled. */
static void raise_clue(const Given *given, const float *scores, Py_ssize_t c, Scratch *s, float *out)
{
    first_clues(scores + c, 1, (int32_t)given->n_bins, given->raised + c * given->n_bins,
                given->low + c, given->per_width + c, s, out + c);
}

/* Write the logarithm of each class's rank among the scores of a clip; equal scores in the order
   of their classes, NaN last. */
static void rank_scores(const float *scores, Py_ssize_t n_classes, Scratch *s)
{
    uint32_t starts[N_BYTES][256] = {{0}};
    for (Py_ssize_t c = 0; c < n_classes; c++) {
        uint32_t bits;
        float falling = 0.0f - scores[c];
        memcpy(&bits, &falling, sizeof bits);
        bits ^= bits >> 31 ? 0xFFFFFFFF : 0x80000000; /* now integers in the order of the floats */
        bits = falling == falling ? bits : 0xFFFFFFFF;
        s->order[c] = (uint64_t)bits << 32 | (uint64_t)c;
        for (int byte = 0; byte < N_BYTES; byte++)
            starts[byte][bits >> 8 * byte & 255]++;
    }
    for (int byte = 0; byte < N_BYTES; byte++) {
        uint32_t start = 0;
        for (int value = 0; value < 256; value++) {
            uint32_t n = starts[byte][value];
            starts[byte][value] = start;
            start += n;
        }
        for (Py_ssize_t c = 0; c < n_classes; c++)
            s->spare[starts[byte][s->order[c] >> (32 + 8 * byte) & 255]++] = s->order[c];
        uint64_t *sorted = s->spare;
        s->spare = s->order;
        s->order = sorted;
    }
    for (Py_ssize_t place = 0; place < n_classes; place++)
        s->rank[(uint32_t)s->order[place]] = s->log_rank[place];
}

static void mark(const Lists *lists, int32_t label, uint8_t *flags)
{
    for (int64_t i = lists->starts[label]; i < lists->starts[label + 1]; i++)
        flags[lists->columns[i]] = 1;
}

/* Return the best score of a class's relatives less its own, 0 without any. */
static float best_less_own(const Lists *lists, Py_ssize_t column, const float *scores)
{
    float best = -INFINITY;
    for (int64_t i = lists->starts[column]; i < lists->starts[column + 1]; i++)
        if (scores[lists->columns[i]] > best)
            best = scores[lists->columns[i]];
    return best > -INFINITY ? best - scores[column] : 0.0f;
}

/* Note what the labels of a clip say of its other classes. */
static void note_labels(const Given *given, Py_ssize_t clip, Scratch *s)
{
    Py_ssize_t n_classes = given->n_classes;
    memset(s->below, 0, 3 * n_classes);
    memset(s->lift, 0, n_classes * sizeof *s->lift);
    for (int64_t i = given->positives.starts[clip]; i < given->positives.starts[clip + 1]; i++) {
        int32_t label = given->positives.columns[i];
        mark(&given->ancestors, label, s->below);
        mark(&given->descendants, label, s->above);
        mark(&given->siblings, label, s->beside);
        if (given->together)
            for (Py_ssize_t c = 0; c < n_classes; c++)
                s->lift[c] += given->together[label * n_classes + c];
    }
}

static void fill_clip(const Given *given, Py_ssize_t clip, Scratch *s, float *out)
{
    const float *scores = given->scores + clip * given->n_classes;
    int64_t n_labels = given->positives.starts[clip + 1] - given->positives.starts[clip];
    float log_labels = (float)log(1.0 + (double)n_labels);
    float per_label = (float)(1.0 / (double)(n_labels > 1 ? n_labels : 1));
    rank_scores(scores, given->n_classes, s);
    for (Py_ssize_t c = 0; c < given->n_classes; c++, out += N_CLUES) {
        const float score = scores[c];
        if (score != score) {
            for (int clue = 0; clue < N_CLUES; clue++)
                out[clue] = NAN;
            continue;
        }
        out[0] = s->first[c];
        out[1] = score;
        out[2] = (score - given->mean[c]) * given->per_sd[c];
        out[3] = (score - given->mean_positive[c]) * given->per_sd[c];
        out[4] = s->rank[c];
        out[5] = best_less_own(&given->children, c, scores);
        out[6] = best_less_own(&given->parents, c, scores);
        out[7] = best_less_own(&given->siblings, c, scores);
        out[8] = s->below[c];
        out[9] = s->above[c];
        out[10] = s->beside[c];
        out[11] = log_labels;
        out[12] = s->lift[c] * per_label;
        out[13] = given->prior[c];
    }
}

/* Raise the first clues of all classes above a clip's labels. */
static void raise_clues(const Given *given, Py_ssize_t clip, const float *scores, Scratch *s,
                        float *first)
{
    const Lists *labels = &given->positives, *above = &given->ancestors;
    for (int64_t i = labels->starts[clip]; i < labels->starts[clip + 1]; i++) {
        int32_t label = labels->columns[i];
        for (int64_t j = above->starts[label]; j < above->starts[label + 1]; j++)
            raise_clue(given, scores, above->columns[j], s, first);
    }
}

static void fill_block(const Given *given, Py_ssize_t n_clues, Scratch *s, float *out)
{
    Py_ssize_t n_classes = given->n_classes;
    for (Py_ssize_t place = 0; n_clues > 1 && place < n_classes; place++)
        s->log_rank[place] = (float)log((double)place + 1.0);
    for (Py_ssize_t clip = 0; clip < given->n_clips; clip++, out += n_classes * n_clues) {
        const float *scores = given->scores + clip * n_classes;
        float *first = n_clues == 1 ? out : s->first;
        first_clues(scores, (int32_t)n_classes, (int32_t)given->n_bins, given->table, given->low,
                    given->per_width, s, first);
        raise_clues(given, clip, scores, s, first);
        if (n_clues > 1) {
            note_labels(given, clip, s);
            fill_clip(given, clip, s, out);
        }
    }
}

/* Take lists out of two arrays if they point nowhere but into their columns and classes. */
static int take_lists(const Py_buffer *views, Py_ssize_t n, Py_ssize_t n_classes, Lists *lists)
{
    *lists = (Lists){views[0].buf, views[1].buf};
    int is_right = views[0].shape[0] == n + 1;
    for (Py_ssize_t i = 0; is_right && i < n; i++)
        is_right = lists->starts[i] <= lists->starts[i + 1];
    is_right = is_right && lists->starts[0] >= 0 && lists->starts[n] <= views[1].shape[0];
    for (Py_ssize_t i = 0; is_right && i < views[1].shape[0]; i++)
        is_right = lists->columns[i] >= 0 && lists->columns[i] < n_classes;
    return is_right;
}

static int take_clues(const Py_buffer *v, const Expected *expected, Given *given)
{
    Py_ssize_t n_classes = v[0].shape[1], n_counted = v[4].shape[0] ? n_classes : 0;
    const float *facts = v[3].buf;
    *given = (Given){.n_clips = v[0].shape[0],
                     .n_classes = n_classes,
                     .n_bins = v[1].shape[1],
                     .scores = v[0].buf,
                     .table = v[1].buf,
                     .raised = v[2].buf,
                     .together = n_counted && v[17].shape[2] > 1 ? v[4].buf : NULL,
                     .low = facts,
                     .per_width = facts + n_classes,
                     .mean = facts + 2 * n_classes,
                     .per_sd = facts + 3 * n_classes,
                     .mean_positive = facts + 4 * n_classes,
                     .prior = facts + 5 * n_classes};
    Lists *lists[] = {&given->positives, &given->ancestors, &given->descendants,
                      &given->siblings,  &given->children,  &given->parents};
    if (!has_length(&v[1], 0, n_classes, "table") || !has_length(&v[2], 0, n_classes, "raised") ||
        !has_length(&v[2], 1, given->n_bins, "raised") || !has_length(&v[3], 0, N_FACTS, "facts") ||
        !has_length(&v[3], 1, n_classes, "facts") ||
        !has_length(&v[4], 0, n_counted, "together") || !has_length(&v[4], 1, n_counted, "together") ||
        !has_length(&v[17], 0, given->n_clips, "out") || !has_length(&v[17], 1, n_classes, "out"))
        return 0;
    if (given->n_bins < 2 || n_classes > INT32_MAX / given->n_bins || n_classes > INT32_MAX / N_CLUES) {
        PyErr_Format(PyExc_ValueError, "table: expected 2 or more bins of fewer than 2 ** 31 in all");
        return 0;
    }
    if (v[17].shape[2] != 1 && !has_length(&v[17], 2, N_CLUES, "out"))
        return 0;
    for (int i = 0; i < 6; i++)
        if (!take_lists(&v[5 + 2 * i], i ? n_classes : given->n_clips, n_classes, lists[i])) {
            PyErr_Format(PyExc_ValueError, "%s: they point beyond their columns or the classes",
                         expected[5 + 2 * i].name);
            return 0;
        }
    return 1;
}

static int open_scratch(Py_ssize_t n_classes, Scratch *s)
{
    size_t n = (size_t)n_classes + 1;
    if (!(s->order = PyMem_Malloc(n * (2 * sizeof(uint64_t) + 8 * sizeof(float) + 3)))) {
        PyErr_NoMemory();
        return 0;
    }
    s->spare = s->order + n;
    s->lift = (float *)(s->spare + n);
    s->rank = s->lift + n;
    s->log_rank = s->rank + n;
    s->first = s->log_rank + n;
    s->places = s->first + n;
    s->pairs = s->places + n;
    s->cells = (int32_t *)(s->pairs + 2 * n);
    s->below = (uint8_t *)(s->cells + n);
    s->above = s->below + n_classes;
    s->beside = s->above + n_classes;
    return 1;
}

PyObject *fill_clues(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"scores", "float32", 2, 0},         {"table", "float32", 2, 0},
        {"raised", "float32", 2, 0},         {"facts", "float32", 2, 0},
        {"together", "float32", 2, 0},       {"positive_starts", "int64", 1, 0},
        {"positives", "int32", 1, 0},        {"ancestor_starts", "int64", 1, 0},
        {"ancestors", "int32", 1, 0},        {"descendant_starts", "int64", 1, 0},
        {"descendants", "int32", 1, 0},      {"sibling_starts", "int64", 1, 0},
        {"siblings", "int32", 1, 0},         {"child_starts", "int64", 1, 0},
        {"children", "int32", 1, 0},         {"parent_starts", "int64", 1, 0},
        {"parents", "int32", 1, 0},          {"out", "float32", 3, 1}};
    Py_buffer v[18];
    Given clues;
    Scratch scratch;
    if (!has_arguments(n_given, 18) || open_arrays(given, expected, 18, v))
        return NULL;
    int is_done = take_clues(v, expected, &clues) && open_scratch(clues.n_classes, &scratch);
    if (is_done) {
        uint64_t *memory = scratch.order;
        Py_BEGIN_ALLOW_THREADS
        fill_block(&clues, v[17].shape[2], &scratch, v[17].buf);
        Py_END_ALLOW_THREADS
        PyMem_Free(memory);
    }
    release(v, 18);
    return is_done ? Py_NewRef(Py_None) : NULL;
}
