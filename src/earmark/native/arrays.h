/* Arrays as the loops take them: opened by the buffer protocol, and checked.

   Whatever could make a loop read or write beyond an array is refused before it runs. */
#ifndef EARMARK_ARRAYS_H
#define EARMARK_ARRAYS_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *name;
    char type[8];
    int n_axes, is_written;
} Expected;

static const struct {
    char type[8];
    const char *formats;
    int size;
} TYPES[] = {{"float32", "f", 4}, {"float64", "d", 8}, {"int32", "il", 4}, {"int64", "lq", 8},
             {"uint32", "IL", 4}, {"uint64", "LQ", 8}, {"uint16", "H", 2}, {"uint8", "B", 1},
             {"bool", "?", 1}};

static inline int is_of_type(const Py_buffer *view, const char *type)
{
    const char *format = view->format ? view->format : "B";
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(TYPES[i].type, type) == 0)
            return strlen(format) == 1 && strchr(TYPES[i].formats, *format) &&
                   view->itemsize == TYPES[i].size && (uintptr_t)view->buf % TYPES[i].size == 0;
    return 0;
}

static inline int check_array(const Py_buffer *view, const Expected *one)
{
    if (!is_of_type(view, one->type))
        PyErr_Format(PyExc_TypeError, "%s: expected an array of %s, got items '%s' of %zd bytes",
                     one->name, one->type, view->format ? view->format : "B", view->itemsize);
    else if (view->ndim != one->n_axes)
        PyErr_Format(PyExc_ValueError, "%s: expected %d axes, got %d", one->name, one->n_axes,
                     view->ndim);
    else if (!PyBuffer_IsContiguous(view, 'C'))
        PyErr_Format(PyExc_ValueError, "%s: expected an array without gaps, in C order", one->name);
    else if (one->is_written && view->readonly)
        PyErr_Format(PyExc_ValueError, "%s: expected an array that can be written to", one->name);
    else
        return 0;
    return -1;
}

static inline void release(Py_buffer *views, Py_ssize_t n)
{
    while (n-- > 0)
        PyBuffer_Release(&views[n]);
}

/* Open the arrays that a loop expects; none is open after an error. */
static inline int open_arrays(PyObject *const *given, const Expected *expected, int n, Py_buffer *views)
{
    for (int i = 0; i < n; i++) {
        if (PyObject_GetBuffer(given[i], &views[i], PyBUF_RECORDS_RO) == 0) {
            if (check_array(&views[i], &expected[i]) == 0)
                continue;
            PyBuffer_Release(&views[i]);
        }
        release(views, i);
        return -1;
    }
    return 0;
}

static inline int has_arguments(Py_ssize_t n_given, Py_ssize_t n)
{
    if (n_given != n)
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", n, n_given);
    return n_given == n;
}

static inline int has_length(const Py_buffer *view, int axis, Py_ssize_t n, const char *name)
{
    if (view->shape[axis] != n)
        PyErr_Format(PyExc_ValueError, "%s: expected %zd along axis %d, got %zd", name, n, axis,
                     view->shape[axis]);
    return view->shape[axis] == n;
}

#endif
