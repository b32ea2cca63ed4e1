"""Scores into bins, in one pass over a matrix of any size; and the scores of some bins, in another.

What a pass finds in a shard is a value, and the values of several shards or machines are merged:

>>> labels = LabelSet.from_dense([[0], [0], [1], [0]])
>>> grid = Grid.above(np.array([-2.0], np.float32))
>>> first = count_bins(labels.select([0, 1]), np.array([[-1.0], [-3.0]]), grid)
>>> second = count_bins(labels.select([2, 3]), np.array([[5.0], [0.5]]), grid)
>>> first.merge(second).n_from[:, 1]
array([2])

Only implicit scores are counted and kept. The loops over single scores are those of
:mod:`earmark.scores.keys`, which says what the bins are.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.runs import default_workers
from earmark.scores.keys import N_BINS, STRIP, WAITING, as_bits, valid_bits
from earmark.scores.loops import count_last, count_scores, pick_scores, place_keys
from earmark.scores.matrix import (
    Chunk,
    ScoreMatrix,
    ScoresLike,
    find_unscored,
    open_scores,
    refuse_odd_score,
)

CORE_SHARE, CORE_BINS = 0.05, 0.25
"""However far outliers lie: all scores but this share get this share of a grid's bins or more."""


@dataclass(frozen=True)
class Grid:
    """The bins of each class [class]: see :mod:`earmark.scores.keys`."""

    lows: NDArray[np.float32]
    scales: NDArray[np.float32]

    @classmethod
    def above(cls, lows: NDArray[np.float32]) -> Grid:
        """Put all scores above given ones [class] into the last bin."""
        return cls(lows, np.full(len(lows), np.inf, np.float32))

    @classmethod
    def spread(cls, lows: NDArray[np.float32], sample: NDArray[np.float32]) -> Grid:
        """Spread bins over the scores of a sorted sample [class, clip] above given ones [class]."""
        highest = sample[:, -1] if sample.shape[1] else np.full(len(lows), -np.inf, np.float32)
        n_above = (sample > lows[:, None]).sum(axis=1)
        core = from_top(sample, np.ceil(CORE_SHARE * n_above).astype(np.int64))
        with np.errstate(invalid="ignore", over="ignore"):
            reach = np.minimum(highest - lows, (core - lows) / CORE_BINS)
            is_wide = np.isfinite(reach) & (reach > 0)
            # Half a bin to spare: no rounding moves the sample's highest score beyond the grid.
            scales = np.where(is_wide, (N_BINS - 2.5) / np.where(is_wide, reach, 1), np.inf)
        return cls(lows, scales.astype(np.float32))

    def merge(self, other: Grid) -> Grid:
        """Return the grid, which must be the other's too."""
        is_one = np.array_equal(self.lows, other.lows) and np.array_equal(self.scales, other.scales)
        if not is_one:
            raise EarmarkError("shards can be merged only if they were counted on one grid")
        return self


