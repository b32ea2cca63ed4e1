"""The loops over blocks of 64 resamples. Arrays have no gaps and are in C order.

``weights`` [clip, 64] are how often each resample drew each clip: uint8, or uint32 where one does
not fit. No resample may draw 2 ** 32 clips. An array of another type, shape or order, or an index
that would point beyond one, is refused.
"""

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.uint8] | NDArray[np.uint32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

def climb_ladders(
    weights: Counts,
    clips: Ints,
    ends: Longs,
    rungs: Longs,
    is_rest_outside: NDArray[np.bool_],
    totals: NDArray[np.uint32],
    auc: Doubles,
    average_precision: Doubles,
    n_positives: Doubles,
    n_negatives: Doubles,
    /,
) -> None:
    """Write AUC, average precision and the counts [class, 64] of every class and resample.

    The ladder of a class are its clips, from the highest score down. Each distinct score of a
    positive has three rungs: negatives above it (and below the score before), negatives tied with
    it, and the positives. The last rung is the rest: negatives below all positives, or, where
    ``is_rest_outside`` [class], the clips that are neither, from which and from the ``totals`` [64]
    of a resample the negatives follow. ``ends`` [rung] are the ends of the rungs in ``clips``,
    ``rungs`` [class] the ends of the classes in ``ends``. NaN without positives or negatives.
    """

def weigh_pairs(
    weights: Counts, clips: Ints, values: Doubles, ends: Longs, sums: Doubles, counts: Doubles, /
) -> None:
    """Write the weighed sums of ``values`` and the sums of weights [class, 64] of every class.

    ``clips`` and ``values`` [pair] belong to the class before whose end in ``ends`` [class] they
    stand.
    """
