/* A waveform's log-mel frames, and batches of frames; compiled.pyi says what comes in and out.

   LANES frames go side by side through every step, so that each step is one operation on a vector
   and all of them stay in the fastest cache. Results are the same to the bit on every processor
   and with any compiler: sums keep their order, no product is fused with a sum
   (-ffp-contract=off), square roots are rounded as IEEE 754 asks, and the logarithm is made of
   sums and products. */
#ifndef EARMARK_SPECTRA_H
#define EARMARK_SPECTRA_H

#include "../../scores/loops/arrays.h"
#include "../../scores/loops/vectors.h"

#define LANES 8

typedef float Lanes __attribute__((vector_size(4 * LANES)));

/* One complex number of each frame. */
typedef struct {
    Lanes re, im;
} Complex;

/* What does not change from frame to frame. An FFT of 2 * n_points real numbers is one of n_points
   complex ones; its result n stands at places[n]. Weights of band b: from ends[b - 1] to ends[b],
   for the bins from firsts[b] on. */
typedef struct {
    Py_ssize_t n_window, hop, n_points, n_bands;
    const float *window, *turns, *weights;
    const int32_t *firsts, *ends, *places;
    float offset;
} Plan;

PyObject *fill_log_mel(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *gather_frames(PyObject *, PyObject *const *, Py_ssize_t);

#endif
