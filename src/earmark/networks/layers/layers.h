/* The loops that compiled.c offers, and what they share; compiled.pyi says what each one does.

   Images are channels-last: a loop goes along the channels of a pixel, where memory lies. Results are
   the same to the bit on every processor: every channel has its own sum, whose order is fixed, and
   no product is fused with a sum (-ffp-contract=off). Other threads run meanwhile. */
#ifndef EARMARK_LAYERS_H
#define EARMARK_LAYERS_H

#include "../../scores/loops/arrays.h"
#include "../../scores/loops/vectors.h"

#ifdef _MSC_VER
#define restrict __restrict
#endif

PyObject *depthwise_forward(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *depthwise_backward(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *cross_entropy(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *frame_statistics(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rectify_and_drop(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rectify_and_drop_backward(PyObject *, PyObject *const *, Py_ssize_t);

/* Axes of an image: patch, row, column, channel. */
enum { N_AXES = 4, CHANNEL = N_AXES - 1 };

/* Numbers that are looked at together, unless a pixel has more: whole pixels, as if they were one of
   so many more channels, because a sum waits for the one before it. */
#define RUN 512

static inline Py_ssize_t run_of(Py_ssize_t n_channels)
{
    return (n_channels < RUN ? RUN / n_channels : 1) * n_channels;
}

/* A normalisation with its rectifier, given an image piece by piece: whole pixels each time. */
typedef struct {
    Py_ssize_t n_pixels, n_channels, run;
    double epsilon;
    float limit; /* of the rectifier; below zero there is none */
    int is_fixed; /* whether mean and variance are given */
    int n_pending; /* pieces whose sums are in float32 */
    float *known;
    double *totals; /* of sums and of products, float64 [channel] each */
} Norm;

/* Values of channels, [channel] each and packed in this order: gain and shift are read, the others
   are what the norm makes of an image. */
typedef struct {
    const float *gain, *shift;
    float *mean, *variance, *scale, *offset;
} Channels;
enum { N_CHANNEL_VALUES = 6, N_CHANNEL_GRADIENTS = 2 /* of gain and shift */ };

Channels channels_of(const Py_buffer *packed);
int has_channels(const Py_buffer *packed, Py_ssize_t n_rows, Py_ssize_t n_channels, const char *name);
int is_like(const Py_buffer *one, const Py_buffer *other, const char *name);

/* Read epsilon, limit and is_fixed, which stand behind the arrays. */
enum { N_SETTINGS = 3 };
int read_norm(PyObject *const *given, const Py_buffer *x, Norm *norm);
int begin_norm(Norm *norm);
void end_norm(Norm *norm);
/* Forwards: add all of an image's moments around its first pixel, settle, then apply. */
void set_origin(Norm *norm, const float *pixel);
void add_to_moments(Norm *norm, Py_ssize_t n, const float *x);
void settle(Norm *norm, const Channels *channels);
void settle_image(Norm *norm, const Channels *channels, const float *x); /* that is there as a whole */
void normalise(const Norm *norm, Py_ssize_t n, const float *x, float *y);
/* Backwards: recall what was settled, add all of a gradient, settle, then write. */
void recall(Norm *norm, const Channels *channels);
void add_to_gradients(Norm *norm, Py_ssize_t n, const float *x, const float *grad);
void settle_gradients(Norm *norm, const Channels *channels, float *to_channels);
void write_gradients(const Norm *norm, Py_ssize_t n, const float *x, const float *grad, float *out);

#endif
