"""The highest implicit scores of each class, exactly, without holding the scores.

A sample of clips gives each class a *bound*: a score that lies a little below the ones asked for.
One pass then keeps the implicit scores above it. What a shard contributes is a value,
:class:`TopScores`, and the values of several shards or machines are merged:

>>> labels = LabelSet.from_dense([[0], [0], [1], [0]])
>>> bounds = Bounds.above(np.array([-2.0]))
>>> first = collect(labels.select([0, 1]), np.array([[-1.0], [-3.0]]), bounds)
>>> second = collect(labels.select([2, 3]), np.array([[5.0], [0.5]]), bounds)
>>> first.merge(second).classes[0].kept
array([-1. ,  0.5], dtype=float32)

Chosen by timing the parts on one core, in nanoseconds per score: ``bincount`` into a histogram 4.5
(and no faster in two threads), a sort of whole columns 5.1, but 3.3 to read, transpose, compare,
keep the highest fifth and sort that.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from threading import Lock, local

import numpy as np
from numpy.typing import NDArray

from earmark.engine import default_workers
from earmark.errors import EarmarkError
from earmark.labels import IMPLICIT, LabelSet
from earmark.scores import (
    Chunk,
    ScoreMatrix,
    ScoresLike,
    check_finite,
    find_unscored,
    open_scores,
)

SAMPLE_CLIPS = 4096
"""Clips from which bounds are guessed: the top 20 % is then known to about one in a hundred."""

MARGIN_SDS = 4.0
"""How far below the sample's order statistic a bound lies, in its standard deviations."""

TIED_SHARE = 1 / 64
"""A bound that takes this share of the sample is a tie: counted rather than kept."""

SLICE_SCORES = 1 << 18
"""Scores compared at a time: what is made of them stays in a core's cache."""

TAIL_BINS = 2048
"""Bins of the histogram that is remembered of a class's kept scores."""

KEPT_BYTES = 256 << 20
"""Memory for kept scores; classes that need more are done in groups, one pass each."""


@dataclass(frozen=True)
class Bounds:
    """What a pass keeps of each class [class].

    Scores above ``kept``; those above ``listed`` with their clips; where ``is_tied``, the scores
    equal to ``kept`` are counted. Room is made at once for ``n_expected`` kept scores.
    """

    kept: NDArray[np.float32]
    listed: NDArray[np.float32]
    is_tied: NDArray[np.bool_]
    n_expected: NDArray[np.int64]

    @classmethod
    def above(cls, values: NDArray[np.floating]) -> Bounds:
        """Keep and list the scores strictly above given values [class]."""
        floats = values.astype(np.float32)
        return cls(floats, floats, np.zeros(len(floats), bool), np.zeros(len(floats), np.int64))

    def of(self, columns: slice) -> Bounds:
        """Return the bounds of some classes."""
        return Bounds(
            self.kept[columns],
            self.listed[columns],
            self.is_tied[columns],
            self.n_expected[columns],
        )


