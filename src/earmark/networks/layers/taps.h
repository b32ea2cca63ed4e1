/* Rows of an image as they lie under the nine taps of a 3x3 kernel.

   They are normalised, with zeros around them, to where nine runs of memory begin one under each tap
   (`Taps`): for a stride of two the even pixels stand before the odd ones. All sums then go along
   memory. */
#ifndef EARMARK_TAPS_H
#define EARMARK_TAPS_H

#include "layers.h"

enum { SIDE = 3, N_TAPS = SIDE * SIDE };

typedef struct {
    Py_ssize_t n_images, rows, columns, n_channels; /* of the image */
    Py_ssize_t out_rows, out_columns, stride;       /* of what comes out */
    Py_ssize_t before; /* zeros before a row: one with a stride of 1, none with 2 */
    Py_ssize_t run, padded, out_padded; /* numbers in a run, and in rows with their zeros */
} Layout;

typedef struct {
    Layout of;
    float *rows;    /* [SIDE, padded]: normalised row r of an image, at r % SIDE */
    float *parts;   /* [SIDE, padded]: gradients of rows, of which not all is known yet */
    float *grads;   /* [SIDE, out_padded]: gradients of what was convolved */
    float *nothing; /* rows outside of the image */
    float *weights; /* [N_TAPS, run] */
    float *sums;    /* [N_TAPS, run] */
    float *memory;
    double *totals; /* [N_TAPS, channel] */
    Py_ssize_t n_pending;
} Work;

typedef const float *Taps[N_TAPS];

/* Lay out a convolution of images, by the stride given. */
int read_layout(const Py_buffer *z, PyObject *given, Layout *of);
int begin_work(Work *work);
void end_work(Work *work);
/* Repeat weights [channel, N_TAPS] for a run of pixels; turned round, the last tap comes first. */
void lay_weights(Work *work, const float *weights, int is_turned);
/* Lay the rows of an image that a row of the result needs, and point the taps at them. */
void look(Work *work, const Norm *norm, const float *image, Py_ssize_t out_row, Taps taps);
/* Multiply what lies under the taps with the weights into a row of n numbers. */
void convolve(const Work *work, const Taps taps, Py_ssize_t n, float *y);
/* Add a row's part of the gradients of the weights; write them when all are added. */
void add_to_weights(Work *work, const Taps taps, const float *grad);
void write_weights(Work *work, float *to_weights);

/* Where a column of a row with zeros around it stands, in numbers. */
static inline Py_ssize_t place(const Layout *of, Py_ssize_t column)
{
    Py_ssize_t n_even = of->out_columns + 1;
    if (of->stride == 2)
        column = column % 2 ? n_even + column / 2 : column / 2;
    return column * of->n_channels;
}

static inline Py_ssize_t image_of(const Layout *of) { return of->rows * of->columns * of->n_channels; }
static inline Py_ssize_t out_of(const Layout *of) { return of->out_columns * of->n_channels; }

#endif
