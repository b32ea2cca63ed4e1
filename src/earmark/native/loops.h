/* The loops that compiled.c offers; compiled.pyi says what each one does.

   They look at a few clips and a strip of a few classes at a time, so that all that is known of those
   classes stays in the fastest cache; the block itself fits into the next one. Loops without a
   branch run on vectors; others write first and then decide whether to advance, because a branch
   that is taken one time in five cannot be foretold. Results are the same to the bit on every
   processor: sums keep their order, and no product is fused with a sum (-ffp-contract=off). Other
   threads run meanwhile. */
#ifndef EARMARK_LOOPS_H
#define EARMARK_LOOPS_H

#include "arrays.h"
#include "vectors.h"

#ifdef _MSC_VER
#define restrict __restrict
#endif

/* Classes of a strip, as many as the widest vectors hold, and clips that are looked at together. */
#define STRIP 16
#define CLIPS 256

/* The explicit labels of a block's clips: those of row r are columns[starts[r]:starts[r + 1]]. */
typedef struct {
    const int64_t *starts;
    const int32_t *columns;
} Explicit;

int take_explicit(const Py_buffer *starts, const Py_buffer *columns, Py_ssize_t n_rows,
                  Py_ssize_t n_classes, Explicit *explicit);

PyObject *count_scores(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *pick_scores(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *place_keys(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *climb_ladders(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *weigh_pairs(PyObject *, PyObject *const *, Py_ssize_t);

#endif