@dataclass(frozen=True)
class ClassTop:
    """The highest implicit scores of one class.

    ``kept`` float32 ascending; ``listed`` float32 and their clips ``rows`` from high to low, equal
    scores in the clips' order; ``n_at_bound`` more scores equal ``bound``.
    """

    kept: NDArray[np.float32]
    listed: NDArray[np.float32]
    rows: NDArray[np.int32]
    n_at_bound: int
    bound: np.float32
    listed_bound: np.float32

    def has(self, n_kept: int, n_listed: int) -> bool:
        """Tell whether the (n + 1)-th largest score is known, and all listed that are greater."""
        if len(self.kept) + self.n_at_bound <= max(n_kept, n_listed):
            return False
        return not n_listed or bool(self.largest(np.array([n_listed]))[0][0] >= self.listed_bound)

    def largest(self, k: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the (k + 1)-th largest scores, where known, and how many scores are greater."""
        known = np.concatenate([np.array([self.bound]), self.kept])
        values = known[np.maximum(len(self.kept) - k, 0)]
        return values, len(self.kept) - np.searchsorted(self.kept, values, side="right")


@dataclass(frozen=True)
class TopScores:
    """The highest implicit scores of each class in ``n_clips`` clips, and all explicit scores.

    ``explicit`` float32 [explicit label] is parallel to the labels' ``columns`` and ``present``.
    """

    n_clips: int
    classes: tuple[ClassTop, ...]
    explicit: NDArray[np.float32]

    def merge(self, other: TopScores) -> TopScores:
        """Append the scores of further clips, collected with the same bounds."""
        if [top.bound for top in self.classes] != [top.bound for top in other.classes]:
            raise EarmarkError("shards can be merged only if they were collected with one bound")
        pairs = zip(self.classes, other.classes, strict=True)
        joined = tuple(_joined(one, two, self.n_clips) for one, two in pairs)
        explicit = np.concatenate([self.explicit, other.explicit])
        return TopScores(self.n_clips + other.n_clips, joined, explicit)


def _joined(one: ClassTop, two: ClassTop, n_clips: int) -> ClassTop:
    listed = np.concatenate([one.listed, two.listed])
    order = descending(listed)
    return ClassTop(
        np.sort(np.concatenate([one.kept, two.kept])),
        listed[order],
        np.concatenate([one.rows, two.rows + np.int32(n_clips)])[order],
        one.n_at_bound + two.n_at_bound,
        one.bound,
        one.listed_bound,
    )


@dataclass(frozen=True)
class Tail:
    """A fine histogram of one class's kept scores: bins of ``width`` from ``low`` upwards."""

    low: float
    width: float
    counts: NDArray[np.int64]
    bound: np.float32

    @classmethod
    def of(cls, top: ClassTop) -> Tail:
        """Count the kept scores of a class."""
        low, high = (float(top.kept[0]), float(top.kept[-1])) if len(top.kept) else (0.0, 0.0)
        edges = np.linspace(low, high, TAIL_BINS + 1)
        places = np.searchsorted(top.kept, edges[1:-1])
        counts = np.diff(places, prepend=0, append=len(top.kept))
        return cls(low, (high - low) / TAIL_BINS, counts, top.bound)

    @property
    def centres(self) -> NDArray[np.float64]:
        """The middle of each bin."""
        return np.asarray(self.low + (np.arange(TAIL_BINS) + 0.5) * self.width, np.float64)


@dataclass(frozen=True)
class ClassSummary:
    """What is remembered of one class when its kept scores are let go.

    ``values`` float32 [point] and ``n_greater`` int64 [point]: the order statistics asked for;
    ``listed`` and ``rows`` as in :class:`ClassTop`.
    """

    values: NDArray[np.float32]
    n_greater: NDArray[np.int64]
    listed: NDArray[np.float32]
    rows: NDArray[np.int32]
    tail: Tail


@dataclass(frozen=True)
class Summary:
    """The summaries of all classes, and the scores of all explicit labels."""

    n_points: int
    classes: tuple[ClassSummary, ...]
    explicit: NDArray[np.float32]

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


def summarise(top: ClassTop, k: NDArray[np.int64], n_implicit: int) -> ClassSummary:
    """Take the (k + 1)-th largest scores [point]: +inf where k is 0, -inf where k >= n."""
    values = np.where(k > 0, np.float32(-np.inf), np.float32(np.inf))
    n_greater = np.minimum(k, n_implicit)
    is_inner = (k > 0) & (k < n_implicit)
    values[is_inner], n_greater[is_inner] = top.largest(k[is_inner])
    return ClassSummary(values, n_greater, top.listed, top.rows, Tail.of(top))


def top_scores(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    n_largest: NDArray[np.int64],
    n_listed: NDArray[np.int64] | int = 0,
) -> Summary:
    """Find the (k + 1)-th largest implicit scores for k = ``n_largest`` [point, class].

    All scores greater than the (n_listed + 1)-th largest come with their clips. Takes one pass
    over the scores, or as many as the memory for kept scores requires.
    """
    scores = open_scores(logits, labels)
    n_listed = np.broadcast_to(n_listed, n_largest.shape[1:])
    n_kept = np.maximum(n_largest.max(axis=0, initial=0), n_listed)
    bounds = guess_bounds(labels, scores, n_kept, n_listed)
    wanted = np.minimum([n_kept, n_listed], np.maximum(labels.n_implicit - 1, 0)).T.tolist()
    found: list[ClassSummary] = []
    for columns in _groups(n_kept):
        part = collect(labels, scores, bounds, columns)
        for column, top in enumerate(part.classes, start=columns.start):
            if any(wanted[column]) and not top.has(*wanted[column]):
                top = _whole_column(labels, scores, column)  # the sample misled
            found.append(summarise(top, n_largest[:, column], int(labels.n_implicit[column])))
    return Summary(len(n_largest), tuple(found), part.explicit)


def _whole_column(labels: LabelSet, scores: ScoreMatrix, column: int) -> ClassTop:
    everything = Bounds.above(np.full(labels.n_classes, -np.inf))
    return collect(labels, scores, everything, slice(column, column + 1)).classes[0]


def _groups(n_kept: NDArray[np.int64]) -> Iterator[slice]:
    """Cut the classes into runs whose kept scores fit in the memory set aside for them."""
    group = np.cumsum(n_kept) * np.dtype(np.float32).itemsize // KEPT_BYTES
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(n_kept)]
    return (slice(start, stop) for start, stop in pairwise(edges))


