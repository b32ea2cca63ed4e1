/* Newton's method for a mixture of many classes: ../../flags/mixture.py says what the model is.

   A class's bins stay in the fastest cache; sums are made in LANES parts, in the same order on every
   processor. */
#include "elementary.h"
#include "loops.h"

#include <math.h>

#define LANES 8
#define MOST_BINS 128 /* whole vectors */
#define MOST_PARAMETERS 16
#define LEAST_EXPECTED 1e-9

typedef struct {
    Py_ssize_t n_classes;
    int n_bins, n_used, n_curve, n_parameters; /* bins of shape and depth, and of the others */
    const double *counts, *weights, *alike, *basis, *shape, *depth, *centre, *precision;
} Model;

/* The bins of a class's tail, with zeros after them up to the end of a vector. */
typedef struct {
    int n, n_vectors;
    double counts[MOST_BINS], weights[MOST_BINS], alike[MOST_BINS], depth[MOST_BINS];
    double basis[MOST_PARAMETERS][MOST_BINS];
} Tail;

/* What a class's parameters make expect in the bins of its tail, and the log posterior. */
typedef struct {
    double missing[MOST_BINS], negatives[MOST_BINS], expected[MOST_BINS];
    double depth, objective;
} Expectation;

typedef double Lanes __attribute__((vector_size(8 * LANES)));

/* Write the sums of products of one row with n others, each always added up in the same order: in
   LANES parts. There are as many rows as make fours, of so many vectors. */
WITHIN void dots(const double *a, double (*rows)[MOST_BINS], int n, int n_vectors, double *out)
{
    for (int j = 0; j < n; j += 4) {
        Lanes sums[4] = {{0}, {0}, {0}, {0}}, x, y;
        for (int i = 0; i < n_vectors * LANES; i += LANES) {
            memcpy(&x, a + i, sizeof x);
            for (int k = 0; k < 4; k++) {
                memcpy(&y, rows[j + k] + i, sizeof y);
                sums[k] += x * y;
            }
        }
        for (int k = 0; k < 4 && j + k < n; k++) {
            x = sums[k];
            out[j + k] = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
        }
    }
}

/* Copy n numbers, and put zeros after them. */
static inline void copy_padded(const double *from, int n, double *to)
{
    memcpy(to, from, n * sizeof *to);
    memset(to + n, 0, (MOST_BINS - n) * sizeof *to);
}

/* Take the tail of class c out of the model: it begins at the bin `first` of those used. */
static void open_tail(const Model *model, Py_ssize_t c, int first, Tail *tail)
{
    const int n = model->n_used - first;
    const Py_ssize_t at = c * model->n_used + first;
    tail->n = n;
    tail->n_vectors = (n + LANES - 1) / LANES;
    copy_padded(model->counts + at, n, tail->counts);
    copy_padded(model->weights + at, n, tail->weights);
    copy_padded(model->alike + at, n, tail->alike);
    copy_padded(model->depth + (c + 1) * model->n_bins - n, n, tail->depth);
    for (int k = 0; k < model->n_curve; k++)
        copy_padded(model->basis + (c * model->n_curve + k) * model->n_used + first, n,
                    tail->basis[k]);
}

/* Write the shape of class c's missing labels in all bins and then zeros; return their mean depth. */
WITHIN double tilt_shape(const Model *model, Py_ssize_t c, double tilt, double *tilted)
{
    const int n_bins = model->n_bins;
    const double *depth = model->depth + c * n_bins, *shape = model->shape + c * n_bins;
    double rows[4][MOST_BINS], sums[2];
    for (int b = 0; b < n_bins; b++)
        tilted[b] = shape[b] * exponential(within(-tilt * depth[b], -30.0, 30.0));
    memset(tilted + n_bins, 0, (MOST_BINS + LANES - n_bins) * sizeof *tilted);
    for (int b = 0; b < MOST_BINS; b++)
        rows[0][b] = 1.0;
    copy_padded(depth, n_bins, rows[1]);
    memset(rows[2], 0, 2 * sizeof rows[2]);
    dots(tilted, rows, 2, MOST_BINS / LANES, sums);
    const double per_total = 1.0 / sums[0];
    for (int b = 0; b < MOST_BINS; b++)
        tilted[b] *= per_total;
    return sums[1] * per_total;
}

