"""The highest implicit scores of each class, exactly, in few passes and without holding the others.

A sample of clips gives each class a grid of bins over the scores asked for. The first pass counts
the scores in every bin; so the bins that hold the wanted order statistics are known, and the second
pass keeps their scores alone: about one in a hundred. See :mod:`earmark.scores.bins`.

The guess decides how much is kept, never what comes out: a rank below the grid is found among the
scores below it. Memory grows with what is kept, not with the clips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from earmark.labels import LabelSet
from earmark.scores.bins import BinCounts, Grid, Kept, count_bins, from_top, keep
from earmark.scores.keys import N_BINS, first_key, unpack_rows, unpack_scores
from earmark.scores.matrix import ScoreMatrix, ScoresLike, open_scores

SAMPLE_CLIPS, DRAWN_CLIPS = 4096, 2048
"""Clips from which grids are guessed: the top 20 % is then known to about one in a hundred. Fewer
do where nothing else is asked of them."""

MARGIN_SDS = 4.0
"""How far below the sample's order statistic a grid starts, in its standard deviations."""

OUTER_BINS = 256
"""Bins of the histogram of the scores beyond a grid."""

KEPT_BYTES = 256 << 20
"""Memory for kept scores; classes that need more are done in groups, one pass each."""


@dataclass(frozen=True)
class Passes:
    """How the passes over the scores are made: as here, or shard by shard elsewhere."""

    count: Callable[[LabelSet, ScoreMatrix, Grid], BinCounts] = count_bins
    keep: Callable[[LabelSet, ScoreMatrix, Grid, NDArray[np.bool_], NDArray[np.int64]], Kept] = keep


IN_THIS_PROCESS = Passes()


@dataclass(frozen=True)
class Tail:
    """A fine histogram of one class's highest implicit scores: all that are above ``bound``.

    ``centres`` float64 and ``counts`` int64 [bin], ascending; the last bin is not empty.
    """

    centres: NDArray[np.float64]
    counts: NDArray[np.int64]
    bound: np.float32


