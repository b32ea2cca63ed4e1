"""The inner loops over a block of scores, compiled by numba when they are first used.

Every class's scores are sorted into bins: bin 0 holds what is not above ``lows[class]``, the next
ones are ``1 / scales[class]`` wide, and the last is open. To subtract and to multiply keep float32
in order, so bins never overlap.

A score that is kept becomes one integer with its clip, a *key*, and keys sort from the highest
score to the lowest, equal scores in the order of their clips:

>>> keys = np.sort(pack(np.array([0.5, 2.0, 0.5], np.float32), np.array([7, 1, 3])))
>>> unpack_scores(keys).tolist(), unpack_rows(keys).tolist()
([2.0, 0.5, 0.5], [1, 3, 7])

The loops take about half as long as numpy's (benchmarks/thresholds.py). Numba is loaded by the
first call, which takes under a second; what it compiles, it keeps for later processes.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_BINS = 1024
"""Bins of each class: one holds about a thousandth of the scores that are looked at closely."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Kernels:
    """The loops over a block of scores float32 [clip, class], C-contiguous.

    - ``count(block, lows, scales, fewest, spans, counts)`` adds to ``counts`` int32
      [class * N_BINS + bin], bin 0 excepted, and returns the first row with a score that is not
      valid (see :func:`valid_bits`), or -1.
    - ``pick(block, first_row, lows, scales, is_hot, columns, keys)`` writes class and key of the
      scores in hot bins (``is_hot`` uint8, like the counts), NaN excepted, and returns how many.
    - ``place(columns, keys, cursors, ends, out)`` moves keys to the places of their class: from
      ``cursors[class]``, which advances, up to ``ends[class]``; what comes beyond is dropped.
    """

    count: Callable[[Floats, Floats, Floats, Bits, Bits, Ints], int]
    pick: Callable[[Floats, int, Floats, Floats, Bytes, Ints, Longs], int]
    place: Callable[[Ints, Longs, Longs, Longs, Longs], None]


@functools.cache
def compiled_kernels() -> Kernels:
    """Compile the loops, or load what an earlier process compiled."""
    return Kernels(*map(compiled, (_count_loop, _pick_loop, _place_loop)))


@functools.cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop that lets other threads run, or load what an earlier process compiled."""
    numba: Any = importlib.import_module("numba")  # here, because it takes long to load
    try:
        found: Callable[..., Any] = numba.njit(nogil=True, cache=True)(loop)
    except RuntimeError:  # no folder to keep it in can be written to
        found = numba.njit(nogil=True)(loop)
    return found


def valid_bits(is_unscored: NDArray[np.bool_]) -> tuple[Bits, Bits]:
    """Return which bits of a score are valid [class]: the fewest, and how many more.

    The sign is left out. Scores are finite; those of an unscored class are NaN.
    """
    infinity, largest = 0x7F800000, 0x7FFFFFFF
    fewest = np.where(is_unscored, infinity + 1, 0).astype(np.uint32)
    return fewest, np.where(is_unscored, largest, infinity - 1).astype(np.uint32) - fewest


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


def bins_above(scores: Floats, lows: Floats, scales: Floats) -> Ints:
    """Return the bins of scores that lie above their lows, all parallel."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = scores - lows
        steps *= scales
    np.fmin(steps, np.float32(N_BINS - 2), out=steps)  # infinity times 0 is NaN, and the last bin
    bins = steps.astype(np.int32)
    bins += 1
    return bins


# What follows is for numba to compile: a row at a time, so that it stays in the fastest cache;
# loops without a branch run on vectors, and the others write first and then decide whether to
# advance, because a branch that is taken one time in five cannot be foretold.


def _count_loop(block, lows, scales, fewest, spans, counts):  # type: ignore[no-untyped-def]
    n_rows, n_classes = block.shape
    bits = block.view(np.uint32)
    codes = np.empty(n_classes, np.int32)
    hits = np.empty(n_classes + 1, np.int32)
    last = np.float32(N_BINS - 2)
    for row in range(n_rows):
        is_odd = np.uint32(0)
        for column in range(n_classes):
            size = (bits[row, column] & np.uint32(0x7FFFFFFF)) - fewest[column]
            is_odd |= np.uint32(size > spans[column])
            step = (block[row, column] - lows[column]) * scales[column]
            step = step if step < last else last
            code = np.int32(step) + np.int32(column * N_BINS + 1)
            codes[column] = code if block[row, column] > lows[column] else 0
        if is_odd:
            return row
        n_hits = np.uint32(0)
        for column in range(n_classes):
            hits[n_hits] = codes[column]
            n_hits += np.uint32(codes[column] != 0)
        for hit in range(n_hits):
            counts[hits[hit]] += 1
    return -1


def _pick_loop(block, first_row, lows, scales, is_hot, columns, keys):  # type: ignore[no-untyped-def]
    n_rows, n_classes = block.shape
    bits = block.view(np.int32)
    codes = np.empty(n_classes, np.int32)
    hits = np.empty(n_classes + 1, np.int32)
    last = np.float32(N_BINS - 2)
    n_picked = 0
    for row in range(n_rows):
        for column in range(n_classes):
            step = (block[row, column] - lows[column]) * scales[column]
            step = step if step < last else last
            bin_above = np.int32(step) + 1 if block[row, column] > lows[column] else 0
            codes[column] = bin_above + np.int32(column * N_BINS)
        n_hits = np.uint32(0)
        for column in range(n_classes):
            hits[n_hits] = column
            n_hits += np.uint32(is_hot[codes[column]])
        for hit in range(n_hits):
            column = hits[hit]
            bit = np.int64(bits[row, column])
            falling = bit & 0x7FFFFFFF if bit < 0 else -bit
            columns[n_picked] = column
            keys[n_picked] = falling << 32 | (first_row + row)
            n_picked += block[row, column] == block[row, column]
    return n_picked


def _place_loop(columns, keys, cursors, ends, out):  # type: ignore[no-untyped-def]
    for item in range(len(columns)):
        column = columns[item]
        if cursors[column] < ends[column]:
            out[cursors[column]] = keys[item]
        cursors[column] += 1
