/* Mean, variance and maximum over the frames of clips: see compiled.pyi. */
#include "sums.h"

#include <math.h>

/* Some features of one clip, [frame, feature] with a row of so many numbers. */
ON_VECTORS static void describe(Py_ssize_t n_frames, Py_ssize_t n_features, Py_ssize_t row,
                                const float *restrict frames, float *restrict mean, float *restrict variance,
                                float *restrict highest)
{
    Sums sums;
    begin_sums(&sums, n_features);
    for (Py_ssize_t i = 0; i < n_features; i++)
        highest[i] = -INFINITY;
    for (Py_ssize_t frame = 0; frame < n_frames; frame++, end_row(&sums))
        for (Py_ssize_t i = 0; i < n_features; i++) {
            const float value = frames[frame * row + i];
            sums.levels[0][i] += value;
            highest[i] = value > highest[i] || value != value ? value : highest[i];
        }
    write_sums(&sums, mean);
    for (Py_ssize_t i = 0; i < n_features; i++)
        mean[i] /= (float)n_frames;
    begin_sums(&sums, n_features);
    for (Py_ssize_t frame = 0; frame < n_frames; frame++, end_row(&sums))
        for (Py_ssize_t i = 0; i < n_features; i++) {
            const float away = frames[frame * row + i] - mean[i];
            sums.levels[0][i] += away * away;
        }
    write_sums(&sums, variance);
    for (Py_ssize_t i = 0; i < n_features; i++)
        variance[i] /= (float)n_frames;
}

enum { FRAMES, N_FRAMES, SEEN, N_ARRAYS };
enum { CLIP, FRAME, FEATURE };
enum { N_STATISTICS = 3 };
static const Expected EXPECTED[] = {
    {"frames", "float32", 3, 0}, {"n_frames", "int64", 1, 0}, {"seen", "float32", 2, 1}};

static void describe_clips(const Py_buffer *views)
{
    const Py_ssize_t *shape = views[FRAMES].shape, n_features = shape[FEATURE];
    for (Py_ssize_t clip = 0; clip < shape[CLIP]; clip++) {
        const float *frames = (const float *)views[FRAMES].buf + clip * shape[FRAME] * n_features;
        float *seen = (float *)views[SEEN].buf + clip * N_STATISTICS * n_features;
        const int64_t n_frames = ((const int64_t *)views[N_FRAMES].buf)[clip];
        for (Py_ssize_t first = 0; first < n_features; first += WIDTH) {
            const Py_ssize_t n = n_features - first < WIDTH ? n_features - first : WIDTH;
            describe((Py_ssize_t)n_frames, n, n_features, frames + first, seen + first, seen + n_features + first,
                     seen + 2 * n_features + first);
        }
    }
}

static int are_frames(const Py_buffer *views)
{
    const Py_ssize_t *shape = views[FRAMES].shape;
    if (!has_length(&views[N_FRAMES], 0, shape[CLIP], "n_frames") || !has_length(&views[SEEN], 0, shape[CLIP], "seen") ||
        !has_length(&views[SEEN], 1, N_STATISTICS * shape[FEATURE], "seen"))
        return 0;
    for (Py_ssize_t clip = 0; clip < shape[CLIP]; clip++) {
        const int64_t n = ((const int64_t *)views[N_FRAMES].buf)[clip];
        if (n < 0 || n > shape[FRAME]) {
            PyErr_Format(PyExc_ValueError, "n_frames: expected 0 to %zd, got %lld", shape[FRAME], (long long)n);
            return 0;
        }
    }
    return 1;
}

PyObject *frame_statistics(PyObject *self, PyObject *const *given, Py_ssize_t n_given)
{
    (void)self;
    Py_buffer views[N_ARRAYS];
    if (!has_arguments(n_given, N_ARRAYS) || open_arrays(given, EXPECTED, N_ARRAYS, views))
        return NULL;
    const int is_good = are_frames(views);
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        describe_clips(views);
        Py_END_ALLOW_THREADS
    }
    release(views, N_ARRAYS);
    return is_good ? Py_NewRef(Py_None) : NULL;
}
