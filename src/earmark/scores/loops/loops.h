/* The loops that compiled.c offers; compiled.pyi says what each one does.

   They look at a clip at a time, so that its scores stay in the fastest cache. Loops without a
   branch run on vectors; others write first and then decide whether to advance, because a branch
   that is taken one time in five cannot be foretold. Results are the same to the bit on every
   processor: sums keep their order, and no product is fused with a sum (-ffp-contract=off). Other
   threads run meanwhile. */
#ifndef EARMARK_LOOPS_H
#define EARMARK_LOOPS_H

#include "arrays.h"

/* Compiled once for each kind of processor, which chooses when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define ON_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ON_VECTORS
#endif

#ifdef _MSC_VER
#define restrict __restrict
#endif

PyObject *count_scores(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *pick_scores(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *place_keys(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *fill_clues(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *add_chances(PyObject *, PyObject *const *, Py_ssize_t);

#endif
