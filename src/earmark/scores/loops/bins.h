/* The bins that scores are sorted into: ../keys.py says what they are. */
#ifndef EARMARK_BINS_H
#define EARMARK_BINS_H

#include "loops.h"

#define MOST_BINS 1024 /* of a class */

/* Return how many bins each class has, or -1 after an error. */
static inline Py_ssize_t bins_of(const Py_buffer *view, Py_ssize_t n_classes, Py_ssize_t per_item,
                                 const char *name)
{
    Py_ssize_t n_bins = view->shape[1] * per_item;
    if (!has_length(view, 0, n_classes, name))
        return -1;
    if (n_bins >= 2 && n_bins <= MOST_BINS && n_classes < INT32_MAX / MOST_BINS)
        return n_bins;
    PyErr_Format(PyExc_ValueError, "%s: expected 2 to %d bins for each of %zd classes, got %zd", name,
                 MOST_BINS, n_classes, n_bins);
    return -1;
}

/* Bins: see ../keys.py. A step is no number where infinity is multiplied by 0: the last bin. */
static inline int32_t bin_above(float score, float low, float scale, float last)
{
    float step = (score - low) * scale;
    step = step < last ? step : last;
    return (int32_t)(step > 0 ? step : 0) + 1;
}

#ifdef HAS_KINDS
/* The steps of bin_above for sixteen scores, and the first bins above the lows of sixteen classes. */
__attribute__((target("avx512f"))) static inline __m512i steps_of(__m512 scores, __m512 lows,
                                                                  __m512 scales, __m512 last)
{
    __m512 steps = _mm512_mul_ps(_mm512_sub_ps(scores, lows), scales);
    steps = _mm512_max_ps(_mm512_min_ps(steps, last), _mm512_setzero_ps());
    return _mm512_cvttps_epi32(steps);
}

__attribute__((target("avx512f"))) static inline __m512i first_bins(int32_t n_bins)
{
    __m512i classes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i begins = _mm512_mullo_epi32(classes, _mm512_set1_epi32(n_bins));
    return _mm512_add_epi32(begins, _mm512_set1_epi32(1));
}
#endif

#endif
