/* Newton's method for a mixture of many classes: ../../flags/mixture.py says what the model is.

   A class's bins stay in the fastest cache; sums are made in LANES parts, in the same order on every
   processor. */
#include "loops.h"

#include <math.h>

#define LANES 8
#define MOST_BINS 128 /* whole vectors */
#define MOST_PARAMETERS 16
#define ROUND 6755399441055744.0 /* 1.5 * 2 ** 52: to add it rounds a double to a whole number */
#define LEAST_EXPECTED 1e-9

typedef struct {
    Py_ssize_t n_classes;
    int n_bins, n_used, n_curve, n_parameters; /* bins of shape and depth, and of the others */
    const double *counts, *weights, *alike, *basis, *shape, *depth, *centre, *precision;
} Model;

/* What a class's parameters make expect in the bins of its tail, and the log posterior. */
typedef struct {
    double missing[MOST_BINS], negatives[MOST_BINS], expected[MOST_BINS];
    double depth, objective;
} Expectation;

/* Return the exponential, to two units of its last place, of what is between -700 and 700. */
static inline double exponential(double x)
{
    double rounded = x * 1.4426950408889634 + ROUND, sum = 1.0 / 6227020800.0;
    int64_t twos, bits;
    memcpy(&twos, &rounded, sizeof twos);
    rounded -= ROUND;
    x = (x - rounded * 6.93147180369123816490e-01) - rounded * 1.90821492927058770002e-10;
    sum = sum * x + 1.0 / 479001600.0;
    sum = sum * x + 1.0 / 39916800.0;
    sum = sum * x + 1.0 / 3628800.0;
    sum = sum * x + 1.0 / 362880.0;
    sum = sum * x + 1.0 / 40320.0;
    sum = sum * x + 1.0 / 5040.0;
    sum = sum * x + 1.0 / 720.0;
    sum = sum * x + 1.0 / 120.0;
    sum = sum * x + 1.0 / 24.0;
    sum = sum * x + 1.0 / 6.0;
    sum = sum * x + 0.5;
    sum = sum * x + 1.0;
    sum = sum * x + 1.0;
    memcpy(&bits, &sum, sizeof bits);
    bits += (int64_t)((uint64_t)twos << 52);
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* Return the logarithm, to two units of its last place, of a normal number above 0. */
static inline double logarithm(double x)
{
    uint64_t bits, twos;
    double two, part;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x3FF0000000000000 - 0x3FE6A09E667F3BCD; /* the part is around 1, not from 1 to 2 */
    twos = (bits >> 52) + (0x4338000000000000 - 1023);
    bits = (bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD;
    memcpy(&two, &twos, sizeof two);
    memcpy(&part, &bits, sizeof part);
    two -= ROUND;
    double s = (part - 1.0) / (part + 1.0), z = s * s, sum = 2.0 / 25.0;
    sum = sum * z + 2.0 / 23.0;
    sum = sum * z + 2.0 / 21.0;
    sum = sum * z + 2.0 / 19.0;
    sum = sum * z + 2.0 / 17.0;
    sum = sum * z + 2.0 / 15.0;
    sum = sum * z + 2.0 / 13.0;
    sum = sum * z + 2.0 / 11.0;
    sum = sum * z + 2.0 / 9.0;
    sum = sum * z + 2.0 / 7.0;
    sum = sum * z + 2.0 / 5.0;
    sum = sum * z + 2.0 / 3.0;
    sum = 2.0 * s + s * z * sum;
    return two * 6.93147180369123816490e-01 + (sum + two * 1.90821492927058770002e-10);
}

static inline double within(double x, double low, double high)
{
    x = x > low ? x : low;
    return x < high ? x : high;
}

typedef double Lanes __attribute__((vector_size(8 * LANES)));

/* Return how many places n numbers take in whole vectors. */
static inline int padded(int n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* Return the sum of products, always added up in the same order, of n numbers in whole vectors. */
static inline double dot(const double *a, const double *b, int n)
{
    Lanes sum = {0}, x, y;
    for (int i = 0; i < n; i += LANES) {
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        sum += x * y;
    }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* Put zeros after n numbers, up to the end of a vector. */
static inline void pad(double *numbers, int n)
{
    for (int i = n; i < padded(n); i++)
        numbers[i] = 0.0;
}

/* Evaluate the parameters of class c, whose tail begins at the bin `first` of those used. */
ON_VECTORS
static void evaluate(const Model *model, Py_ssize_t c, int first, const double *parameters,
                     Expectation *out)
{
    const int n_bins = model->n_bins, n_curve = model->n_curve, n = model->n_used - first;
    const Py_ssize_t at = c * model->n_used + first;
    const double *depth = model->depth + c * n_bins, *shape = model->shape + c * n_bins;
    const double *counts = model->counts + at, *alike = model->alike + at;
    const double *weights = model->weights + at, tilt = parameters[n_curve];
    double tilted[MOST_BINS], curve[MOST_BINS], terms[MOST_BINS], by_bin[MOST_BINS];
    for (int b = 0; b < n_bins; b++)
        tilted[b] = shape[b] * exponential(within(-tilt * depth[b], -30.0, 30.0));
    pad(tilted, n_bins);
    for (int b = 0; b < MOST_BINS; b++)
        by_bin[b] = 1.0;
    const double per_total = 1.0 / dot(tilted, by_bin, padded(n_bins));
    const double n_missing = exponential(within(parameters[n_curve + 1], -30.0, 30.0));
    memcpy(by_bin, depth, n_bins * sizeof *by_bin);
    out->depth = dot(tilted, by_bin, padded(n_bins)) * per_total;
    for (int b = 0; b < n; b++)
        curve[b] = 0.0;
    for (int k = 0; k < n_curve; k++) {
        const double *basis = model->basis + (c * n_curve + k) * model->n_used + first;
        for (int b = 0; b < n; b++)
            curve[b] += parameters[k] * basis[b];
    }
    for (int b = 0; b < n; b++) {
        out->missing[b] = n_missing * (tilted[n_bins - n + b] * per_total);
        out->negatives[b] = exponential(within(curve[b], -40.0, 30.0));
        out->expected[b] =
            out->missing[b] + out->negatives[b] + n_missing * alike[b] + LEAST_EXPECTED;
        terms[b] = counts[b] * logarithm(out->expected[b]) - out->expected[b];
        by_bin[b] = weights[b];
    }
    pad(terms, n);
    pad(by_bin, n);
    double doubt = 0;
    for (int p = 0; p < model->n_parameters; p++) {
        double apart = parameters[p] - model->centre[c * model->n_parameters + p];
        doubt += model->precision[c * model->n_parameters + p] * apart * apart;
    }
    out->objective = dot(by_bin, terms, padded(n)) - doubt / 2;
}

/* Write how the expected counts change [parameter, bin], and Fisher's information. */
ON_VECTORS
static void inform(const Model *model, Py_ssize_t c, int first, const Expectation *now,
                   double (*slopes)[MOST_BINS], double *information)
{
    const int n_curve = model->n_curve, n = model->n_parameters, n_tail = model->n_used - first;
    const double *depth = model->depth + (c + 1) * model->n_bins - n_tail;
    const double *weights = model->weights + c * model->n_used + first;
    double weighted[MOST_BINS], sureness[MOST_BINS];
    for (int k = 0; k < n_curve; k++) {
        const double *basis = model->basis + (c * n_curve + k) * model->n_used + first;
        for (int b = 0; b < n_tail; b++)
            slopes[k][b] = basis[b] * now->negatives[b];
    }
    for (int b = 0; b < n_tail; b++) {
        slopes[n_curve][b] = now->missing[b] * (now->depth - depth[b]);
        slopes[n_curve + 1][b] = now->expected[b] - now->negatives[b];
        sureness[b] = weights[b] / now->expected[b];
    }
    for (int i = 0; i < n; i++) {
        pad(slopes[i], n_tail);
        for (int b = 0; b < n_tail; b++)
            weighted[b] = slopes[i][b] * sureness[b];
        pad(weighted, n_tail);
        for (int j = 0; j <= i; j++)
            information[i * n + j] = information[j * n + i] =
                dot(weighted, slopes[j], padded(n_tail)) +
                (i == j) * model->precision[c * n + i];
    }
}

ON_VECTORS
static void find_gradient(const Model *model, Py_ssize_t c, int first, const Expectation *now,
                          double (*slopes)[MOST_BINS], const double *parameters, double *gradient)
{
    const int n = model->n_parameters, n_tail = model->n_used - first;
    const double *counts = model->counts + c * model->n_used + first;
    const double *weights = model->weights + c * model->n_used + first;
    double rest[MOST_BINS];
    for (int b = 0; b < n_tail; b++)
        rest[b] = weights[b] * (counts[b] / now->expected[b] - 1.0);
    pad(rest, n_tail);
    for (int p = 0; p < n; p++) {
        double apart = parameters[p] - model->centre[c * n + p];
        gradient[p] =
            dot(rest, slopes[p], padded(n_tail)) - model->precision[c * n + p] * apart;
    }
}

/* Solve a symmetric, positive system by Cholesky's method; NaN comes out where it is not so. */
static void solve(const double *matrix, int n, double *vector)
{
    double lower[MOST_PARAMETERS][MOST_PARAMETERS];
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double rest = matrix[i * n + j];
            for (int k = 0; k < j; k++)
                rest -= lower[i][k] * lower[j][k];
            lower[i][j] = i == j ? sqrt(rest) : rest / lower[j][j];
        }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            vector[i] -= lower[i][k] * vector[k];
        vector[i] /= lower[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++)
            vector[i] -= lower[k][i] * vector[k];
        vector[i] /= lower[i][i];
    }
}

/* Take a step of Newton's, as much of it as does not lead downhill. */
static void step(const Model *model, Py_ssize_t c, int first, double converged, double *parameters,
                 double *information, Expectation *now, Expectation *tried,
                 double (*slopes)[MOST_BINS])
{
    static const double LENGTHS[] = {1.0, 0.3, 0.1, 0.01};
    const int n = model->n_parameters;
    double by[MOST_PARAMETERS], there[MOST_PARAMETERS];
    inform(model, c, first, now, slopes, information);
    find_gradient(model, c, first, now, slopes, parameters, by);
    solve(information, n, by);
    for (int i = 0; i < 4; i++) {
        for (int p = 0; p < n; p++)
            there[p] = parameters[p] + LENGTHS[i] * by[p];
        evaluate(model, c, first, there, tried);
        if (tried->objective >= now->objective - converged) {
            memcpy(parameters, there, n * sizeof *there);
            memcpy(now, tried, sizeof *now);
            return;
        }
    }
}

/* Fit all classes until none gets better by more than `converged`, or for so many steps. */
static void fit_all(const Model *model, int n_steps, double converged, double *parameters,
                    double *objectives, double *information, int *firsts, Expectation *each,
                    double (*slopes)[MOST_BINS])
{
    const int n = model->n_parameters;
    Expectation tried;
    for (Py_ssize_t c = 0; c < model->n_classes; c++) {
        const double *basis = model->basis + c * model->n_curve * model->n_used;
        firsts[c] = 0;
        while (firsts[c] < model->n_used && !(basis[firsts[c]] > 0))
            firsts[c]++;
        evaluate(model, c, firsts[c], parameters + c * n, &each[c]);
    }
    for (int i = 0, is_done = 0; i < n_steps && !is_done; i++) {
        is_done = 1;
        for (Py_ssize_t c = 0; c < model->n_classes; c++) {
            double before = each[c].objective;
            step(model, c, firsts[c], converged, parameters + c * n, information + c * n * n,
                 &each[c], &tried, slopes);
            is_done = is_done && each[c].objective < before + converged;
        }
    }
    for (Py_ssize_t c = 0; c < model->n_classes; c++) {
        objectives[c] = each[c].objective;
        inform(model, c, firsts[c], &each[c], slopes, information + c * n * n);
    }
}

static int take_model(const Py_buffer *v, Model *model)
{
    Py_ssize_t n_classes = v[0].shape[0], n_used = v[0].shape[1], n_curve = v[3].shape[1];
    Py_ssize_t n_bins = v[4].shape[1], n = n_curve + 2;
    const struct {
        int place, axis;
        Py_ssize_t length;
    } lengths[] = {{1, 0, n_classes}, {1, 1, n_used}, {2, 0, n_classes}, {2, 1, n_used},
                   {3, 0, n_classes}, {3, 2, n_used}, {4, 0, n_classes}, {5, 0, n_classes},
                   {5, 1, n_bins},    {6, 0, n_classes}, {6, 1, n},      {7, 0, n_classes},
                   {7, 1, n},         {8, 0, n_classes}, {8, 1, n},      {9, 0, n_classes},
                   {10, 0, n_classes}, {10, 1, n},       {10, 2, n}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (!has_length(&v[lengths[i].place], lengths[i].axis, lengths[i].length, "mixture"))
            return 0;
    if (n_bins > MOST_BINS || n_used > n_bins || n > MOST_PARAMETERS) {
        PyErr_Format(PyExc_ValueError, "mixture: expected %d bins and %d parameters or fewer",
                     MOST_BINS, MOST_PARAMETERS);
        return 0;
    }
    *model = (Model){n_classes, (int)n_bins, (int)n_used, (int)n_curve, (int)n, v[0].buf, v[1].buf,
                     v[2].buf,  v[3].buf,    v[4].buf,    v[5].buf,     v[6].buf, v[7].buf};
    return 1;
}

PyObject *fit_mixture(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"counts", "float64", 2, 0},     {"weights", "float64", 2, 0}, {"alike", "float64", 2, 0},
        {"basis", "float64", 3, 0},      {"shape", "float64", 2, 0},   {"depth", "float64", 2, 0},
        {"centre", "float64", 2, 0},     {"precision", "float64", 2, 0},
        {"parameters", "float64", 2, 1}, {"objective", "float64", 1, 1},
        {"information", "float64", 3, 1}};
    Py_buffer v[11];
    Model model;
    if (!has_arguments(n_given, 13))
        return NULL;
    int n_steps = (int)PyLong_AsLong(given[11]);
    double converged = PyFloat_AsDouble(given[12]);
    if (PyErr_Occurred() || open_arrays(given, expected, 11, v))
        return NULL;
    char *scratch = NULL;
    int is_done = take_model(v, &model);
    size_t n_each = is_done ? model.n_classes * sizeof(Expectation) : 0;
    size_t n_slopes = MOST_PARAMETERS * MOST_BINS * sizeof(double);
    if (is_done && !(scratch = PyMem_Malloc(n_each + n_slopes + model.n_classes * sizeof(int)))) {
        PyErr_NoMemory();
        is_done = 0;
    }
    if (is_done) {
        Py_BEGIN_ALLOW_THREADS
        fit_all(&model, n_steps, converged, v[8].buf, v[9].buf, v[10].buf,
                (int *)(scratch + n_each + n_slopes), (Expectation *)scratch,
                (double(*)[MOST_BINS])(scratch + n_each));
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(scratch);
    release(v, 11);
    return is_done ? Py_NewRef(Py_None) : NULL;
}
