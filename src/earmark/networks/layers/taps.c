/* Rows of an image under a kernel's taps, multiplied with its weights. */
#include "taps.h"

#include <stdlib.h>

/* Rows whose sums are kept in float32 before they are added in float64. */
#define TILE 64

int read_layout(const Py_buffer *z, PyObject *given, Layout *of)
{
    Py_ssize_t stride = PyLong_AsSsize_t(given), n_channels = z->shape[CHANNEL], zeros = stride == 1 ? 2 : 1;
    if (!PyErr_Occurred() && stride != 1 && stride != 2)
        PyErr_SetString(PyExc_ValueError, "stride: expected 1 or 2");
    else if (!PyErr_Occurred() && (z->shape[1] < stride || z->shape[2] < stride))
        PyErr_SetString(PyExc_ValueError, "z: expected images no smaller than the stride");
    if (PyErr_Occurred())
        return -1;
    Py_ssize_t out_rows = (z->shape[1] + zeros - SIDE) / stride + 1;
    Py_ssize_t out_columns = (z->shape[2] + zeros - SIDE) / stride + 1;
    Py_ssize_t padded = stride == 1 ? z->shape[2] + 2 : 2 * out_columns + 1;
    *of = (Layout){z->shape[0],        z->shape[1], z->shape[2],         n_channels,
                   out_rows,           out_columns, stride,              stride == 1,
                   run_of(n_channels), padded * n_channels, (out_columns + 2) * n_channels};
    return 0;
}

int begin_work(Work *work)
{
    const Layout *of = &work->of;
    Py_ssize_t widest = of->padded > of->out_padded ? of->padded : of->out_padded;
    Py_ssize_t n_floats = 2 * SIDE * of->padded + SIDE * of->out_padded + widest + 2 * N_TAPS * of->run;
    work->memory = calloc(n_floats, sizeof(float));
    work->totals = calloc(N_TAPS * of->n_channels, sizeof(double));
    work->n_pending = 0;
    work->rows = work->memory;
    work->parts = work->rows + SIDE * of->padded;
    work->grads = work->parts + SIDE * of->padded;
    work->nothing = work->grads + SIDE * of->out_padded;
    work->weights = work->nothing + widest;
    work->sums = work->weights + N_TAPS * of->run;
    if (work->memory && work->totals)
        return 0;
    free(work->memory);
    free(work->totals);
    PyErr_NoMemory();
    return -1;
}

void end_work(Work *work)
{
    free(work->memory);
    free(work->totals);
}

void lay_weights(Work *work, const float *weights, int is_turned)
{
    const Layout *of = &work->of;
    for (int tap = 0; tap < N_TAPS; tap++)
        for (Py_ssize_t start = 0; start < of->run; start += of->n_channels)
            for (Py_ssize_t c = 0; c < of->n_channels; c++) {
                int from = is_turned ? N_TAPS - 1 - tap : tap;
                work->weights[tap * of->run + start + c] = weights[c * N_TAPS + from];
            }
}

/* Normalise a row of an image to its place; the zeros around it stand already. */
static void lay_row(Work *work, const Norm *norm, const float *image, Py_ssize_t row)
{
    const Layout *of = &work->of;
    float *to = work->rows + row % SIDE * of->padded;
    const float *from = image + row * of->columns * of->n_channels;
    if (of->stride == 1)
        normalise(norm, of->columns * of->n_channels, from, to + of->before * of->n_channels);
    else
        for (Py_ssize_t column = 0; column < of->columns; column++)
            normalise(norm, of->n_channels, from + column * of->n_channels, to + place(of, column));
}

void look(Work *work, const Norm *norm, const float *image, Py_ssize_t out_row, Taps taps)
{
    const Layout *of = &work->of;
    Py_ssize_t first = out_row * of->stride - of->before;
    Py_ssize_t n_known = out_row == 0 ? 0 : SIDE - of->stride;
    for (int r = 0; r < SIDE; r++) {
        Py_ssize_t row = first + r;
        int is_inside = row >= 0 && row < of->rows;
        if (is_inside && r >= n_known)
            lay_row(work, norm, image, row);
        const float *lies = is_inside ? work->rows + row % SIDE * of->padded : work->nothing;
        for (int c = 0; c < SIDE; c++)
            taps[r * SIDE + c] = lies + place(of, c);
    }
}

ON_VECTORS static void convolve_run(Py_ssize_t n, Py_ssize_t run, const float *const *x,
                                    const float *restrict w, float *restrict y)
{
    const float *restrict x0 = x[0], *restrict x1 = x[1], *restrict x2 = x[2], *restrict x3 = x[3];
    const float *restrict x4 = x[4], *restrict x5 = x[5], *restrict x6 = x[6], *restrict x7 = x[7];
    const float *restrict x8 = x[8];
    for (Py_ssize_t i = 0; i < n; i++)
        y[i] = ((x0[i] * w[i] + x1[i] * w[run + i] + x2[i] * w[2 * run + i]) +
                (x3[i] * w[3 * run + i] + x4[i] * w[4 * run + i] + x5[i] * w[5 * run + i])) +
               (x6[i] * w[6 * run + i] + x7[i] * w[7 * run + i] + x8[i] * w[8 * run + i]);
}

void convolve(const Work *work, const Taps taps, Py_ssize_t n, float *y)
{
    Py_ssize_t run = work->of.run;
    for (Py_ssize_t start = 0; start < n; start += run) {
        Taps here;
        for (int tap = 0; tap < N_TAPS; tap++)
            here[tap] = taps[tap] + start;
        convolve_run(n - start < run ? n - start : run, run, here, work->weights, y + start);
    }
}

ON_VECTORS static void add_products(Py_ssize_t n, const float *restrict grad, const float *restrict x0,
                                    const float *restrict x1, const float *restrict x2, float *restrict s0,
                                    float *restrict s1, float *restrict s2)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        s0[i] += grad[i] * x0[i];
        s1[i] += grad[i] * x1[i];
        s2[i] += grad[i] * x2[i];
    }
}

static void collect(Work *work)
{
    const Layout *of = &work->of;
    for (int tap = 0; tap < N_TAPS; tap++)
        for (Py_ssize_t start = 0; start < of->run; start += of->n_channels)
            for (Py_ssize_t c = 0; c < of->n_channels; c++)
                work->totals[tap * of->n_channels + c] += work->sums[tap * of->run + start + c];
    memset(work->sums, 0, N_TAPS * of->run * sizeof(float));
    work->n_pending = 0;
}

void add_to_weights(Work *work, const Taps taps, const float *grad)
{
    Py_ssize_t run = work->of.run, n = out_of(&work->of);
    for (Py_ssize_t start = 0; start < n; start += run)
        for (int tap = 0; tap < N_TAPS; tap += SIDE) {
            float *sums = work->sums + tap * run;
            add_products(n - start < run ? n - start : run, grad + start, taps[tap] + start,
                         taps[tap + 1] + start, taps[tap + 2] + start, sums, sums + run, sums + 2 * run);
        }
    if (++work->n_pending == TILE)
        collect(work);
}

void write_weights(Work *work, float *to_weights)
{
    collect(work);
    Py_ssize_t n_channels = work->of.n_channels;
    for (int tap = 0; tap < N_TAPS; tap++)
        for (Py_ssize_t c = 0; c < n_channels; c++)
            to_weights[c * N_TAPS + tap] = (float)work->totals[tap * n_channels + c];
}