@dataclass(frozen=True)
class BinCounts:
    """How many implicit scores of ``n_clips`` clips lie in each bin: int64 [class, bin].

    ``explicit`` float32 [explicit label] is parallel to the labels' ``columns`` and ``present``.
    """

    n_clips: int
    grid: Grid
    counts: NDArray[np.int64]
    explicit: NDArray[np.float32]

    def merge(self, other: BinCounts) -> BinCounts:
        """Add the counts of further clips, taken on the same grid."""
        return BinCounts(
            self.n_clips + other.n_clips,
            self.grid.merge(other.grid),
            self.counts + other.counts,
            np.concatenate([self.explicit, other.explicit]),
        )

    @cached_property
    def n_from(self) -> NDArray[np.int64]:
        """The number of scores in a bin and all higher ones [class, bin]."""
        return self.counts[:, ::-1].cumsum(axis=1)[:, ::-1]

    def bins_of(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bins [point, class] of the (rank + 1)-th largest scores; -1 without one."""
        # One search for all: the numbers fall within a class, and every class lies above the last.
        begins = np.arange(len(self.counts)) * (int(self.n_from.max(initial=0)) + 1)
        falling = (begins[:, None] - self.n_from).reshape(-1)
        wanted = begins - np.minimum(ranks, self.n_from[:, 0])
        places = np.searchsorted(falling, wanted, side="left")
        return np.asarray(places - np.arange(len(begins)) * N_BINS - 1)


@dataclass(frozen=True)
class Kept:
    """The implicit scores of ``n_clips`` clips in the bins ``is_hot`` bool [class, bin].

    ``keys`` int64 (see :mod:`earmark.scores.keys`) ascend within each class, which has the
    places ``starts[class]:starts[class + 1]``.
    """

    n_clips: int
    is_hot: NDArray[np.bool_]
    starts: NDArray[np.int64]
    keys: NDArray[np.int64]

    def of(self, column: int) -> NDArray[np.int64]:
        """Return the keys of one class."""
        return self.keys[self.starts[column] : self.starts[column + 1]]

    def n_below(self, columns: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many keys of given classes are below given ones, all parallel."""
        first, last = self.starts[columns], self.starts[columns + 1]
        while (is_open := first < last).any():
            middle = (first + last) // 2
            is_below = is_open & (self.keys[np.minimum(middle, len(self.keys) - 1)] < keys)
            first = np.where(is_below, middle + 1, first)
            last = np.where(is_open & ~is_below, middle, last)
        return np.asarray(first - self.starts[columns])

    def merge(self, other: Kept) -> Kept:
        """Append the scores of further clips, kept from the same bins."""
        if not np.array_equal(self.is_hot, other.is_hot):
            raise EarmarkError("shards can be merged only if they were kept from the same bins")
        columns = range(len(self.is_hot))
        pairs = [(self.of(column), other.of(column) + self.n_clips) for column in columns]
        keys = [np.sort(np.concatenate(pair)) for pair in pairs]
        return Kept(
            self.n_clips + other.n_clips,
            self.is_hot,
            self.starts + other.starts,
            np.concatenate([np.empty(0, np.int64), *keys]),
        )


def from_top(sample: NDArray[np.float32], ranks: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the scores of given ranks [class], from 1, in a sorted sample; -inf for rank 0."""
    scores = np.full(len(ranks), -np.inf, np.float32)
    ranked = np.flatnonzero(ranks)
    scores[ranked] = sample[ranked, sample.shape[1] - ranks[ranked]]
    return scores


def count_bins(labels: LabelSet, logits: ScoresLike | ScoreMatrix, grid: Grid) -> BinCounts:
    """Count the implicit scores in every bin, in one pass that also checks the scores."""
    scores = open_scores(logits, labels)
    is_unscored = find_unscored(scores)
    fewest, spans = valid_bits(is_unscored)
    explicit = np.empty(len(labels.columns), np.float32)
    columns = np.ascontiguousarray(labels.columns, np.int32)

    def count(chunks: Iterator[Chunk]) -> NDArray[np.int32]:
        counts = np.zeros((labels.n_classes, N_BINS), np.int32)
        n_strips = -(-labels.n_classes // STRIP)
        waiting = (np.empty(n_strips * WAITING, np.uint16), np.zeros(n_strips, np.int32))
        for rows, values in chunks:
            known = (_starts(labels, rows), columns, explicit)
            by = (grid.lows, grid.scales, fewest, spans)
            odd = count_scores(values, *by, *known, *waiting, counts)
            if odd >= 0:
                refuse_odd_score(labels, rows.start + odd, values[odd], is_unscored)
        count_last(*waiting, counts)
        return counts

    counts = np.zeros((labels.n_classes, N_BINS), np.int64)
    for part in scores.map(count):
        counts += part
    counts[:, 0] = labels.n_implicit - counts[:, 1:].sum(axis=1)
    return BinCounts(scores.n_clips, grid, counts, explicit)


def keep(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    grid: Grid,
    is_hot: NDArray[np.bool_],
    n_kept: NDArray[np.int64],
) -> Kept:
    """Keep the implicit scores in the bins ``is_hot`` [class, bin], in one pass.

    Their number ``n_kept`` [class] is what :func:`count_bins` found.
    """
    scores = open_scores(logits, labels)
    starts = np.concatenate([[0], np.cumsum(n_kept)])
    keys, cursors, lock = np.empty(starts[-1], np.int64), starts[:-1].copy(), Lock()
    hot = as_bits(is_hot)
    explicit = np.ascontiguousarray(labels.columns, np.int32)

    def pick(chunks: Iterator[Chunk]) -> None:
        columns, found = np.empty(0, np.int32), np.empty(0, np.int64)
        for rows, values in chunks:
            if len(columns) < values.size:
                columns = np.empty(values.size, np.int32)
                found = np.empty(values.size, np.int64)
            bins, known = (grid.lows, grid.scales, hot), (_starts(labels, rows), explicit)
            n = pick_scores(values, *bins, *known, columns, found, rows.start)
            with lock:
                place_keys(columns[:n], found[:n], cursors, starts[1:], keys)

    scores.map(pick)
    if not np.array_equal(cursors, starts[1:]):
        raise EarmarkError("the scores changed while they were read; scan them when all is written")
    kept = Kept(scores.n_clips, is_hot, starts, keys)
    n_workers = default_workers()

    def sort_some(first: int) -> None:
        for column in range(first, labels.n_classes, n_workers):
            kept.of(column).sort()

    with ThreadPoolExecutor(n_workers) as pool:
        list(pool.map(sort_some, range(n_workers)))
    return kept


def _starts(labels: LabelSet, rows: slice) -> NDArray[np.int64]:
    """Return where the explicit labels of some clips start, and where the last ones end."""
    return np.ascontiguousarray(labels.starts[rows.start : rows.stop + 1], np.int64)
