/* Batch normalisation with its rectifier: two passes over the pixels each way. */
#include "layers.h"

#include <math.h>
#include <stdlib.h>

/* Pieces whose sums are kept in float32 before they are added in float64. */
#define TILE 64

/* What the passes know of a run of numbers: float32 [run] each, sums included. */
enum { ORIGIN, SCALE, OFFSET, MEAN, EVEN, TILT, SUMS, PRODUCTS, N_KNOWN };

static float *known(const Norm *norm, int which) { return norm->known + which * norm->run; }

int read_norm(PyObject *const *given, const Py_buffer *x, Norm *norm)
{
    Py_ssize_t n_channels = x->shape[CHANNEL];
    *norm = (Norm){.n_channels = n_channels, .run = n_channels ? run_of(n_channels) : 0};
    norm->n_pixels = n_channels ? x->len / x->itemsize / n_channels : 0;
    norm->epsilon = PyFloat_AsDouble(given[0]);
    norm->limit = (float)PyFloat_AsDouble(given[1]);
    norm->is_fixed = PyObject_IsTrue(given[2]);
    if (!PyErr_Occurred() && norm->n_pixels == 0)
        PyErr_SetString(PyExc_ValueError, "x: expected at least one pixel and one channel");
    return PyErr_Occurred() ? -1 : 0;
}

int begin_norm(Norm *norm)
{
    norm->known = calloc(N_KNOWN * norm->run, sizeof(float));
    norm->totals = calloc(2 * norm->n_channels, sizeof(double));
    if (norm->known && norm->totals)
        return 0;
    end_norm(norm);
    PyErr_NoMemory();
    return -1;
}

void end_norm(Norm *norm)
{
    free(norm->known);
    free(norm->totals);
}

/* Repeat values of channels [channel] for a run. */
static void repeat(const Norm *norm, const float *values, float *run)
{
    for (Py_ssize_t start = 0; start < norm->run; start += norm->n_channels)
        memmove(run + start, values, norm->n_channels * sizeof(float));
}

/* Add float32 sums to those of channels in float64, and begin anew. */
static void collect(Norm *norm)
{
    for (int which = 0; which < 2; which++) {
        float *sums = known(norm, SUMS + which);
        double *totals = norm->totals + which * norm->n_channels;
        for (Py_ssize_t start = 0; start < norm->run; start += norm->n_channels)
            for (Py_ssize_t c = 0; c < norm->n_channels; c++)
                totals[c] += sums[start + c];
        memset(sums, 0, norm->run * sizeof(float));
    }
    norm->n_pending = 0;
}

static void count_piece(Norm *norm)
{
    if (++norm->n_pending == TILE)
        collect(norm);
}

/* Pieces of n numbers: where each begins, and how long it is. */
#define FOR_EACH_PIECE(norm, n, start, length)                                                            \
    for (Py_ssize_t start = 0, length; start < (n); start += length)                                      \
        if (length = (n)-start < (norm)->run ? (n)-start : (norm)->run, 1)

ON_VECTORS static void add_moments(Py_ssize_t n, const float *restrict x, const float *restrict origin,
                                   float *restrict sums, float *restrict squares)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        float d = x[i] - origin[i];
        sums[i] += d;
        squares[i] += d * d;
    }
}

void set_origin(Norm *norm, const float *pixel) { repeat(norm, pixel, known(norm, ORIGIN)); }

void add_to_moments(Norm *norm, Py_ssize_t n, const float *x)
{
    FOR_EACH_PIECE(norm, n, start, length)
    {
        add_moments(length, x + start, known(norm, ORIGIN), known(norm, SUMS), known(norm, PRODUCTS));
        count_piece(norm);
    }
}

void settle(Norm *norm, const Channels *of)
{
    collect(norm);
    for (Py_ssize_t c = 0; c < norm->n_channels; c++) {
        if (!norm->is_fixed) {
            double about = norm->totals[c] / (double)norm->n_pixels;
            double spread = norm->totals[norm->n_channels + c] / (double)norm->n_pixels - about * about;
            of->mean[c] = (float)(known(norm, ORIGIN)[c] + about);
            of->variance[c] = (float)(spread > 0 ? spread : 0);
        }
        of->scale[c] = (float)(of->gain[c] / sqrt((double)of->variance[c] + norm->epsilon));
        of->offset[c] = (float)(of->shift[c] - (double)of->mean[c] * of->scale[c]);
    }
    repeat(norm, of->scale, known(norm, SCALE));
    repeat(norm, of->offset, known(norm, OFFSET));
}

void settle_image(Norm *norm, const Channels *of, const float *x)
{
    if (!norm->is_fixed) {
        set_origin(norm, x);
        add_to_moments(norm, norm->n_pixels * norm->n_channels, x);
    }
    settle(norm, of);
}

