"""The bins that scores are sorted into, and the keys that those of some bins become.

Every class's scores are sorted into bins: bin 0 holds what is not above ``lows[class]``, the next
ones are ``1 / scales[class]`` wide, and the last is open. To subtract and to multiply keep float32
in order, so bins never overlap.

A score that is kept becomes one integer with its clip, a *key*, and keys sort from the highest
score to the lowest, equal scores in the order of their clips:

>>> keys = np.sort(pack(np.array([0.5, 2.0, 0.5], np.float32), np.array([7, 1, 3])))
>>> unpack_scores(keys).tolist(), unpack_rows(keys).tolist()
([2.0, 0.5, 0.5], [1, 3, 7])

:mod:`earmark.scores.loops` counts bins and makes keys by the million.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

N_BINS = 1024
"""Bins of each class: one holds about a thousandth of the scores that are looked at closely."""

STRIP, WAITING = 16, 32768
"""Classes that are looked at together, and codes of theirs that wait to be counted at once."""

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]


def valid_bits(is_unscored: NDArray[np.bool_]) -> tuple[Bits, Bits]:
    """Return which bits of a score are valid [class]: the fewest, and how many more.

    The sign is left out. Scores are finite; those of an unscored class are NaN.
    """
    infinity, largest = 0x7F800000, 0x7FFFFFFF
    fewest = np.where(is_unscored, infinity + 1, 0).astype(np.uint32)
    return fewest, np.where(is_unscored, largest, infinity - 1).astype(np.uint32) - fewest


def as_bits(is_hot: NDArray[np.bool_]) -> Bits:
    """Return whether bins are hot [class, bin] as bits [class, bin / 32], the lowest bin first."""
    return np.packbits(is_hot, axis=1, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def pack(scores: Floats, rows: NDArray[np.integer]) -> Longs:
    """Join scores and clips to keys int64; -0.0 becomes 0.0."""
    bits = scores.view(np.int32).astype(np.int64)
    # Positive floats order like their bits, negative ones the other way round.
    return np.asarray(np.where(bits < 0, bits & 0x7FFFFFFF, -bits) << 32 | rows)


def unpack_scores(keys: Longs) -> Floats:
    """Return the scores float32 of keys."""
    falling = (keys >> 32).astype(np.int32)
    return np.where(falling > 0, falling | np.int32(-0x80000000), -falling).view(np.float32)


def unpack_rows(keys: Longs) -> Bits:
    """Return the clips uint32 of keys."""
    return keys.astype(np.uint32)  # the lower half


def first_key(keys: Longs) -> Longs:
    """Return the lowest key that has the same score: that of clip 0."""
    return keys & ~0xFFFFFFFF