/* Write what is expected in n bins of a tail, and by how much a bin makes it likelier. */
WITHIN void expect(int n, double n_missing, const double *restrict tilted,
                   const double *restrict curve, const double *restrict alike,
                   const double *restrict counts, double *restrict missing,
                   double *restrict negatives, double *restrict expected, double *restrict terms)
{
    for (int b = 0; b < n; b++) {
        missing[b] = n_missing * tilted[b];
        negatives[b] = exponential(within(curve[b], -40.0, 30.0));
        expected[b] = missing[b] + negatives[b] + n_missing * alike[b] + LEAST_EXPECTED;
    }
    for (int b = 0; b < n; b++)
        terms[b] = counts[b] * logarithm(expected[b]) - expected[b];
}

/* Evaluate the parameters of class c. */
ON_VECTORS
static void evaluate(const Model *model, Py_ssize_t c, const Tail *tail, const double *parameters,
                     Expectation *restrict out)
{
    const int n_curve = model->n_curve, n = tail->n_vectors * LANES;
    const double n_missing = exponential(within(parameters[n_curve + 1], -30.0, 30.0));
    double tilted[MOST_BINS + LANES], curve[MOST_BINS] = {0}, terms[4][MOST_BINS], doubt = 0;
    out->depth = tilt_shape(model, c, parameters[n_curve], tilted);
    for (int k = 0; k < n_curve; k++)
        for (int b = 0; b < n; b++)
            curve[b] += parameters[k] * tail->basis[k][b];
    memset(terms[1], 0, 3 * sizeof terms[1]);
    expect(n, n_missing, tilted + model->n_bins - tail->n, curve, tail->alike, tail->counts,
           out->missing, out->negatives, out->expected, terms[0]);
    for (int p = 0; p < model->n_parameters; p++) {
        double apart = parameters[p] - model->centre[c * model->n_parameters + p];
        doubt += model->precision[c * model->n_parameters + p] * apart * apart;
    }
    dots(tail->weights, terms, 1, tail->n_vectors, &out->objective);
    out->objective -= doubt / 2;
}

/* Write how the expected counts change [parameter, bin], and Fisher's information. */
ON_VECTORS
static void inform(const Model *model, Py_ssize_t c, const Tail *tail, const Expectation *now,
                   double (*restrict slopes)[MOST_BINS], double *restrict information)
{
    const int n_curve = model->n_curve, n = model->n_parameters, n_bins = tail->n_vectors * LANES;
    double weighted[MOST_BINS], sureness[MOST_BINS];
    for (int k = 0; k < n_curve; k++)
        for (int b = 0; b < n_bins; b++)
            slopes[k][b] = tail->basis[k][b] * now->negatives[b];
    for (int b = 0; b < n_bins; b++) {
        slopes[n_curve][b] = now->missing[b] * (now->depth - tail->depth[b]);
        slopes[n_curve + 1][b] = now->expected[b] - now->negatives[b];
        sureness[b] = tail->weights[b] / now->expected[b];
    }
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < n_bins; b++)
            weighted[b] = slopes[i][b] * sureness[b];
        dots(weighted, slopes, i + 1, tail->n_vectors, information + i * n);
        information[i * n + i] += model->precision[c * n + i];
        for (int j = 0; j < i; j++)
            information[j * n + i] = information[i * n + j];
    }
}

