"""Inner loops over scores [clip, class] and resamples. Arrays are C-contiguous.

An array of another type, shape or order, or an index that would point beyond one, is refused.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]
Doubles = NDArray[np.float64]
Counts = NDArray[np.uint8] | NDArray[np.uint32]

def count_scores(
    block: Floats,
    lows: Floats,
    scales: Floats,
    fewest: Bits,
    spans: Bits,
    starts: Longs,
    columns: Ints,
    explicit: Floats,
    counts: Ints,
    /,
) -> int:
    """Add implicit scores to ``counts`` [class, bin], and write the scores of explicit labels.

    The explicit labels of a row are ``columns[starts[row]:starts[row + 1]]``; ``explicit`` is
    parallel to ``columns``. Returns the first row with a score that is not valid (``fewest`` and
    ``spans`` are those of :func:`earmark.scores.order_statistics.valid_bits`), where nothing is
    counted, or -1.
    """

def pick_scores(
    block: Floats,
    lows: Floats,
    scales: Floats,
    is_hot: NDArray[np.bool_],
    starts: Longs,
    explicit: Ints,
    columns: Ints,
    keys: Longs,
    first_row: int,
    /,
) -> int:
    """Write class and key of the implicit scores in bins ``is_hot`` [class, bin]; return how many.

    NaN is never picked. Explicit labels are ``explicit[starts[row]:starts[row + 1]]``;
    ``columns`` and ``keys`` have a place for every score.
    """

def place_keys(columns: Ints, keys: Longs, cursors: Longs, ends: Longs, out: Longs, /) -> None:
    """Move keys to the places of their class: from ``cursors[class]``, which advances.

    What comes at ``ends[class]`` or beyond is dropped.
    """

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

    ``weights`` [clip, 64] are how often each resample drew each clip: uint8, or uint32 where one
    does not fit. No resample may draw 2 ** 32 clips.

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