def guess_bounds(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    n_kept: NDArray[np.int64],
    n_listed: NDArray[np.int64],
) -> Bounds:
    """Guess bounds [class] that lie below the (n + 1)-th largest implicit score of each class.

    The guess comes from clips spread evenly over all; -inf where they are too few to tell, +inf
    where n is 0.
    """
    sample, n_sample = sample_scores(labels, logits)
    n_implicit = np.maximum(labels.n_implicit, 1)
    kept = _below_share(sample, n_sample, n_kept / n_implicit)
    listed = _below_share(sample, n_sample, n_listed / n_implicit)
    is_tied = (sample == kept[:, None]).sum(axis=1) > TIED_SHARE * n_sample
    is_tied &= np.isfinite(kept)
    kept = np.where(is_tied, kept, _step_down(kept))
    share = (sample > kept[:, None]).sum(axis=1) / np.maximum(n_sample, 1)
    n_expected = (1.05 * share * labels.n_implicit).astype(np.int64) + 64
    return Bounds(kept, _step_down(listed), is_tied, n_expected)


def sample_scores(
    labels: LabelSet, logits: ScoresLike | ScoreMatrix
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return implicit scores [class, clip] of clips spread evenly over all, and their number.

    Each row ascends, after -inf in place of explicit labels.
    """
    scores = open_scores(logits, labels)
    n_sample = min(SAMPLE_CLIPS, scores.n_clips)
    rows = np.linspace(0, scores.n_clips, n_sample, endpoint=False, dtype=np.int64)
    is_implicit = labels.states(rows).T == IMPLICIT
    sample = np.where(is_implicit, scores.sample(rows).T, np.float32(-np.inf))
    sample.sort(axis=1)
    return sample, is_implicit.sum(axis=1)


def _below_share(
    sample: NDArray[np.float32], n_sample: NDArray[np.int64], share: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return a score [class] that very likely lies below the top share of all scores.

    ``sample`` [class, clip] ascends; the last ``n_sample`` [class] of a row are real.
    """
    sd = np.sqrt(n_sample * share * np.maximum(1 - share, 0))
    ranks = np.ceil(n_sample * share + MARGIN_SDS * (sd + 1)).astype(np.int64)
    padded = np.pad(sample, ((0, 0), (1, 0)), constant_values=-np.inf)
    places = np.where(ranks > n_sample, 0, sample.shape[1] + 1 - ranks)
    scores = np.take_along_axis(padded, places[:, None], axis=1)[:, 0]
    return np.where(share > 0, scores, np.float32(np.inf))


def _step_down(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the next lower score, so that the scores above it include the value itself."""
    return np.where(np.isfinite(values), np.nextafter(values, np.float32(-np.inf)), values)


def collect(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    bounds: Bounds,
    columns: slice = slice(None),
) -> TopScores:
    """Keep the implicit scores above the bounds [class] of some classes, in one pass."""
    scores = open_scores(logits, labels)
    is_unscored = find_unscored(scores)
    shelves = _Shelves(bounds.of(columns))
    explicit = np.empty(len(labels.columns), np.float32)
    first, last, _ = columns.indices(labels.n_classes)
    warm = local()  # each thread's buffer: fresh memory is slow to touch

    def keep(segment: slice, chunks: Iterator[Chunk]) -> None:
        shape = (last - first, segment.stop - segment.start)
        if getattr(warm, "shape", None) != shape:
            warm.shape, warm.block = shape, np.empty(shape, np.float32)
        for rows, values in chunks:
            check_finite(labels, (rows, values), is_unscored)
            places = slice(labels.starts[rows.start], labels.starts[rows.stop])
            clips, classes = labels.clip_rows[places] - rows.start, labels.columns[places]
            explicit[places] = values[clips, classes]
            block = warm.block[:, rows.start - segment.start : rows.stop - segment.start]
            block[...] = values[:, first:last].T  # [class, clip]
            is_inside = (first <= classes) & (classes < last)
            block[classes[is_inside] - first, clips[is_inside]] = np.nan  # which is above nothing
        shelves.add(warm.block, segment.start)

    scores.map(keep)
    return TopScores(scores.n_clips, shelves.tops(), explicit)


class _Shelves:
    """Scores that are kept of each class, as several threads bring them."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        edges = [0, *np.cumsum(bounds.n_expected).tolist()]
        # One large array goes back to the system when it is freed; many small ones may not.
        room = np.empty(edges[-1], np.float32)
        self._kept = [_Growing(room[start:stop]) for start, stop in pairwise(edges)]
        self._listings: list[tuple[int, _Listing]] = []
        self._n_at_bound = np.zeros(len(bounds.kept), np.int64)
        self._lock = Lock()

    def add(self, block: NDArray[np.float32], first_row: int) -> None:
        """Keep what is above the bounds in a block [class, clip]."""
        n_classes, n_clips = block.shape
        step = max(1, SLICE_SCORES // max(n_clips, 1))
        for start in range(0, n_classes, step):
            self._add(block[start : start + step], start, first_row)

    def _add(self, block: NDArray[np.float32], first_class: int, first_row: int) -> None:
        n_classes, n_clips = block.shape
        columns = slice(first_class, first_class + n_classes)
        bounds = self._bounds.of(columns)
        places = np.flatnonzero(block > bounds.kept[:, None])
        kept = block.reshape(-1).take(places)
        starts = np.searchsorted(places, np.arange(n_classes + 1) * n_clips)
        is_listed = kept > np.repeat(bounds.listed, np.diff(starts))
        classes, rows = np.divmod(places[is_listed].astype(np.int32), np.int32(n_clips))
        listing = (classes + np.int32(first_class), rows + np.int32(first_row), kept[is_listed])
        n_at_bound = np.zeros(n_classes, np.int64)
        tied = np.flatnonzero(bounds.is_tied)
        n_at_bound[tied] = np.count_nonzero(block[tied] == bounds.kept[tied, None], axis=1)
        edges = starts.tolist()
        with self._lock:
            self._n_at_bound[columns] += n_at_bound
            self._listings.append((first_row, listing))
            for growing, (start, stop) in zip(self._kept[columns], pairwise(edges), strict=True):
                growing.append(kept[start:stop])

    def tops(self) -> tuple[ClassTop, ...]:
        """Sort what was kept, class by class."""
        classes, rows, listed = self._listing()
        edges = np.searchsorted(classes, np.arange(len(self._kept) + 1)).tolist()

        def top(column: int) -> ClassTop:
            mine = slice(edges[column], edges[column + 1])
            order = descending(listed[mine])
            return ClassTop(
                self._kept[column].sorted(),
                listed[mine][order],
                rows[mine][order],
                int(self._n_at_bound[column]),
                self._bounds.kept[column],
                self._bounds.listed[column],
            )

        with ThreadPoolExecutor(default_workers()) as pool:
            return tuple(pool.map(top, range(len(self._kept))))

    def _listing(self) -> _Listing:
        """Join the chunks' listings in the clips' order, then sort them by class."""
        empty = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        parts = [listing for _, listing in sorted(self._listings, key=itemgetter(0))]
        classes, rows, listed = (np.concatenate(part) for part in zip(empty, *parts, strict=True))
        # numpy sorts 16-bit integers by radix: linear, and stable
        is_small = len(self._kept) < 1 << 16
        order = np.argsort(classes.astype(np.uint16) if is_small else classes, kind="stable")
        return classes[order], rows[order], listed[order]


_Listing = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]
"""Class, clip and score of each listed label."""


class _Growing:
    """An array that is filled from the left, and doubled when its room does not suffice."""

    def __init__(self, room: NDArray[np.float32]) -> None:
        self._array, self._n = room, 0

    def append(self, values: NDArray[np.float32]) -> None:
        stop = self._n + len(values)
        if stop > len(self._array):
            grown = np.empty(2 * stop, np.float32)
            grown[: self._n] = self._array[: self._n]
            self._array = grown
        self._array[self._n : stop] = values
        self._n = stop

    def sorted(self) -> NDArray[np.float32]:
        scores = self._array[: self._n]
        scores.sort()
        return scores


def descending(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the order from high to low that leaves equal values in place.

    The bits of a float32 order like an integer of its sign. With the place put below them, one
    sort of integers does a stable argsort's work in a fraction of its time.
    """
    bits = values.view(np.int32).astype(np.int64)
    ordered = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return np.sort(-ordered << 32 | np.arange(len(values))) & 0xFFFFFFFF
