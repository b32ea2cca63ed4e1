"""Exact order statistics of implicit scores by class, in two passes over scores of any size.

A sample of clips gives each class a grid of bins over the scores asked for. The first pass counts
the scores in every bin, which shows the bins that hold the wanted order statistics. The second pass
keeps the scores of those bins only, about one in a hundred. The grids decide how much is kept, not
the result: a rank below a grid is found among the scores below it. Memory grows with what is kept.

Bin 0 holds the scores not above ``lows[class]``, the next ones are ``1 / scales[class]`` wide, and
the last is open. Subtracting and multiplying keep float32 in order, so bins never overlap.

A kept score and its clip become one integer, a *key*. Keys sort from the highest score to the
lowest, equal scores in the order of their clips; :mod:`earmark.native` makes them:

>>> keys = np.sort(pack(np.array([0.5, 2.0, 0.5], np.float32), np.array([7, 1, 3])))
>>> unpack_scores(keys).tolist(), unpack_rows(keys).tolist()
([2.0, 0.5, 0.5], [1, 3, 7])

The results of a pass over several shards or machines merge:

>>> labels = LabelSet.from_dense([[0], [0], [1], [0]])
>>> grid = Grid.above(np.array([-2.0], np.float32))
>>> first = count_bins(labels.select([0, 1]), np.array([[-1.0], [-3.0]]), grid)
>>> second = count_bins(labels.select([2, 3]), np.array([[5.0], [0.5]]), grid)
>>> first.merge(second).n_from[:, 1]
array([2])

So an engine may run the passes shard by shard; thresholds and flags are those of one machine:

    points = thresholds(labels, "logits.npy", engine=RayEngine())
    flags = flag(labels, "logits.npy", engine=RayEngine())
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.compute import Engine, Meter, Task, default_workers
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.native import count_scores, pick_scores, place_keys
from earmark.scores.matrix import (
    Chunk,
    ScoreMatrix,
    ScoresLike,
    find_unscored,
    open_scores,
    refuse_odd_score,
)

N_BINS = 1024
"""Bins of each class: one holds about a thousandth of the scores that are looked at closely."""

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


CORE_SHARE, CORE_BINS = 0.05, 0.25
"""However far outliers lie: all scores but this share get this share of a grid's bins or more."""


@dataclass(frozen=True)
class Grid:
    """The bins of each class [class]: see :mod:`earmark.scores.order_statistics`."""

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

    ``keys`` int64 (see :func:`pack`) ascend within each class, which has the places
    ``starts[class]:starts[class + 1]``.
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
        for rows, values in chunks:
            known = (_starts(labels, rows), columns, explicit)
            by = (grid.lows, grid.scales, fewest, spans)
            odd = count_scores(values, *by, *known, counts)
            if odd >= 0:
                refuse_odd_score(labels, rows.start + odd, values[odd], is_unscored)
        return counts

    counts = np.zeros((labels.n_classes, N_BINS), np.int64)
    for part in scores.map(count):
        counts += part
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
    is_hot = np.ascontiguousarray(is_hot)
    explicit = np.ascontiguousarray(labels.columns, np.int32)

    def pick(chunks: Iterator[Chunk]) -> None:
        columns, found = np.empty(0, np.int32), np.empty(0, np.int64)
        for rows, values in chunks:
            if len(columns) < values.size:
                columns = np.empty(values.size, np.int32)
                found = np.empty(values.size, np.int64)
            bins, known = (grid.lows, grid.scales, is_hot), (_starts(labels, rows), explicit)
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


SAMPLE_CLIPS, DRAWN_CLIPS = 4096, 2048
"""Clips from which grids are guessed: the top 20 % is then known to about one in a hundred. Fewer
do where nothing else is asked of them."""

MARGIN_SDS = 4.0
"""How far below the sample's order statistic a grid starts, in its standard deviations."""

KEPT_BYTES = 256 << 20
"""Memory for kept scores; classes that need more are done in groups, one pass each."""


