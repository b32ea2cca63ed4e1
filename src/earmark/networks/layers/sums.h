/* Sums of rows, column by column, sixteen rows at a time, of these sums sixteen, and so on.

   Rounding errors grow with the number of levels and not with that of rows; the order is torch's. */
#ifndef EARMARK_SUMS_H
#define EARMARK_SUMS_H

#include "layers.h"

enum { WIDTH = 1024 /* columns at once, at most */, N_LEVELS = 4, STEP = 16 };

typedef struct {
    Py_ssize_t n_columns, n_rows;
    float levels[N_LEVELS][WIDTH]; /* the first takes the rows */
} Sums;

WITHIN void begin_sums(Sums *sums, Py_ssize_t n_columns)
{
    sums->n_columns = n_columns;
    sums->n_rows = 0;
    for (int level = 0; level < N_LEVELS; level++)
        for (Py_ssize_t i = 0; i < n_columns; i++)
            sums->levels[level][i] = 0;
}

WITHIN void carry(Sums *sums, int level)
{
    float *restrict from = sums->levels[level - 1], *restrict to = sums->levels[level];
    for (Py_ssize_t i = 0; i < sums->n_columns; i++) {
        to[i] += from[i];
        from[i] = 0;
    }
}

/* Say that a row was added to the first level. */
WITHIN void end_row(Sums *sums)
{
    Py_ssize_t n = ++sums->n_rows;
    for (int level = 1; level < N_LEVELS && n % STEP == 0; level++, n /= STEP)
        carry(sums, level);
}

WITHIN void write_sums(const Sums *sums, float *restrict out)
{
    for (Py_ssize_t i = 0; i < sums->n_columns; i++)
        out[i] = ((sums->levels[0][i] + sums->levels[1][i]) + sums->levels[2][i]) + sums->levels[3][i];
}

#endif