ON_VECTORS
static void find_gradient(const Model *model, Py_ssize_t c, const Tail *tail,
                          const Expectation *now, double (*slopes)[MOST_BINS],
                          const double *parameters, double *gradient)
{
    const int n = model->n_parameters;
    double rest[MOST_BINS];
    for (int b = 0; b < tail->n_vectors * LANES; b++)
        rest[b] = tail->weights[b] * (tail->counts[b] / now->expected[b] - 1.0);
    dots(rest, slopes, n, tail->n_vectors, gradient);
    for (int p = 0; p < n; p++) {
        double apart = parameters[p] - model->centre[c * n + p];
        gradient[p] -= model->precision[c * n + p] * apart;
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
static void step(const Model *model, Py_ssize_t c, const Tail *tail, double converged,
                 double *parameters, double *information, Expectation *now, Expectation *tried,
                 double (*slopes)[MOST_BINS])
{
    static const double LENGTHS[] = {1.0, 0.3, 0.1, 0.01};
    const int n = model->n_parameters;
    double by[MOST_PARAMETERS], there[MOST_PARAMETERS];
    inform(model, c, tail, now, slopes, information);
    find_gradient(model, c, tail, now, slopes, parameters, by);
    solve(information, n, by);
    for (int i = 0; i < 4; i++) {
        for (int p = 0; p < n; p++)
            there[p] = parameters[p] + LENGTHS[i] * by[p];
        evaluate(model, c, tail, there, tried);
        if (tried->objective >= now->objective - converged) {
            memcpy(parameters, there, n * sizeof *there);
            memcpy(now, tried, sizeof *now);
            return;
        }
    }
}

/* What a fit writes. */
typedef struct {
    double *parameters, *objectives, *information;
} Fit;

static int first_bin(const Model *model, Py_ssize_t c)
{
    const double *basis = model->basis + c * model->n_curve * model->n_used;
    int first = 0;
    while (first < model->n_used && !(basis[first] > 0))
        first++;
    return first;
}

/* Fit every class until it gets better by less than `converged`, or for so many steps. */
static void fit_each(const Model *model, int n_steps, double converged, const Fit *fit,
                     double (*slopes)[MOST_BINS])
{
    const int n = model->n_parameters;
    Expectation now, tried;
    Tail tail;
    for (Py_ssize_t c = 0; c < model->n_classes; c++) {
        double *information = fit->information + c * n * n, before = -INFINITY;
        open_tail(model, c, first_bin(model, c), &tail);
        evaluate(model, c, &tail, fit->parameters + c * n, &now);
        for (int i = 0; i < n_steps && !(now.objective < before + converged); i++) {
            before = now.objective;
            step(model, c, &tail, converged, fit->parameters + c * n, information, &now, &tried, slopes);
        }
        fit->objectives[c] = now.objective;
        inform(model, c, &tail, &now, slopes, information);
    }
}

/* Fit all classes until none gets better by more than `converged`, or for so many steps. */
static void fit_together(const Model *model, int n_steps, double converged, const Fit *fit,
                         Expectation *each, double (*slopes)[MOST_BINS])
{
    const int n = model->n_parameters;
    Expectation tried;
    Tail tail;
    for (Py_ssize_t c = 0; c < model->n_classes; c++) {
        open_tail(model, c, first_bin(model, c), &tail);
        evaluate(model, c, &tail, fit->parameters + c * n, &each[c]);
    }
    for (int i = 0, is_done = 0; i < n_steps && !is_done; i++) {
        is_done = 1;
        for (Py_ssize_t c = 0; c < model->n_classes; c++) {
            double before = each[c].objective;
            open_tail(model, c, first_bin(model, c), &tail);
            step(model, c, &tail, converged, fit->parameters + c * n, fit->information + c * n * n,
                 &each[c], &tried, slopes);
            is_done = is_done && each[c].objective < before + converged;
        }
    }
    for (Py_ssize_t c = 0; c < model->n_classes; c++) {
        fit->objectives[c] = each[c].objective;
        open_tail(model, c, first_bin(model, c), &tail);
        inform(model, c, &tail, &each[c], slopes, fit->information + c * n * n);
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
    if (n_bins > MOST_BINS || n_used > n_bins || n_curve < 1 || n > MOST_PARAMETERS) {
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
    if (!has_arguments(n_given, 14))
        return NULL;
    int n_steps = (int)PyLong_AsLong(given[11]);
    double converged = PyFloat_AsDouble(given[12]);
    int is_together = PyObject_IsTrue(given[13]);
    if (PyErr_Occurred() || open_arrays(given, expected, 11, v))
        return NULL;
    char *scratch = NULL;
    int is_done = take_model(v, &model);
    size_t n_slopes = MOST_PARAMETERS * MOST_BINS * sizeof(double);
    size_t n_each = is_done && is_together ? model.n_classes * sizeof(Expectation) : 0;
    if (is_done && !(scratch = PyMem_Malloc(n_slopes + n_each))) {
        PyErr_NoMemory();
        is_done = 0;
    }
    if (is_done) {
        const Fit fit = {v[8].buf, v[9].buf, v[10].buf};
        double(*slopes)[MOST_BINS] = (double(*)[MOST_BINS])scratch;
        memset(scratch, 0, n_slopes); /* rows that fill up fours are never written */
        Py_BEGIN_ALLOW_THREADS
        if (is_together)
            fit_together(&model, n_steps, converged, &fit, (Expectation *)(scratch + n_slopes), slopes);
        else
            fit_each(&model, n_steps, converged, &fit, slopes);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(scratch);
    release(v, 11);
    return is_done ? Py_NewRef(Py_None) : NULL;
}