@dataclass(frozen=True)
class Passes:
    """How the passes over the scores are made: as here, or shard by shard elsewhere."""

    count: Callable[[LabelSet, ScoreMatrix, Grid], BinCounts] = count_bins
    keep: Callable[[LabelSet, ScoreMatrix, Grid, NDArray[np.bool_], NDArray[np.int64]], Kept] = keep


IN_THIS_PROCESS = Passes()


@dataclass(frozen=True)
class ClassSummary:
    """What is remembered of one class when its kept scores are let go.

    ``values`` float32 [point] and ``n_greater`` int64 [point]: the order statistics asked for.
    ``listed`` int64: keys of the listed scores.
    """

    values: NDArray[np.float32]
    n_greater: NDArray[np.int64]
    listed: NDArray[np.int64]

    def listing(self) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Return scores and clips of the listed labels, from high to low."""
        return unpack_scores(self.listed), unpack_rows(self.listed)


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
    nothing else of the summary is of use: the sample is then that of clips drawn at random.
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
        ClassSummary(no_values, none, kept.of(column).copy())
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
        is_hot[columns, bins] = True
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
            keys = kept.of(column)[:listed].copy()
            yield ClassSummary(values[:-1, place], np.array(points, np.int64), keys)


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


CLIPS_PER_SHARD = 250_000
"""Half a gigabyte of scores of 527 classes."""


def passes_by(engine: Engine | None, clips_per_shard: int = CLIPS_PER_SHARD) -> Passes:
    """Return passes that run as one task for each ``clips_per_shard`` clips of an ``.npy`` file.

    Without an engine the passes are made in this process, over scores of any kind.
    """
    if engine is None:
        return IN_THIS_PROCESS
    return Passes(
        partial(_count_all, engine, clips_per_shard), partial(_keep_all, engine, clips_per_shard)
    )


def _count_all(
    engine: Engine, clips_per_shard: int, labels: LabelSet, scores: ScoreMatrix, grid: Grid
) -> BinCounts:
    parts: list[BinCounts] = _map(engine, clips_per_shard, labels, scores, _count_shard, grid=grid)
    return reduce(BinCounts.merge, parts)


def _keep_all(
    engine: Engine,
    clips_per_shard: int,
    labels: LabelSet,
    scores: ScoreMatrix,
    grid: Grid,
    is_hot: NDArray[np.bool_],
    n_kept: NDArray[np.int64],
) -> Kept:
    del n_kept  # of all shards; each finds its own
    parts: list[Kept] = _map(
        engine, clips_per_shard, labels, scores, _keep_shard, grid=grid, is_hot=is_hot
    )
    return reduce(Kept.merge, parts)


def _map(
    engine: Engine,
    clips_per_shard: int,
    labels: LabelSet,
    scores: ScoreMatrix,
    function: Callable[..., Any],
    **given: Any,
) -> list[Any]:
    if scores.path is None:
        raise EarmarkError("shards are read where they lie: give the path of an .npy file")
    tasks = []
    for first in range(0, max(scores.n_clips, 1), clips_per_shard):
        rows = slice(first, min(first + clips_per_shard, scores.n_clips))
        own = labels.select(np.arange(rows.start, rows.stop))
        arguments = {"labels": own, "path": Path(scores.path), "rows": rows, **given}
        tasks.append(Task(f"scores of clips {rows.start} to {rows.stop}", function, arguments))
    return engine.map(tasks)


def _count_shard(labels: LabelSet, path: Path, rows: slice, grid: Grid, meter: Meter) -> BinCounts:
    found = count_bins(labels, np.load(path, mmap_mode="r")[rows], grid)
    meter.advance(1)
    return found


def _keep_shard(
    labels: LabelSet, path: Path, rows: slice, grid: Grid, is_hot: NDArray[np.bool_], meter: Meter
) -> Kept:
    scores = np.load(path, mmap_mode="r")[rows]
    n_kept = np.where(is_hot, count_bins(labels, scores, grid).counts, 0).sum(axis=1)
    kept = keep(labels, scores, grid, is_hot, n_kept)
    meter.advance(1)
    return kept
