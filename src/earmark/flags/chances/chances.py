"""The chance of every implicit label: one object that ranks, counts and says how sure it is.

Without answers by ear it is the first clue of a label (:mod:`earmark.flags.chances.clues`); with
twenty answers or more it is learnt from all clues (:mod:`earmark.flags.chances.learnt`). Either way
labels are looked at a block of clips at a time, in a pass over the scores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from earmark.errors import short_repr
from earmark.flags.chances.by_score import (
    HEARD,
    HEARD_LEAST,
    LOWER_QUARTER,
    REACH,
    TINY,
    as_heard,
)
from earmark.flags.chances.clues import N_CLUES, Clues
from earmark.flags.chances.learnt import LEAST_ANSWERS, Answers, Model, Taught, learn
from earmark.flags.chances.sums import LOWEST, N_STEPS, STEP, Adding, Listed, Sums
from earmark.flags.histograms import Matrix
from earmark.flags.suspects import sort_with_places
from earmark.scores import Chunk, ScoreMatrix
from earmark.storage import new_array, write_aside

TAUGHT_CLIPS, N_TAUGHT, FIRST_SHARE = 2_048, 1_000, 1e-4
"""Clips from which labels are taken that stand for what the labels teach; how many labels, evenly
over the logarithm of their rank by chance; the share of labels up to which ranks are alike."""

ROWS_AT_ONCE, LABELS_AT_ONCE = 256, 1 << 16

FEW = 8
"""Where more labels are asked for than an eighth of the clips, all scores are passed over."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Chances:
    """The chances of a dataset's implicit labels; build it with :func:`find_chances`."""

    clues: Clues
    scores: ScoreMatrix
    model: Model | None = None
    answers: Answers | None = None

    __repr__ = short_repr

    @property
    def is_learnt(self) -> bool:
        """Whether they were learnt by ear."""
        return self.model is not None

    def log_odds(self, rows: slice | NDArray[np.int64], logits: Floats) -> Floats:
        """Return the log-odds [clip, class] of some clips; NaN where there are no chances."""
        return self._log_odds(self.clues.of(rows, logits, self._n_clues))

    @property
    def _n_clues(self) -> int:
        return 1 if self.model is None else N_CLUES

    def _log_odds(self, clues: Floats) -> Floats:
        if self.model is None:
            return np.asarray(clues[:, :, 0])
        return self.model.log_odds(clues)

    def at(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Floats:
        """Return the chances of single labels, given by clip and class; NaN where unknown."""
        if len(rows) > self.scores.n_clips // FEW:
            return self._at_many(rows, columns)
        found = np.empty(len(rows), np.float32)
        for clips, mine, places in _by_clips(rows):
            block = self.log_odds(clips, self.scores.sample(clips))
            found[mine] = expit(block[places, columns[mine]])
        return found

    def of_scored(
        self, rows: NDArray[np.integer], columns: NDArray[np.integer], logits: Floats
    ) -> Floats:
        """Return the same of labels whose scores are known, for which they often need no pass."""
        if self.is_learnt or self.clues.has_raised:
            return self.at(rows, columns)
        found = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), LABELS_AT_ONCE):
            some = slice(start, start + LABELS_AT_ONCE)
            found[some] = expit(self.clues.first(columns[some], logits[some]))
        return found

    def _at_many(self, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Floats:
        """Return the chances of labels of most clips, in a pass over the scores."""
        found = np.empty(len(rows), np.float32)
        by_clip = sort_with_places(np.asarray(rows, np.uint32))

        def look_up(chunks: Iterator[Chunk]) -> None:
            for clips, block in _blocks(chunks):
                # Of the keys' own type: for any other all of them would be copied.
                edges = np.array((clips.start, clips.stop), np.uint64) << np.uint64(32)
                mine = by_clip[slice(*np.searchsorted(by_clip, edges))]
                places, own_rows = mine.astype(np.uint32), mine >> np.uint64(32)
                log_odds = self.log_odds(clips, block)
                at = (own_rows.astype(np.int64) - clips.start, columns[places])
                found[places] = expit(log_odds[at])

        self.scores.map(look_up)
        return found

    def write(self, path: Path, n_clips: int) -> None:
        """Write the log-odds [clip, class] of the first clips as an ``.npy`` file."""
        shape = (n_clips, self.scores.n_classes)
        with write_aside(path) as aside:
            written = new_array(aside, shape)
            self.fill(written)
            del written  # which unmaps it

    def fill(self, matrix: Floats) -> None:
        """Put the log-odds of the first clips into a matrix [clip, class]."""
        for start in range(0, len(matrix), ROWS_AT_ONCE):
            rows = slice(start, min(start + ROWS_AT_ONCE, len(matrix)))
            matrix[rows] = self.log_odds(rows, self.scores.read(rows))

    @functools.cached_property
    def sums(self) -> Sums:
        """What one pass over all labels finds."""
        explicit = np.ascontiguousarray(self.clues.labels.columns, np.int32)

        def add(chunks: Iterator[Chunk]) -> Sums:
            found = Adding(self.scores.n_classes)
            for rows, block in _blocks(chunks):
                clues = self.clues.of(rows, block, self._n_clues)
                log_odds = self._log_odds(clues)
                starts = self.clues.labels.starts[rows.start : rows.stop + 1]
                found.add(rows, block, log_odds, starts, explicit)
                if self.model is not None:
                    is_implicit = self._is_implicit(rows)
                    chances = np.where(is_implicit & np.isfinite(log_odds), expit(log_odds), 0)
                    spread = (chances * (1 - chances))[:, :, None]
                    found.slopes += (spread * np.nan_to_num(clues)).sum(axis=0, dtype=np.float64)
            return found.sums

        parts = self.scores.map(add)
        return sum(parts[1:], parts[0])

    def counts_of_some(self, n_clips: int) -> NDArray[np.int64]:
        """Count the labels of so many clips by their log-odds [class, step], as ``sums`` does.

        The same clips are taken whatever their order, and all if there are no more.
        """
        rows, found = np.sort(self.scores.sample_rows(n_clips)), Adding(self.scores.n_classes)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            clips = rows[start : start + ROWS_AT_ONCE]
            block, labels = self.scores.sample(clips), self.clues.labels.select(clips)
            explicit = np.ascontiguousarray(labels.columns, np.int32)
            places = slice(start, start + len(clips))
            found.add(places, block, self.log_odds(clips, block), labels.starts, explicit)
        return found.sums.counts

    def totals(self, models: Sequence[Model | None]) -> Matrix:
        """Return the sum of all chances by each of some models; None goes by what labels teach."""

        def add(chunks: Iterator[Chunk]) -> Matrix:
            found = np.zeros(len(models))
            for rows, block in _blocks(chunks):
                clues = self.clues.of(rows, block)
                is_counted = self._is_implicit(rows) & np.isfinite(clues[:, :, 0])
                for place, model in enumerate(models):
                    log_odds = clues[:, :, 0] if model is None else model.log_odds(clues)
                    found[place] += expit(log_odds[is_counted]).sum(dtype=np.float64)
            return found

        return np.asarray(np.sum(self.scores.map(add), axis=0))

    def above(self, limits: Matrix) -> Listed:
        """List the implicit labels whose log-odds are at least ``limits`` [class]."""
        if limits.min(initial=np.inf) >= self.sums.likely:
            listed = self.sums.likeliest
            return listed.where(listed.log_odds >= limits[listed.columns])
        return self.where(lambda _, log_odds: np.asarray(log_odds >= limits))

    def where(self, is_wanted: Callable[[slice, Floats], NDArray[np.bool_]]) -> Listed:
        """List the implicit labels that are wanted, told by clips and log-odds [clip, class]."""

        def keep(chunks: Iterator[Chunk]) -> list[Listed]:
            kept = []
            for rows, block in _blocks(chunks):
                log_odds = self.log_odds(rows, block)
                clips, columns = np.nonzero(is_wanted(rows, log_odds) & self._is_implicit(rows))
                chosen = (clips + rows.start, columns.astype(np.int32))
                kept.append(Listed(*chosen, block[clips, columns], log_odds[clips, columns]))
            return kept

        return Listed.joined([one for part in self.scores.map(keep) for one in part])

    def limits_of_best(self, n_labels: int, weights: Matrix, least: float) -> Matrix:
        """Return limits [class] that at least ``n_labels`` reach, alike by chance times weight.

        None is below the log-odds of the chance ``least``.
        """
        edges = LOWEST + STEP * np.arange(N_STEPS)
        worth = expit(edges) * weights[:, None]
        order = np.argsort(-worth, axis=None, kind="stable")
        n_reaching = np.cumsum(self.sums.counts.ravel()[order])
        place = int(np.searchsorted(n_reaching, n_labels))
        least_odds = float(logit(least)) if least > 0 else -np.inf
        if place >= len(order) or order[place] % N_STEPS == 0:  # the lowest step has no lower end
            return np.full(len(weights), least_odds)
        lowest = (worth.ravel()[order[place]] / weights).clip(TINY, 1 - TINY)
        return np.asarray(np.maximum(logit(lowest) - STEP / 2, least_odds))

    def limits_surely(self, chance: float) -> Matrix:
        """Return limits [class] from which on a chance is reached even if few labels are missing.

        That is in the lower quarter of what may be.
        """
        wanted = float(logit(chance))
        if self.model is not None:
            return np.asarray(wanted - LOWER_QUARTER * np.sqrt(self.variances))
        sure, values = (
            as_heard(one) for one in (self.clues.by_score.sure, self.clues.by_score.values)
        )
        is_reached = sure >= wanted
        last = is_reached.shape[1] - 1
        place = np.where(is_reached.any(axis=1), is_reached.argmax(axis=1), last)
        rows = np.arange(len(place))
        return np.asarray(wanted + values[rows, place] - sure[rows, place])

    @property
    def variances(self) -> Matrix:
        """The variance [class] of the logarithm of a class's sum of chances, by ear."""
        assert self.model is not None
        per = np.maximum(self.sums.n_expected, TINY)
        return self.model.variances(self.sums.slopes / per[:, None], self.sums.doubt / per)

    def n_right(self, listed: Listed) -> tuple[float, float]:
        """Return between which numbers the missing ones among some labels lie."""
        if self.model is not None:
            reach = REACH * np.sqrt(self.variances)[listed.columns]
            ends = (expit(listed.log_odds - reach), expit(listed.log_odds + reach))
        else:
            ends = self._ends(listed)
        low, high = (float(np.nansum(end)) for end in ends)
        return low, high

    def _ends(self, listed: Listed) -> tuple[Matrix, Matrix]:
        """Return the chances of labels if as few, and if as many, are missing as may be."""
        by_score = self.clues.by_score
        histograms = by_score.histograms
        places = (listed.logits - histograms.low[listed.columns]) / histograms.width[listed.columns]
        bins = places.clip(0, by_score.values.shape[1] - 1).astype(np.int64)
        at = (listed.columns, bins)
        # Back to the clue, which is beyond doubt where the chance is as high as it may be.
        clue = logit((expit(listed.log_odds.astype(np.float64)) / HEARD).clip(TINY, 1 - TINY))
        low, high = (
            expit(clue + end[at] - by_score.values[at]) for end in (by_score.low, by_score.high)
        )
        return HEARD_LEAST * low, high

    def limits_of_counts(self, n_labels: NDArray[np.int64]) -> Matrix:
        """Return limits [class] that at least so many labels [class] reach; inf for none."""
        n_reaching = self.sums.counts[:, ::-1].cumsum(axis=1)
        steps = (n_reaching < n_labels[:, None]).sum(axis=1)
        limits = LOWEST + STEP * (N_STEPS - 1 - steps).clip(0)
        limits = np.where(steps >= N_STEPS - 1, -np.inf, limits)
        return np.where(n_labels > 0, limits, np.inf)

    def _is_implicit(self, rows: slice) -> NDArray[np.bool_]:
        return np.asarray(self.clues.labels.states(rows) == 0)


def find_chances(clues: Clues, scores: ScoreMatrix, answers: Answers | None = None) -> Chances:
    """Find the chances of labels: by what the labels teach, and by ear where that was heard.

    Fewer than twenty answers are left alone; so are those about classes without chances.
    """
    if answers is None:
        return Chances(clues, scores)
    answers = answers.select(clues.by_score.has_chances[answers.columns])
    if len(answers) < LEAST_ANSWERS:
        return Chances(clues, scores)
    taught = find_taught(clues, scores)
    found = clues_of(clues, scores, answers.rows, answers.columns)
    model = learn(answers, found, taught, scores.n_classes)
    return Chances(clues, scores, model, answers)


def clues_of(
    clues: Clues, scores: ScoreMatrix, rows: NDArray[np.integer], columns: NDArray[np.integer]
) -> Floats:
    """Return the clues [label, clue] of single labels, given by clip and class."""
    found = np.empty((len(rows), N_CLUES), np.float32)
    for clips, mine, places in _by_clips(rows):
        block = clues.of(clips, scores.sample(clips))
        found[mine] = block[places, columns[mine]]
    return found


def find_taught(clues: Clues, scores: ScoreMatrix) -> Taught:
    """Return labels of all chances, from some of the clips; the same whatever the clips' order."""
    rows = np.sort(scores.sample_rows(TAUGHT_CLIPS))
    parts = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        clips = rows[start : start + ROWS_AT_ONCE]
        block = clues.of(clips, scores.sample(clips))
        is_implicit = (clues.labels.states(clips) == 0) & np.isfinite(block[:, :, 0])
        parts.append(block[is_implicit])
    every = np.concatenate(parts)
    order = np.lexsort((every[:, 1], every[:, 0]))[::-1]
    # Ranks at even steps of their logarithm, all of them where there are few.
    first = max(FIRST_SHARE * len(order), 1.0)
    steps = np.linspace(0, np.log1p(len(order) / first), N_TAUGHT, endpoint=False)
    ranks = np.unique((first * np.expm1(steps)).astype(np.int64)).clip(0, len(order) - 1)
    chosen = every[order[ranks]]
    return Taught(chosen, chosen[:, 0].astype(np.float64))


def _blocks(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Cut chunks into blocks whose clues stay in a core's cache."""
    for rows, values in chunks:
        for start in range(0, len(values), ROWS_AT_ONCE):
            block = values[start : start + ROWS_AT_ONCE]
            first = rows.start + start
            yield slice(first, first + len(block)), block


def _by_clips(
    rows: NDArray[np.integer],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield some clips at a time, which labels are of them, and the place of each one's clip."""
    order = np.argsort(rows, kind="stable")
    clips, starts = np.unique(np.asarray(rows, np.int64)[order], return_index=True)
    ends = np.append(starts[1:], len(rows))
    for first in range(0, len(clips), ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        mine = order[starts[part][0] : ends[part][-1]]
        yield clips[part], mine, np.searchsorted(clips[part], np.asarray(rows, np.int64)[mine])
