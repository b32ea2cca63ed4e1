/* The sums of chances, and the likeliest labels, as many as there is room for. */
#include "loops.h"

#include <math.h>

#define CLASSES_AT_ONCE 16
#define ROUND 12582912.0f /* 1.5 * 2 ** 23: to add it rounds a float to a whole number */

typedef struct {
    Py_ssize_t n_clips;
    int32_t n_classes, n_steps;
    int64_t first_row;
    double lowest, per_step;
    const float *scores, *log_odds;
    Explicit explicit;
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

/* Find in which of its class's steps each label counts, or -1; return the highest. */
ON_VECTORS
static int32_t find_steps(const float *restrict log_odds, int32_t n_classes, int32_t n_steps,
                          double lowest, double per_step, int16_t *restrict steps)
{
    int32_t highest = -1;
    for (int32_t c = 0; c < n_classes; c++) {
        double odds = log_odds[c];
        odds = odds > lowest ? odds : lowest;
        odds = odds < -lowest ? odds : -lowest;
        int32_t step = (int32_t)((odds - lowest) * per_step);
        step = step < n_steps - 1 ? step : n_steps - 1;
        step = fabsf(log_odds[c]) < INFINITY ? step : -1;
        steps[c] = (int16_t)step;
        highest = step > highest ? step : highest;
    }
    return highest;
}

/* Add the chances of a clip's labels to the sums. */
ON_VECTORS
static void add_clip(const float *restrict log_odds, int32_t n_classes, double *restrict n_expected,
                     double *restrict doubt)
{
    for (int32_t c = 0; c < n_classes; c++) {
        float odds_against = exponential(-log_odds[c]);
        float chance = 1.0f / (1.0f + odds_against);
        float both = chance * (chance * odds_against);
        int is_counted = fabsf(log_odds[c]) < INFINITY;
        n_expected[c] += is_counted ? (double)chance : 0.0;
        doubt[c] += is_counted ? (double)both : 0.0;
    }
}

/* Make room: keep the labels of the highest steps, half of the places at most. */
static void raise_lowest(Likeliest *kept, int32_t n_steps, double lowest, double per_step,
                         int32_t *n_in, int16_t *steps)
{
    int64_t n = kept->state[1], n_kept = 0, n_above = 0;
    int32_t first = n_steps;
    memset(n_in, 0, n_steps * sizeof *n_in);
    for (int64_t i = 0; i < n; i++) {
        find_steps(kept->log_odds + i, 1, n_steps, lowest, per_step, steps);
        n_in[*steps]++;
    }
    while (first > 0 && 2 * (n_above + n_in[first - 1]) <= kept->n_places)
        n_above += n_in[--first];
    for (int64_t i = 0; i < n; i++) {
        find_steps(kept->log_odds + i, 1, n_steps, lowest, per_step, steps);
        kept->rows[n_kept] = kept->rows[i];
        kept->columns[n_kept] = kept->columns[i];
        kept->logits[n_kept] = kept->logits[i];
        kept->log_odds[n_kept] = kept->log_odds[i];
        n_kept += *steps >= first;
    }
    kept->state[0] = first;
    kept->state[1] = n_kept;
}

static inline void count_clip(const int16_t *steps, int32_t n, int32_t n_steps, int32_t *counts)
{
    for (int32_t c = 0; c < n; c++)
        if (steps[c] >= 0)
            counts[c * n_steps + steps[c]]++;
}

/* Count the labels of a block's clips by class and step: a few classes at a time, so that their
   counts stay in the fastest cache. */
static void count_steps(const Looked *looked, const int16_t *steps, int32_t *counts)
{
    const int32_t n_classes = looked->n_classes, n_steps = looked->n_steps;
    for (int32_t first = 0; first < n_classes; first += CLASSES_AT_ONCE) {
        const int32_t n_left = n_classes - first;
        const int16_t *own = steps + first;
        for (Py_ssize_t clip = 0; clip < looked->n_clips; clip++, own += n_classes)
            if (n_left >= CLASSES_AT_ONCE) /* a number that the compiler knows */
                count_clip(own, CLASSES_AT_ONCE, n_steps, counts + (Py_ssize_t)first * n_steps);
            else
                count_clip(own, n_left, n_steps, counts + (Py_ssize_t)first * n_steps);
    }
}

/* Keep a clip's labels from the lowest step on; there is room for all. */
static void keep_clip(const Looked *looked, Py_ssize_t clip, const int16_t *steps, Likeliest *kept)
{
    const float *scores = looked->scores + clip * looked->n_classes;
    const float *log_odds = looked->log_odds + clip * looked->n_classes;
    for (int32_t c = 0; c < looked->n_classes; c++)
        if (steps[c] >= kept->state[0]) {
            int64_t place = kept->state[1]++;
            kept->rows[place] = looked->first_row + clip;
            kept->columns[place] = c;
            kept->logits[place] = scores[c];
            kept->log_odds[place] = log_odds[c];
        }
}

static void add_block(const Looked *looked, Totals *totals, Likeliest *kept, float *odds,
                      int32_t *n_in, int16_t *block)
{
    int32_t n_classes = looked->n_classes, n_steps = looked->n_steps;
    for (Py_ssize_t clip = 0; clip < looked->n_clips; clip++) {
        int16_t *steps = block + clip * n_classes, one;
        memcpy(odds, looked->log_odds + clip * n_classes, n_classes * sizeof *odds);
        for (int64_t i = looked->explicit.starts[clip]; i < looked->explicit.starts[clip + 1]; i++)
            odds[looked->explicit.columns[i]] = NAN;
        int32_t highest =
            find_steps(odds, n_classes, n_steps, looked->lowest, looked->per_step, steps);
        add_clip(odds, n_classes, totals->n_expected, totals->doubt);
        if (highest < 0 || highest < kept->state[0])
            continue;
        if (kept->state[1] + n_classes > kept->n_places)
            raise_lowest(kept, n_steps, looked->lowest, looked->per_step, n_in, &one);
        keep_clip(looked, clip, steps, kept);
    }
    count_steps(looked, block, totals->counts);
}

/* Tell whether all places that are kept are there, with room for half of them and a clip more. */
static int take_likeliest(const Py_buffer *v, Py_ssize_t n_classes, Likeliest *kept)
{
    *kept = (Likeliest){v[0].buf, v[1].buf, v[2].buf, v[3].buf, v[4].buf, v[1].shape[0]};
    if (!has_length(&v[0], 0, 2, "state") || !has_length(&v[2], 0, kept->n_places, "columns") ||
        !has_length(&v[3], 0, kept->n_places, "logits") ||
        !has_length(&v[4], 0, kept->n_places, "kept_odds"))
        return 0;
    if (kept->state[0] >= 0 && kept->state[1] >= 0 && kept->state[1] <= kept->n_places &&
        kept->n_places >= 2 * n_classes)
        return 1;
    PyErr_Format(PyExc_ValueError, "state: expected labels that fit in %zd places, twice as many as "
                 "classes or more", kept->n_places);
    return 0;
}

PyObject *add_chances(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"scores", "float32", 2, 0},   {"log_odds", "float32", 2, 0}, {"starts", "int64", 1, 0},
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
    char *scratch = NULL;
    Likeliest kept;
    Looked looked;
    Totals totals = {v[4].buf, v[5].buf, v[6].buf};
    int is_done = has_length(&v[1], 0, n_clips, "log_odds") &&
                  has_length(&v[1], 1, n_classes, "log_odds") &&
                  has_length(&v[4], 0, n_classes, "counts") &&
                  has_length(&v[5], 0, n_classes, "n_expected") &&
                  has_length(&v[6], 0, n_classes, "doubt") &&
                  take_explicit(&v[2], &v[3], n_clips, n_classes, &looked.explicit) &&
                  take_likeliest(&v[7], n_classes, &kept);
    if (is_done && !(lowest < 0 && -2 * lowest * per_step < INT32_MAX && per_step > 0 &&
                     n_steps > 0 && n_steps <= INT16_MAX && n_classes < INT32_MAX)) {
        PyErr_SetString(PyExc_ValueError, "lowest, per_step: expected steps up from below 0");
        is_done = 0;
    }
    size_t n_odds = n_classes * sizeof(float), n_in = n_steps * sizeof(int32_t);
    size_t n_block = n_clips * n_classes * sizeof(int16_t);
    if (is_done && !(scratch = PyMem_Malloc(n_odds + n_in + n_block))) {
        PyErr_NoMemory();
        is_done = 0;
    }
    if (is_done) {
        looked = (Looked){n_clips,   (int32_t)n_classes, (int32_t)n_steps, first_row, lowest,
                          per_step,  v[0].buf,           v[1].buf,         looked.explicit};
        Py_BEGIN_ALLOW_THREADS
        add_block(&looked, &totals, &kept, (float *)scratch, (int32_t *)(scratch + n_odds),
                  (int16_t *)(scratch + n_odds + n_in));
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(scratch);
    release(v, 12);
    return is_done ? Py_NewRef(Py_None) : NULL;
}
