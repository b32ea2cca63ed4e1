"""The loops over a block of resamples in plain numpy: the slow twins of those in C."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]


def climb_ladders(
    weights: NDArray[np.unsignedinteger],
    clips: Ints,
    ends: Longs,
    rungs: Longs,
    is_rest_outside: NDArray[np.bool_],
    totals: NDArray[np.uint32],
    auc: Doubles,
    average_precision: Doubles,
    n_positives: Doubles,
    n_negatives: Doubles,
) -> None:
    by_rung = np.split(weights.astype(np.float64)[clips], ends[:-1]) if len(ends) else []
    sums = [rung.sum(axis=0) for rung in by_rung]
    for c, (first, last) in enumerate(zip([0, *rungs[:-1]], rungs, strict=True)):
        lost, precision, above, hits = np.zeros((4, weights.shape[1]))
        *own, rest = sums[first:last]
        for between, tied, positives in zip(own[::3], own[1::3], own[2::3], strict=True):
            above += between
            hits += positives
            lost += positives * (above + tied / 2)
            precision += positives * hits / np.maximum(hits + above + tied, 1)
            above += tied
        n_positives[c] = hits
        n_negatives[c] = totals - hits - rest if is_rest_outside[c] else above + rest
        with np.errstate(invalid="ignore", divide="ignore"):
            auc[c] = 1 - lost / (hits * n_negatives[c])
            average_precision[c] = np.where(n_negatives[c] > 0, precision / hits, np.nan)


def weigh_pairs(
    weights: NDArray[np.unsignedinteger],
    clips: Ints,
    values: Doubles,
    ends: Longs,
    sums: Doubles,
    counts: Doubles,
) -> None:
    for c, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        own = weights[clips[first:last]].astype(np.float64)
        sums[c] = (values[first:last, None] * own).sum(axis=0)
        counts[c] = own.sum(axis=0)
