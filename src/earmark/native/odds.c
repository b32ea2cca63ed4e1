/* The odds of being labelled and their slopes, of all classes: ../../flags/chances/labelled_odds.py
   says what the model is. Sums are made in LANES parts, in the same order on every processor. */
#include "elementary.h"
#include "loops.h"

#define LANES 8
#define BINS 128 /* that are looked at together: whole vectors */

typedef double Lanes __attribute__((vector_size(8 * LANES)));

/* What the counts of a class's bins tell at given parameters (a, b, log r); see compiled.pyi. */
typedef struct {
    double likelihood, gradient[3], information[6];
} Told;

/* The terms of some bins; what is beyond the last one is 0. */
typedef struct {
    double likelihood[BINS], rest[BINS], weight[BINS], ones[BINS], by[3][BINS];
} Terms;

WITHIN double sum_of(const double *a, const double *b)
{
    Lanes sums = {0}, x, y;
    for (int i = 0; i < BINS; i += LANES) {
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        sums += x * y;
    }
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* Write the terms of n bins. */
WITHIN void find_terms(const double *restrict labelled, const double *restrict implicit,
                       const double *restrict scores, int n, const double *restrict parameters,
                       Terms *restrict terms)
{
    const double a = parameters[0], b = parameters[1];
    const double per_present = 1.0 / (1.0 + exponential(within(parameters[2], -700.0, 700.0)));
    for (int i = 0; i < n; i++) {
        double present = 1.0 / (1.0 + exponential(within(-(a + b * scores[i]), -700.0, 700.0)));
        double chance = within(present * per_present, 1e-12, 1.0 - 1e-9), by_a = chance * (1.0 - present);
        terms->likelihood[i] =
            labelled[i] * logarithm(chance) + implicit[i] * logarithm(1.0 - chance);
        terms->rest[i] = labelled[i] / chance - implicit[i] / (1.0 - chance);
        terms->weight[i] = (labelled[i] + implicit[i]) / (chance * (1.0 - chance));
        terms->ones[i] = 1.0;
        terms->by[0][i] = by_a;
        terms->by[1][i] = by_a * scores[i];
        terms->by[2][i] = -chance * (1.0 - per_present);
    }
}

/* Add up what some bins of a class tell. */
ON_VECTORS
static void look_at(const double *labelled, const double *implicit, const double *scores, int n,
                    const double *parameters, Terms *terms, Told *told)
{
    double weighted[BINS];
    if (n < BINS)
        memset(terms, 0, sizeof *terms);
    find_terms(labelled, implicit, scores, n, parameters, terms);
    told->likelihood += sum_of(terms->likelihood, terms->ones);
    for (int i = 0, at = 0; i < 3; i++) {
        told->gradient[i] += sum_of(terms->rest, terms->by[i]);
        for (int bin = 0; bin < BINS; bin++)
            weighted[bin] = terms->by[i][bin] * terms->weight[bin];
        for (int j = 0; j <= i; j++)
            told->information[at++] += sum_of(weighted, terms->by[j]);
    }
}

static void look_at_class(const double *labelled, const double *implicit, const double *scores,
                          Py_ssize_t n_bins, const double *parameters, double *likelihood,
                          double *gradient, double *information)
{
    Terms terms;
    Told told = {0};
    for (Py_ssize_t bin = 0; bin < n_bins; bin += BINS) {
        int n = n_bins - bin < BINS ? (int)(n_bins - bin) : BINS;
        look_at(labelled + bin, implicit + bin, scores + bin, n, parameters, &terms, &told);
    }
    *likelihood = told.likelihood;
    memcpy(gradient, told.gradient, sizeof told.gradient);
    for (int i = 0, at = 0; i < 3; i++)
        for (int j = 0; j <= i; j++)
            information[3 * i + j] = information[3 * j + i] = told.information[at++];
}

PyObject *look_at_odds(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"labelled", "float64", 2, 0},   {"implicit", "float64", 2, 0}, {"scores", "float64", 2, 0},
        {"parameters", "float64", 2, 0}, {"likelihood", "float64", 1, 1},
        {"gradient", "float64", 2, 1},   {"information", "float64", 3, 1}};
    Py_buffer v[7];
    if (!has_arguments(n_given, 7) || open_arrays(given, expected, 7, v))
        return NULL;
    const Py_ssize_t n = v[0].shape[0], n_bins = v[0].shape[1];
    const struct {
        int place, axis;
        Py_ssize_t length;
    } lengths[] = {{1, 0, n}, {1, 1, n_bins}, {2, 0, n}, {2, 1, n_bins}, {3, 0, n}, {3, 1, 3},
                   {4, 0, n}, {5, 0, n},      {5, 1, 3}, {6, 0, n},      {6, 1, 3}, {6, 2, 3}};
    int is_fit = 1;
    for (size_t i = 0; is_fit && i < sizeof lengths / sizeof *lengths; i++)
        is_fit = has_length(&v[lengths[i].place], lengths[i].axis, lengths[i].length,
                            expected[lengths[i].place].name);
    if (is_fit) {
        const double *labelled = v[0].buf, *implicit = v[1].buf, *scores = v[2].buf;
        const double *parameters = v[3].buf;
        double *likelihood = v[4].buf, *gradient = v[5].buf, *information = v[6].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t c = 0; c < n; c++)
            look_at_class(labelled + c * n_bins, implicit + c * n_bins, scores + c * n_bins, n_bins,
                          parameters + 3 * c, likelihood + c, gradient + 3 * c, information + 9 * c);
        Py_END_ALLOW_THREADS
    }
    release(v, 7);
    return is_fit ? Py_NewRef(Py_None) : NULL;
}
