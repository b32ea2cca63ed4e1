/* The sums of chances, and the likeliest labels, as many as there is room for. */
#include "loops.h"

#include <math.h>

#define ROUND 12582912.0f /* 1.5 * 2 ** 23: to add it rounds a float to a whole number */

typedef struct {
    Py_ssize_t n_clips;
    int32_t n_classes, n_steps;
    int64_t first_row;
    float lowest, highest, per_step; /* whole numbers of steps; a power of 2 */
    const float *scores, *log_odds;
} Looked;

typedef struct {
    int32_t *counts;
    double *n_expected, *doubt;
} Totals;

/* Labels that are kept: those from the step state[0] on, of which there are state[1]. */
typedef struct {
    int64_t *state, *rows;
    int32_t *columns;
    float *logits, *log_odds;
    Py_ssize_t n_places;
} Likeliest;

/* Return the exponential, to two units of its last place, of what is between -87 and 87. */
static inline float exponential(float x)
{
    x = x > -87.0f ? x : -87.0f;
    x = x < 87.0f ? x : 87.0f;
    float rounded = x * 1.44269504f + ROUND;
    int32_t twos, bits;
    memcpy(&twos, &rounded, sizeof twos);
    rounded -= ROUND;
    x = (x - rounded * 0.693359375f) + rounded * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * x + 1.3981999507e-3f;
    sum = sum * x + 8.3334519073e-3f;
    sum = sum * x + 4.1665795894e-2f;
    sum = sum * x + 1.6666665459e-1f;
    sum = sum * x + 5.0000001201e-1f;
    sum = sum * (x * x) + x + 1.0f;
    memcpy(&bits, &sum, sizeof bits);
    bits += (int32_t)((uint32_t)twos << 23);
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* Return the step of log-odds, exactly: to multiply by a power of 2 does not round. -1 where they are
   not finite. */
static inline int32_t step_of(float log_odds, float per_step, float lowest, float highest)
{
    float place = log_odds * per_step;
    place = place > lowest ? place : lowest;
    place = place < highest ? place : highest;
    int32_t step = (int32_t)place;
    step = (float)step > place ? step - 1 : step;
    return fabsf(log_odds) < INFINITY ? step - (int32_t)lowest : -1;
}

/* Write class * n_steps + step of a clip's labels, return the highest step. Labels that do not count
   are put into step 0, and noted. */
ON_VECTORS
static int32_t find_codes(const float *restrict log_odds, int32_t n_classes, int32_t n_steps,
                          float per_step, float lowest, float highest, int32_t *restrict codes,
                          int32_t *restrict n_none)
{
    int32_t top = -1;
    for (int32_t c = 0; c < n_classes; c++) {
        int32_t step = step_of(log_odds[c], per_step, lowest, highest);
        top = step > top ? step : top;
        codes[c] = c * n_steps + (step > 0 ? step : 0);
        n_none[c] += step < 0;
    }
    return top;
}

/* Add the chances of a clip's labels to sums, and chance * (1 - chance); 0 where there is none. */
ON_VECTORS
static void add_clip(const float *restrict log_odds, int32_t n_classes, double *restrict n_expected,
                     double *restrict doubt)
{
    for (int32_t c = 0; c < n_classes; c++) {
        float odds_against = exponential(-log_odds[c]);
        float chance = 1.0f / (1.0f + odds_against);
        chance = fabsf(log_odds[c]) < INFINITY ? chance : 0.0f;
        n_expected[c] += (double)chance;
        doubt[c] += (double)(chance * (chance * odds_against));
    }
}

/* Make room: keep the labels of the highest steps, half of the places at most. */
static void raise_lowest(const Looked *looked, Likeliest *kept, int32_t *n_in)
{
    int64_t n = kept->state[1], n_kept = 0, n_above = 0;
    int32_t first = looked->n_steps;
    memset(n_in, 0, looked->n_steps * sizeof *n_in);
    for (int64_t i = 0; i < n; i++) {
        int32_t step = step_of(kept->log_odds[i], looked->per_step, looked->lowest, looked->highest);
        n_in[step > 0 ? step : 0]++; /* whatever was kept, not beyond the steps */
    }
    while (first > 0 && 2 * (n_above + n_in[first - 1]) <= kept->n_places)
        n_above += n_in[--first];
    for (int64_t i = 0; i < n; i++) {
        kept->rows[n_kept] = kept->rows[i];
        kept->columns[n_kept] = kept->columns[i];
        kept->logits[n_kept] = kept->logits[i];
        kept->log_odds[n_kept] = kept->log_odds[i];
        n_kept += step_of(kept->log_odds[i], looked->per_step, looked->lowest, looked->highest) >= first;
    }
    kept->state[0] = first;
    kept->state[1] = n_kept;
}

/* Return the lowest log-odds of the lowest step that is kept. */
static float limit_of(const Looked *looked, const Likeliest *kept)
{
    if (kept->state[0] == 0 || kept->state[0] >= looked->n_steps) /* the outer steps have no end */
        return kept->state[0] ? INFINITY : -INFINITY;
    return (looked->lowest + (float)kept->state[0]) / looked->per_step;
}

/* Write 1 + class of a clip's labels that are likely enough, 0 for others. */
ON_VECTORS
static void find_likely(const float *restrict log_odds, int32_t n_classes, float limit,
                        int32_t *restrict likely)
{
    for (int32_t c = 0; c < n_classes; c++)
        likely[c] = (log_odds[c] >= limit) & (fabsf(log_odds[c]) < INFINITY) ? c + 1 : 0;
}

/* Keep the labels of a clip that are likely enough once there is room for them. */
static void keep_clip(const Looked *looked, Py_ssize_t clip, Likeliest *kept, int32_t *n_in,
                      int32_t *likely, int32_t *hits)
{
    const float *log_odds = looked->log_odds + clip * looked->n_classes;
    float limit = limit_of(looked, kept);
    find_likely(log_odds, looked->n_classes, limit, likely);
    int32_t n_hits = squeeze(likely, looked->n_classes, hits);
    for (int32_t hit = 0; hit < n_hits; hit++) {
        int32_t c = hits[hit] - 1;
        if (log_odds[c] < limit)
            continue;
        if (kept->state[1] == kept->n_places) {
            raise_lowest(looked, kept, n_in);
            limit = limit_of(looked, kept);
            if (log_odds[c] < limit)
                continue;
        }
        int64_t place = kept->state[1]++;
        kept->rows[place] = looked->first_row + clip;
        kept->columns[place] = c;
        kept->logits[place] = looked->scores[clip * looked->n_classes + c];
        kept->log_odds[place] = log_odds[c];
    }
}

WITHIN void count_strip(const int32_t *codes, int32_t n_clips, int32_t n_classes, int32_t n,
                        int32_t *counts)
{
    for (int32_t clip = 0; clip < n_clips; clip++, codes += n_classes)
        for (int32_t c = 0; c < n; c++)
            counts[codes[c]]++;
}

/* Count codes of clips: a strip of classes at a time, so that their counts stay in the fastest cache. */
static void count_codes(const int32_t *codes, int32_t n_clips, int32_t n_classes, int32_t *counts)
{
    int32_t first = 0;
    for (; first + STRIP <= n_classes; first += STRIP)
        count_strip(codes + first, n_clips, n_classes, STRIP, counts);
    count_strip(codes + first, n_clips, n_classes, n_classes - first, counts);
}

static void add_block(const Looked *looked, Totals *totals, Likeliest *kept, int32_t *scratch)
{
    const int32_t n_classes = looked->n_classes, n_steps = looked->n_steps;
    int32_t *n_in = scratch, *n_none = n_in + n_steps, *likely = n_none + n_classes;
    int32_t *hits = likely + n_classes, *codes = hits + n_classes + STRIP;
    memset(n_none, 0, n_classes * sizeof *n_none);
    for (Py_ssize_t first = 0; first < looked->n_clips; first += CLIPS) {
        int32_t n_clips = looked->n_clips - first < CLIPS ? (int32_t)(looked->n_clips - first) : CLIPS;
        for (int32_t i = 0; i < n_clips; i++) {
            const float *log_odds = looked->log_odds + (first + i) * n_classes;
            int32_t top = find_codes(log_odds, n_classes, n_steps, looked->per_step, looked->lowest,
                                     looked->highest, codes + (Py_ssize_t)i * n_classes, n_none);
            add_clip(log_odds, n_classes, totals->n_expected, totals->doubt);
            if (top >= kept->state[0])
                keep_clip(looked, first + i, kept, n_in, likely, hits);
        }
        count_codes(codes, n_clips, n_classes, totals->counts);
    }
    for (int32_t c = 0; c < n_classes; c++)
        totals->counts[(Py_ssize_t)c * n_steps] -= n_none[c];
}

/* Labels that somebody was asked about have no chance to be missing. */
static void leave_out(Explicit explicit, Py_ssize_t n_clips, Py_ssize_t n_classes, float *log_odds)
{
    for (Py_ssize_t clip = 0; clip < n_clips; clip++)
        for (int64_t i = explicit.starts[clip]; i < explicit.starts[clip + 1]; i++)
            log_odds[clip * n_classes + explicit.columns[i]] = NAN;
}

/* Tell whether all places that are kept are there. */
static int take_likeliest(const Py_buffer *v, Likeliest *kept)
{
    *kept = (Likeliest){v[0].buf, v[1].buf, v[2].buf, v[3].buf, v[4].buf, v[1].shape[0]};
    if (!has_length(&v[0], 0, 2, "state") || !has_length(&v[2], 0, kept->n_places, "columns") ||
        !has_length(&v[3], 0, kept->n_places, "logits") ||
        !has_length(&v[4], 0, kept->n_places, "kept_odds"))
        return 0;
    if (kept->state[0] >= 0 && kept->state[1] >= 0 && kept->state[1] <= kept->n_places &&
        kept->n_places > 0)
        return 1;
    PyErr_Format(PyExc_ValueError, "state: expected labels that fit in %zd places, one or more",
                 kept->n_places);
    return 0;
}

/* Tell whether steps are found without rounding: see step_of. */
static int are_steps(double lowest, double per_step, Py_ssize_t n_steps, Py_ssize_t n_classes)
{
    int exponent;
    return lowest < 0 && frexp(per_step, &exponent) == 0.5 && per_step < 1 << 20 &&
           lowest * per_step > -(1 << 20) && lowest * per_step == floor(lowest * per_step) &&
           n_steps > 0 && n_steps < 1 << 20 && n_classes < INT32_MAX / n_steps;
}

PyObject *add_chances(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"scores", "float32", 2, 0},   {"log_odds", "float32", 2, 1}, {"starts", "int64", 1, 0},
        {"explicit", "int32", 1, 0},   {"counts", "int32", 2, 1},     {"n_expected", "float64", 1, 1},
        {"doubt", "float64", 1, 1},    {"state", "int64", 1, 1},      {"rows", "int64", 1, 1},
        {"columns", "int32", 1, 1},    {"logits", "float32", 1, 1},   {"kept_odds", "float32", 1, 1}};
    Py_buffer v[12];
    if (!has_arguments(n_given, 15))
        return NULL;
    long long first_row = PyLong_AsLongLong(given[12]);
    double lowest = PyFloat_AsDouble(given[13]), per_step = PyFloat_AsDouble(given[14]);
    if (PyErr_Occurred() || open_arrays(given, expected, 12, v))
        return NULL;
    Py_ssize_t n_clips = v[0].shape[0], n_classes = v[0].shape[1], n_steps = v[4].shape[1];
    size_t n_scratch = n_steps + STRIP + (size_t)(CLIPS + 3) * n_classes;
    int32_t *scratch = NULL;
    Likeliest kept;
    Explicit explicit;
    Totals totals = {v[4].buf, v[5].buf, v[6].buf};
    int is_done = has_length(&v[1], 0, n_clips, "log_odds") &&
                  has_length(&v[1], 1, n_classes, "log_odds") &&
                  has_length(&v[4], 0, n_classes, "counts") &&
                  has_length(&v[5], 0, n_classes, "n_expected") &&
                  has_length(&v[6], 0, n_classes, "doubt") &&
                  take_explicit(&v[2], &v[3], n_clips, n_classes, &explicit) &&
                  take_likeliest(&v[7], &kept);
    if (is_done && !are_steps(lowest, per_step, n_steps, n_classes)) {
        PyErr_SetString(PyExc_ValueError, "lowest, per_step: expected steps up from below 0, a power "
                                          "of 2 to each 1");
        is_done = 0;
    }
    if (is_done && !(scratch = PyMem_Malloc(n_scratch * sizeof *scratch))) {
        PyErr_NoMemory();
        is_done = 0;
    }
    if (is_done) {
        float first = (float)(lowest * per_step);
        Looked looked = {n_clips, (int32_t)n_classes,           (int32_t)n_steps, first_row,
                         first,   first + (float)(n_steps - 1), (float)per_step,  v[0].buf,
                         v[1].buf};
        Py_BEGIN_ALLOW_THREADS
        leave_out(explicit, n_clips, n_classes, v[1].buf);
        add_block(&looked, &totals, &kept, scratch);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(scratch);
    release(v, 12);
    return is_done ? Py_NewRef(Py_None) : NULL;
}
