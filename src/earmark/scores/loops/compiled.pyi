"""The loops over blocks of scores [clip, class]. Arrays have no gaps and are in C order.

An array of another type, shape or order, or an index that would point beyond one, is refused.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]
Doubles = NDArray[np.float64]

def count_scores(
    block: Floats, lows: Floats, scales: Floats, fewest: Bits, spans: Bits, counts: Ints, /
) -> int:
    """Add to ``counts`` [class * N_BINS + bin], bin 0 excepted (:mod:`earmark.scores.keys`).

    Returns the first row with a score that is not valid (``fewest`` and ``spans`` are those of
    :func:`earmark.scores.keys.valid_bits`), or -1.
    """

def pick_scores(
    block: Floats,
    lows: Floats,
    scales: Floats,
    is_hot: NDArray[np.uint8],
    columns: Ints,
    keys: Longs,
    first_row: int,
    /,
) -> int:
    """Write class and key of the scores in hot bins, NaN excepted, and return how many.

    ``is_hot`` is like the counts; ``columns`` and ``keys`` have a place for every score.
    """

def place_keys(columns: Ints, keys: Longs, cursors: Longs, ends: Longs, out: Longs, /) -> None:
    """Move keys to the places of their class: from ``cursors[class]``, which advances.

    What comes at ``ends[class]`` or beyond is dropped.
    """

def fill_clues(
    scores: Floats,
    table: Floats,
    raised: Floats,
    facts: Floats,
    together: Floats,
    positive_starts: Longs,
    positives: Ints,
    ancestor_starts: Longs,
    ancestors: Ints,
    descendant_starts: Longs,
    descendants: Ints,
    sibling_starts: Longs,
    siblings: Ints,
    child_starts: Longs,
    children: Ints,
    parent_starts: Longs,
    parents: Ints,
    out: Floats,
    /,
) -> None:
    """Fill ``out`` [clip, class, clue] with all clues or the first (earmark.flags.chances.clues).

    ``table`` [class, bin] is the first clue in the middle of bins, ``raised`` where a class below
    is labelled; ``facts`` [6, class] are begin and inverse width of the bins, mean and inverse sd
    of implicit scores, mean of positives and the prior's logarithm; ``together`` is [class, class]
    or empty. Of equal scores the class that comes first has the better rank.
    """

def add_chances(
    log_odds: Floats,
    is_implicit: NDArray[np.bool_],
    counts: Longs,
    n_expected: Doubles,
    doubt: Doubles,
    lowest: float,
    step: float,
    /,
) -> None:
    """Add implicit labels with finite log-odds to what is known of their classes.

    To ``counts`` [class, step], which begins at ``lowest`` and whose outer steps take what lies
    beyond; their chances to ``n_expected`` [class], and chance * (1 - chance) to ``doubt`` [class].
    """