@dataclass(frozen=True)
class ClassSummary:
    """What is remembered of one class when its kept scores are let go.

    ``values`` float32 [point] and ``n_greater`` int64 [point]: the order statistics asked for.
    ``listed`` int64: keys of the listed scores. ``outer``: keys of the scores beyond the grid.
    """

    values: NDArray[np.float32]
    n_greater: NDArray[np.int64]
    listed: NDArray[np.int64]
    outer: NDArray[np.int64]
    counts: NDArray[np.int64]
    low: np.float32
    scale: np.float32

    def listing(self) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Return scores and clips of the listed labels, from high to low."""
        return unpack_scores(self.listed), unpack_rows(self.listed)

    @cached_property
    def tail(self) -> Tail:
        """The histogram of the scores in the grid and beyond."""
        inner = self.counts[1:-1] if np.isfinite(self.scale) else self.counts[:0]
        centres = float(self.low) + (np.arange(len(inner)) + 0.5) / float(self.scale)
        outer = unpack_scores(self.outer)[::-1].astype(np.float64)
        low, high = (outer[0], outer[-1]) if len(outer) else (0.0, 0.0)
        edges = low + np.arange(OUTER_BINS + 1) * ((high - low) / OUTER_BINS)
        ends = np.concatenate([[0], np.searchsorted(outer, edges[1:-1]), [len(outer)]])
        counts = np.concatenate([inner, ends[1:] - ends[:-1]])
        n_used = int(counts.nonzero()[0].max(initial=-1)) + 1
        centres = np.concatenate([centres, (edges[1:] + edges[:-1]) / 2])[:n_used]
        return Tail(centres.astype(np.float64, copy=False), counts[:n_used], self.low)


@dataclass(frozen=True)
class Summary:
    """The summaries of all classes, the scores of all explicit labels, and a sample of the others.

    ``sample`` float32 [class, clip] and ``n_sampled`` [class] are those of :func:`sample_scores`.
    """

    n_points: int
    classes: tuple[ClassSummary, ...]
    explicit: NDArray[np.float32]
    sample: NDArray[np.float32]
    n_sampled: NDArray[np.int64]

    @property
    def values(self) -> NDArray[np.float32]:
        """Order statistics [point, class]."""
        rows = [one.values for one in self.classes]
        return np.array(rows, np.float32).reshape(len(rows), self.n_points).T

    @property
    def n_greater(self) -> NDArray[np.int64]:
        """Number of greater scores [point, class]."""
        rows = [one.n_greater for one in self.classes]
        return np.array(rows, np.int64).reshape(len(rows), self.n_points).T

    @property
    def n_listed(self) -> NDArray[np.int64]:
        """Number of listed scores [class]."""
        return np.array([len(one.listed) for one in self.classes], np.int64)

    def without_lists(self) -> Summary:
        """Return the same without the listed labels, for those who have taken them."""
        if not self.n_listed.any():
            return self
        none = np.empty(0, np.int64)
        return replace(self, classes=tuple(replace(one, listed=none) for one in self.classes))


def top_scores(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    n_largest: NDArray[np.int64],
    n_listed: NDArray[np.int64] | int = 0,
    passes: Passes = IN_THIS_PROCESS,
    *,
    only_ranks: bool = False,
) -> Summary:
    """Find the (k + 1)-th largest implicit scores for k = ``n_largest`` [point, class].

    All scores greater than the (n_listed + 1)-th largest are listed with their clips. A value is
    +inf where k is 0, and -inf where there are no more than k scores. Takes three passes over the
    scores, or more if the memory for kept scores requires it. With ``only_ranks`` it takes two, and
    nothing else of the summary is of use: tails and sample are then those of clips drawn at random.
    """
    scores = open_scores(logits, labels)
    ranks = np.concatenate([n_largest, np.broadcast_to(n_listed, n_largest.shape[1:])[None]])
    sample, n_sampled = sample_scores(labels, scores, by_order=only_ranks)
    shares = ranks.max(axis=0) / np.maximum(labels.n_implicit, 1)
    found = passes.count(labels, scores, Grid.spread(_lows(sample, n_sampled, shares), sample))
    order = _OrderStatistics(found, ranks)
    groups = _keep_in_groups(labels, scores, found, order.is_hot, passes)
    classes = tuple(one for group in groups for one in order.summarise(*group))
    return Summary(len(n_largest), classes, found.explicit, sample, n_sampled)


def scores_above(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    limits: NDArray[np.float32],
    passes: Passes = IN_THIS_PROCESS,
) -> Summary:
    """List the implicit scores strictly above given ones [class], with their clips."""
    scores = open_scores(logits, labels)
    sample, n_sampled = sample_scores(labels, scores, by_order=True)
    found = passes.count(labels, scores, Grid.spread(limits, sample))
    is_hot = np.broadcast_to(np.arange(N_BINS) > 0, found.counts.shape)
    no_values, none = np.empty(0, np.float32), np.empty(0, np.int64)
    classes = tuple(
        _summary(found, column, kept.of(column), no_values, none, len(kept.of(column)))
        for columns, kept in _keep_in_groups(labels, scores, found, is_hot, passes)
        for column in columns
    )
    return Summary(0, classes, found.explicit, sample, n_sampled)


class _OrderStatistics:
    """Where the (k + 1)-th largest scores, k = ``ranks`` [point, class], are among the kept ones.

    The last point is the listing's: all scores above it are kept.
    """

    def __init__(self, found: BinCounts, ranks: NDArray[np.int64]) -> None:
        n_scores = found.n_from[:, 0]
        self._found, self._ranks, self._n_scores = found, ranks, n_scores
        self._is_inner = (ranks > 0) & (ranks < n_scores)
        bins = np.where(self._is_inner, found.bins_of(ranks), N_BINS - 1)
        columns = np.arange(len(n_scores))
        is_hot = np.zeros(found.counts.shape, bool)
        is_hot[columns, bins] = True  # the last bin always: it has no end, and its scores tell
        is_listed = np.arange(N_BINS) >= bins[-1][:, None]
        is_hot |= is_listed | (ranks[-1] >= np.maximum(n_scores, 1))[:, None]
        self.is_hot = is_hot
        n_dropped = np.where(is_hot, 0, found.counts)[:, ::-1].cumsum(axis=1)[:, ::-1]
        # Scores that are greater than a bin's own and were not kept [point, class].
        self._n_dropped = n_dropped[columns, bins]

    def summarise(self, columns: range, kept: Kept) -> Iterator[ClassSummary]:
        """Take the order statistics of some classes in a row from their kept scores."""
        own = slice(columns.start, columns.stop)
        ranks, is_inner = self._ranks[:, own], self._is_inner[:, own]
        values = np.where(ranks > 0, np.float32(-np.inf), np.float32(np.inf))
        n_greater = np.minimum(ranks, self._n_scores[own])
        n_dropped = self._n_dropped[:, own][is_inner]
        inner = np.nonzero(is_inner)[1] + columns.start
        exact = kept.keys[kept.starts[inner] + ranks[is_inner] - n_dropped]
        values[is_inner] = unpack_scores(exact)
        n_greater[is_inner] = kept.n_below(inner, first_key(exact)) + n_dropped
        for place, column in enumerate(columns):
            *points, listed = n_greater[:, place].tolist()
            told = (values[:-1, place], np.array(points, np.int64), listed)
            yield _summary(self._found, column, kept.of(column), *told)


def _summary(
    found: BinCounts,
    column: int,
    keys: NDArray[np.int64],
    values: NDArray[np.float32],
    n_greater: NDArray[np.int64],
    n_listed: int,
) -> ClassSummary:
    counts, grid = found.counts[column], found.grid
    listed, outer = keys[:n_listed].copy(), keys[: counts[-1]].copy()
    low, scale = grid.lows[column], grid.scales[column]
    return ClassSummary(values, n_greater, listed, outer, counts, low, scale)


def _keep_in_groups(
    labels: LabelSet,
    scores: ScoreMatrix,
    found: BinCounts,
    is_hot: NDArray[np.bool_],
    passes: Passes,
) -> Iterator[tuple[range, Kept]]:
    """Yield all classes, some in a row at a time, with their scores in hot bins [class, bin].

    A pass keeps as many classes as fit in the memory set aside, and at least one.
    """
    n_kept = np.where(is_hot, found.counts, 0).sum(axis=1)
    group = np.cumsum(n_kept) * np.dtype(np.int64).itemsize // KEPT_BYTES
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), labels.n_classes]
    for start, stop in pairwise(edges):
        is_mine = (np.arange(labels.n_classes) >= start) & (np.arange(labels.n_classes) < stop)
        mine = is_hot & is_mine[:, None]
        kept = passes.keep(labels, scores, found.grid, mine, np.where(is_mine, n_kept, 0))
        yield range(start, stop), kept


def sample_scores(
    labels: LabelSet, logits: ScoresLike | ScoreMatrix, *, by_order: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return implicit scores [class, clip] of some clips, and their number.

    The clips are chosen by their scores, which takes a pass over all, or at random ``by_order``:
    then others come out if the clips are in another order. Each row ascends, after -inf in place
    of explicit labels.
    """
    scores = open_scores(logits, labels)
    if by_order:
        n = min(DRAWN_CLIPS, scores.n_clips)
        rows = np.random.default_rng(0).choice(scores.n_clips, n, replace=False)
    else:
        rows = scores.sample_rows(SAMPLE_CLIPS)
    rows.sort()  # a disk is read forwards
    sample, explicit = np.array(scores.sample(rows).T, order="C"), labels.select(rows)
    sample[explicit.columns, explicit.clip_rows] = -np.inf
    sample.sort(axis=1)
    return sample, explicit.n_implicit


def _lows(
    sample: NDArray[np.float32], n_sample: NDArray[np.int64], shares: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return a score [class] that very likely lies below the top share of all scores.

    ``sample`` [class, clip] ascends; the last ``n_sample`` [class] of a row are real. +inf where
    the share is 0.
    """
    sd = np.sqrt(n_sample * shares * np.maximum(1 - shares, 0))
    ranks = np.ceil(n_sample * shares + MARGIN_SDS * (sd + 1)).astype(np.int64)
    scores = from_top(sample, np.minimum(ranks, n_sample))
    lower = np.nextafter(scores, np.float32(-np.inf))  # bins lie above it: so they hold the score
    return np.where(shares > 0, lower, np.float32(np.inf))
