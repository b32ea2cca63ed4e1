/* Weighted binary cross-entropy of every label, and its slope, in one pass: see compiled.pyi.

   Of a logit z and its target t, with e = exp(-|z|), the loss is (1 - t) z - min(z, 0) + log(1 + e);
   its slope is the sigmoid, 1 / (1 + e) or e / (1 + e), less the target. What is no number stays so. */
#include "layers.h"

#include <math.h>

#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* exp(x) of a number from -87 to 0: 2^n exp(r), and exp(r) is its series, r being half of log(2) at
   most. What is left out is below 1e-8. */
INLINE float exponential(float x)
{
    const float to_whole = 12582912; /* 1.5 2^23: what is added to it is rounded */
    const float shifted = x * 1.44269504f + to_whole, n = shifted - to_whole;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* log(2) in two parts */
    const float series =
        1 + r * (1 + r * (1.f / 2 + r * (1.f / 6 + r * (1.f / 24 + r * (1.f / 120 + r * (1.f / 720 + r * (1.f / 5040)))))));
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3F800000;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power * series;
}

/* log(1 + e) of a number from 0 to 1: the area tangent's series at s = e / (2 + e). What is left out
   is below 2e-8 of it. */
INLINE float logarithm_beyond_one(float e)
{
    const float s = e / (2 + e), q = s * s;
    const float series =
        1 + q * (1.f / 3 + q * (1.f / 5 + q * (1.f / 7 + q * (1.f / 9 + q * (1.f / 11 + q * (1.f / 13))))));
    return 2 * s * series;
}

INLINE void measure(float z, float target, float weight, float *entry, float *slope)
{
    const float below = -fabsf(z), e = exponential(below < -87 ? -87 : below);
    const float low = z < 0 ? z : 0, share = 1 / (1 + e);
    *entry = weight * ((1 - target) * z - low + logarithm_beyond_one(e));
    *slope = weight * ((z < 0 ? e * share : share) - target);
}

/* Labels whose mask is made into numbers at once, so that the loop over labels has one width. */
#define BLOCK 512

/* Weights are true and false where is_kept is given, and else numbers. */
ON_VECTORS static void measure_labels(Py_ssize_t n, const float *restrict z, const float *restrict targets,
                                      const uint8_t *restrict is_kept, const float *restrict weights,
                                      float *restrict entries, float *restrict slopes)
{
    float kept[BLOCK];
    for (Py_ssize_t first = 0; first < n; first += BLOCK) {
        const Py_ssize_t end = n - first < BLOCK ? n : first + BLOCK;
        if (is_kept)
            for (Py_ssize_t i = first; i < end; i++)
                kept[i - first] = is_kept[i];
        const float *own = is_kept ? kept : weights + first;
        for (Py_ssize_t i = first; i < end; i++)
            measure(z[i], targets[i], own[i - first], &entries[i], &slopes[i]);
    }
}

enum { LOGITS, TARGETS, ENTRIES, SLOPES, WEIGHTS, N_ARRAYS };
static const Expected EXPECTED[] = {{"logits", "float32", 2, 0},
                                    {"targets", "float32", 2, 0},
                                    {"entries", "float32", 2, 1},
                                    {"slopes", "float32", 2, 1}};
static const Expected IS_KEPT = {"weights", "bool", 2, 0}, WEIGHED = {"weights", "float32", 2, 0};

/* Whether an array has the labels of the logits, for every student or for all of them. */
static int has_labels(const Py_buffer *view, const Py_buffer *logits, int may_be_shared, const char *name)
{
    return has_length(view, 1, logits->shape[1], name) &&
           ((may_be_shared && view->shape[0] == 1) || has_length(view, 0, logits->shape[0], name));
}

/* Where the values of a student begin. */
static Py_ssize_t start(const Py_buffer *view, Py_ssize_t student)
{
    return view->shape[0] == 1 ? 0 : student * view->shape[1];
}

static void measure_students(const Py_buffer *views)
{
    const Py_buffer *weights = &views[WEIGHTS];
    const int is_mask = weights->itemsize == 1;
    for (Py_ssize_t student = 0; student < views[LOGITS].shape[0]; student++) {
        const Py_ssize_t own = start(&views[LOGITS], student), weighed = start(weights, student);
        measure_labels(views[LOGITS].shape[1], (const float *)views[LOGITS].buf + own,
                       (const float *)views[TARGETS].buf + start(&views[TARGETS], student),
                       is_mask ? (const uint8_t *)weights->buf + weighed : NULL,
                       is_mask ? NULL : (const float *)weights->buf + weighed,
                       (float *)views[ENTRIES].buf + own, (float *)views[SLOPES].buf + own);
    }
}

PyObject *cross_entropy(PyObject *self, PyObject *const *given, Py_ssize_t n_given)
{
    (void)self;
    Py_buffer views[N_ARRAYS];
    if (!has_arguments(n_given, N_ARRAYS) || PyObject_GetBuffer(given[WEIGHTS], &views[WEIGHTS], PyBUF_RECORDS_RO))
        return NULL;
    const Py_buffer *weights = &views[WEIGHTS], *logits = &views[LOGITS];
    if (check_array(weights, weights->itemsize == 1 ? &IS_KEPT : &WEIGHED) ||
        open_arrays(given, EXPECTED, WEIGHTS, views)) {
        PyBuffer_Release(&views[WEIGHTS]);
        return NULL;
    }
    const int is_good = has_labels(&views[TARGETS], logits, 1, "targets") && has_labels(weights, logits, 1, "weights") &&
                        has_labels(&views[ENTRIES], logits, 0, "entries") &&
                        has_labels(&views[SLOPES], logits, 0, "slopes");
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        measure_students(views);
        Py_END_ALLOW_THREADS
    }
    release(views, N_ARRAYS);
    return is_good ? Py_NewRef(Py_None) : NULL;
}
