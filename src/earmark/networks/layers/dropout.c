/* A rectifier and dropout in one pass, and their gradients with those of a bias: see compiled.pyi. */
#include "sums.h"

ON_VECTORS static void drop(Py_ssize_t n, float *restrict values, const float *restrict keep)
{
    for (Py_ssize_t i = 0; i < n; i++)
        values[i] = (values[i] <= 0 ? 0 : values[i]) * keep[i];
}

/* What was dropped is zero as what was rectified, so that kept values tell both. Some units of one
   student, [clip, unit] with a row of so many numbers. */
ON_VECTORS static void return_slopes(Py_ssize_t n_clips, Py_ssize_t n_units, Py_ssize_t row,
                                     const float *restrict grad, const float *restrict kept,
                                     const float *restrict keep, float *restrict to_values, float *restrict to_bias)
{
    Sums sums;
    begin_sums(&sums, n_units);
    for (Py_ssize_t clip = 0; clip < n_clips; clip++, end_row(&sums))
        for (Py_ssize_t i = 0; i < n_units; i++) {
            const Py_ssize_t place = clip * row + i;
            const float slope = kept[place] <= 0 ? 0 : grad[place] * keep[place];
            to_values[place] = slope;
            sums.levels[0][i] += slope;
        }
    write_sums(&sums, to_bias);
}

enum { STUDENT, CLIP, UNIT };

static int has_shape(const Py_buffer *view, const Py_ssize_t *shape, const char *name)
{
    for (int axis = 0; axis < view->ndim; axis++)
        if (!has_length(view, axis, shape[axis], name))
            return 0;
    return 1;
}

PyObject *rectify_and_drop(PyObject *self, PyObject *const *given, Py_ssize_t n_given)
{
    (void)self;
    enum { VALUES, KEEP, N_ARRAYS };
    static const Expected expected[] = {{"values", "float32", 3, 1}, {"keep", "float32", 2, 0}};
    Py_buffer views[N_ARRAYS];
    if (!has_arguments(n_given, N_ARRAYS) || open_arrays(given, expected, N_ARRAYS, views))
        return NULL;
    const Py_ssize_t *shape = views[VALUES].shape, n = shape[CLIP] * shape[UNIT];
    const int is_good = has_shape(&views[KEEP], shape + CLIP, "keep");
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t student = 0; student < shape[STUDENT]; student++)
            drop(n, (float *)views[VALUES].buf + student * n, views[KEEP].buf);
        Py_END_ALLOW_THREADS
    }
    release(views, N_ARRAYS);
    return is_good ? Py_NewRef(Py_None) : NULL;
}

enum { GRAD, KEPT, KEEP, TO_VALUES, TO_BIAS, N_ARRAYS };

static void return_to_students(const Py_buffer *views)
{
    const Py_ssize_t *shape = views[GRAD].shape, row = shape[UNIT], n = shape[CLIP] * row;
    for (Py_ssize_t student = 0; student < shape[STUDENT]; student++)
        for (Py_ssize_t first = 0; first < row; first += WIDTH) {
            const Py_ssize_t place = student * n + first, n_units = row - first < WIDTH ? row - first : WIDTH;
            return_slopes(shape[CLIP], n_units, row, (const float *)views[GRAD].buf + place,
                          (const float *)views[KEPT].buf + place, (const float *)views[KEEP].buf + first,
                          (float *)views[TO_VALUES].buf + place, (float *)views[TO_BIAS].buf + student * row + first);
        }
}

PyObject *rectify_and_drop_backward(PyObject *self, PyObject *const *given, Py_ssize_t n_given)
{
    (void)self;
    static const Expected expected[] = {{"grad", "float32", 3, 0},
                                        {"kept", "float32", 3, 0},
                                        {"keep", "float32", 2, 0},
                                        {"to_values", "float32", 3, 1},
                                        {"to_bias", "float32", 3, 1}};
    Py_buffer views[N_ARRAYS];
    if (!has_arguments(n_given, N_ARRAYS) || open_arrays(given, expected, N_ARRAYS, views))
        return NULL;
    const Py_ssize_t *shape = views[GRAD].shape, bias[] = {shape[STUDENT], 1, shape[UNIT]};
    const int is_good = has_shape(&views[KEPT], shape, "kept") && has_shape(&views[KEEP], shape + CLIP, "keep") &&
                        has_shape(&views[TO_VALUES], shape, "to_values") && has_shape(&views[TO_BIAS], bias, "to_bias");
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        return_to_students(views);
        Py_END_ALLOW_THREADS
    }
    release(views, N_ARRAYS);
    return is_good ? Py_NewRef(Py_None) : NULL;
}