ON_VECTORS static void apply(Py_ssize_t n, float limit, const float *restrict x, const float *restrict scale,
                             const float *restrict offset, float *restrict y)
{
    if (limit < 0)
        for (Py_ssize_t i = 0; i < n; i++)
            y[i] = x[i] * scale[i] + offset[i];
    else
        for (Py_ssize_t i = 0; i < n; i++) {
            float t = x[i] * scale[i] + offset[i];
            t = t > 0 ? t : 0;
            y[i] = t < limit ? t : limit;
        }
}

void normalise(const Norm *norm, Py_ssize_t n, const float *x, float *y)
{
    FOR_EACH_PIECE(norm, n, start, length)
    apply(length, norm->limit, x + start, known(norm, SCALE), known(norm, OFFSET), y + start);
}

void recall(Norm *norm, const Channels *of)
{
    repeat(norm, of->mean, known(norm, MEAN));
    repeat(norm, of->scale, known(norm, SCALE));
    repeat(norm, of->offset, known(norm, OFFSET));
}

/* Of a gradient, what the rectifier lets through at a normalised value. */
static inline float let_through(float grad, float t, float limit)
{
    float low = t > 0 ? grad : 0;
    return t < limit ? low : 0;
}

ON_VECTORS static void add_gradients(Py_ssize_t n, float limit, const float *restrict x,
                                     const float *restrict grad, const float *restrict scale,
                                     const float *restrict offset, const float *restrict mean,
                                     float *restrict sums, float *restrict products)
{
    if (limit < 0)
        for (Py_ssize_t i = 0; i < n; i++) {
            sums[i] += grad[i];
            products[i] += grad[i] * (x[i] - mean[i]);
        }
    else
        for (Py_ssize_t i = 0; i < n; i++) {
            float g = let_through(grad[i], x[i] * scale[i] + offset[i], limit);
            sums[i] += g;
            products[i] += g * (x[i] - mean[i]);
        }
}

void add_to_gradients(Norm *norm, Py_ssize_t n, const float *x, const float *grad)
{
    FOR_EACH_PIECE(norm, n, start, length)
    {
        add_gradients(length, norm->limit, x + start, grad + start, known(norm, SCALE), known(norm, OFFSET),
                      known(norm, MEAN), known(norm, SUMS), known(norm, PRODUCTS));
        count_piece(norm);
    }
}

void settle_gradients(Norm *norm, const Channels *of, float *to_channels)
{
    float *to_gain = to_channels, *to_shift = to_channels + norm->n_channels;
    collect(norm);
    float *even = known(norm, EVEN), *tilt = known(norm, TILT);
    for (Py_ssize_t c = 0; c < norm->n_channels; c++) {
        double sum = norm->totals[c], product = norm->totals[norm->n_channels + c];
        double inverse = 1 / ((double)of->variance[c] + norm->epsilon);
        to_shift[c] = (float)sum;
        to_gain[c] = (float)(product * sqrt(inverse));
        even[c] = norm->is_fixed ? 0 : (float)(sum / (double)norm->n_pixels);
        tilt[c] = norm->is_fixed ? 0 : (float)(product / (double)norm->n_pixels * inverse);
    }
    repeat(norm, even, even); /* the first pixel's stand already; a run repeats them */
    repeat(norm, tilt, tilt);
}

/* The gradient may lie where it is written to. */
ON_VECTORS static void write_run(Py_ssize_t n, float limit, const float *restrict x, const float *grad,
                             const float *restrict scale, const float *restrict offset,
                             const float *restrict mean, const float *restrict even,
                             const float *restrict tilt, float *out)
{
    if (limit < 0)
        for (Py_ssize_t i = 0; i < n; i++)
            out[i] = scale[i] * (grad[i] - even[i] - (x[i] - mean[i]) * tilt[i]);
    else
        for (Py_ssize_t i = 0; i < n; i++) {
            float g = let_through(grad[i], x[i] * scale[i] + offset[i], limit);
            out[i] = scale[i] * (g - even[i] - (x[i] - mean[i]) * tilt[i]);
        }
}

void write_gradients(const Norm *norm, Py_ssize_t n, const float *x, const float *grad, float *out)
{
    FOR_EACH_PIECE(norm, n, start, length)
    write_run(length, norm->limit, x + start, grad + start, known(norm, SCALE), known(norm, OFFSET),
          known(norm, MEAN), known(norm, EVEN), known(norm, TILT), out + start);
}

Channels channels_of(const Py_buffer *packed)
{
    float *values = packed->buf;
    Py_ssize_t n = packed->shape[1];
    return (Channels){values, values + n, values + 2 * n, values + 3 * n, values + 4 * n, values + 5 * n};
}

int is_like(const Py_buffer *one, const Py_buffer *other, const char *name)
{
    for (int axis = 0; axis < N_AXES; axis++)
        if (!has_length(one, axis, other->shape[axis], name))
            return 0;
    return 1;
}

int has_channels(const Py_buffer *packed, Py_ssize_t n_rows, Py_ssize_t n_channels, const char *name)
{
    return has_length(packed, 0, n_rows, name) && has_length(packed, 1, n_channels, name);
}
