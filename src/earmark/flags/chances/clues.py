"""What is known of an implicit label before anyone listens: its score, its clip, its relatives.

A *clue* is a number. The first is the log-odds that the label is missing by its class and score
(:mod:`earmark.flags.chances.by_score`), raised where a class below it is labelled: a dog that
barks is an animal, yet people confirm only about half of what a class tree implies, so that this
is evidence and never certain. One label in twenty is believed not to be heard whatever all this
says: people differ. The others say what ears may find to matter besides
(:mod:`earmark.flags.chances.learnt`).

Clues are computed for a block of clips at a time by a loop in C; a matrix of them is never
held. Whether the networks of a teacher agree is no clue: clips scored out of fold have one network.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.flags.chances.by_score import ByScore, as_heard
from earmark.flags.chances.relatives import Relatives
from earmark.flags.histograms import Matrix, moments
from earmark.flags.suspects import are_among
from earmark.labels import LabelSet
from earmark.scores import fill_clues

IMPLIED = 3.0
"""What a labelled class below it adds to a label's log-odds: a chance of 0.05 becomes 0.5."""

BORROWED_POSITIVES = 5.0
"""Positives that every class's mean borrows from where those of other classes lie."""

CLIPS_AT_ONCE = 1 << 14
"""Clips whose raised labels are found at a time."""

MOST_CLASSES_TOGETHER = 2_000
"""Classes up to which it is counted which ones are labelled together: a number for each pair."""

CLUES = (
    "by_score",
    "logit",
    "above_implicit",
    "above_positives",
    "rank_in_clip",
    "best_child",
    "best_parent",
    "best_sibling",
    "child_labelled",
    "parent_labelled",
    "sibling_labelled",
    "labels_of_clip",
    "together",
    "prior",
)
"""The clues in their order.

by_score: log-odds, see above; logit: the score; above_implicit, above_positives: the score less
the mean of the class's implicit, or explicit positive, scores, in sds of the former; rank_in_clip:
logarithm of the class's rank among the clip's scores; best_child, best_parent, best_sibling: the
best score of such classes less the label's own, 0 without any; ..._labelled: whether a class below,
above or beside it is labelled; labels_of_clip: log(1 + positives of the clip); together: how much
oftener than by chance the clip's labels come with the class (mean of logarithms); prior: logarithm
of the class's share of positives.
"""

N_CLUES = len(CLUES)

Block = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Clues:
    """Computes the clues of labels; build it with :func:`find_clues`."""

    labels: LabelSet
    by_score: ByScore
    relatives: Relatives
    facts: Block

    def of(self, rows: NDArray[np.int64] | slice, logits: Block, n_clues: int = N_CLUES) -> Block:
        """Return the clues [clip, class, clue] of some clips with their scores [clip, class].

        NaN for classes that have no chances. With one of ``n_clues`` the first alone, which takes a
        tenth of the time.
        """
        out = np.empty((*logits.shape, n_clues), np.float32)
        tree = self.relatives
        fill_clues(
            np.ascontiguousarray(logits, np.float32),
            self._table,
            self._raised,
            self.facts,
            self._together if n_clues > 1 else np.zeros((0, 0), np.float32),
            *self._positives_of(rows),
            *tree.ancestors.parts,
            *tree.descendants.parts,
            *tree.siblings.parts,
            *tree.children.parts,
            *tree.parents.parts,
            out,
        )
        return out

    def first(
        self, columns: NDArray[np.integer], logits: Block, *, is_raised: bool = False
    ) -> Block:
        """Return the first clue of single labels, given by class and score, raised or not.

        The same as :meth:`of` has it, to the bit.
        """
        table = self._raised if is_raised else self._table
        low, per_width = (self.facts[fact].take(columns) for fact in (0, 1))
        last = table.shape[1] - 1
        with np.errstate(over="ignore"):  # far beyond the bins is beyond them
            places = (logits - low) * per_width - np.float32(0.5)
        places = np.fmin(np.fmax(places, 0), np.float32(last))  # 0 for NaN, whose table is NaN
        left = np.minimum(places.astype(np.int64), last - 1)
        part = places - left  # as float64
        left += columns * np.int64(last + 1)
        here = table.take(left)
        left += 1
        part *= table.take(left) - here
        part += here
        return np.asarray(part, np.float32)

    @property
    def has_raised(self) -> bool:
        """Whether labels may be raised: some class is above another."""
        return len(self.relatives.ancestors.columns) > 0

    @property
    def highest_raised(self) -> float:
        """The highest first clue that a raised label can have; -inf where none has any."""
        return float(np.fmax.reduce(self._raised, axis=None, initial=-np.inf))

    @functools.cached_property
    def raised(self) -> tuple[Longs, Ints]:
        """The implicit labels that are raised, because a class below is labelled.

        Where each clip's start, and their classes, one clip after another.
        """
        n_clips = self.labels.n_clips
        blocks = [
            self._raised_in(slice(start, min(start + CLIPS_AT_ONCE, n_clips)))
            for start in range(0, n_clips, CLIPS_AT_ONCE)
        ]
        counts, columns = zip(*blocks, strict=True) if blocks else ((), ())
        starts = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
        return starts, np.concatenate([np.empty(0, np.int32), *columns])

    def _raised_in(self, rows: slice) -> tuple[Longs, Ints]:
        """Return how many labels of each of some clips are raised, and their classes."""
        above, labels = self.relatives.ancestors, self.labels
        starts, positives = self._positives_of(rows)
        n_above = np.diff(above.starts)[positives]
        # Every positive's ancestors, one after another.
        skipped = above.starts[positives] + n_above - np.cumsum(n_above)
        places = np.arange(n_above.sum()) + np.repeat(skipped, n_above)
        clips = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        keys = np.unique(np.repeat(clips, n_above) * labels.n_classes + above.columns[places])
        own = labels.starts[rows.start : rows.stop + 1]
        explicit = np.repeat(np.arange(len(own) - 1), np.diff(own)) * labels.n_classes
        explicit += labels.columns[own[0] : own[-1]]  # ascending
        found, columns = np.divmod(keys[~are_among(keys, explicit)], labels.n_classes)
        return np.bincount(found, minlength=len(own) - 1), columns.astype(np.int32)

    def _positives_of(self, rows: NDArray[np.int64] | slice) -> tuple[Longs, Ints]:
        """Return where each clip's positives start, and their classes, of some clips."""
        if not isinstance(rows, slice):
            return _positives(self.labels.select(rows))
        starts, columns = self._positives
        first, last, _ = rows.indices(self.labels.n_clips)
        own = starts[first : last + 1]
        return own - own[0], columns[own[0] : own[-1]]

    @functools.cached_property
    def _positives(self) -> tuple[Longs, Ints]:
        return _positives(self.labels)

    @functools.cached_property
    def _together(self) -> Block:
        return _lift(self.labels)

    @functools.cached_property
    def _table(self) -> Block:
        return np.ascontiguousarray(as_heard(self.by_score.values), np.float32)

    @functools.cached_property
    def _raised(self) -> Block:
        values, most = self.by_score.values, self.by_score.most
        raised = np.maximum(np.minimum(values + IMPLIED, most), values)
        return np.ascontiguousarray(as_heard(raised), np.float32)


def find_clues(labels: LabelSet, by_score: ByScore, relatives: Relatives) -> Clues:
    """Prepare what the clues of a dataset need to know of its classes."""
    return Clues(labels, by_score, relatives, _facts(labels, by_score))


def _facts(labels: LabelSet, by_score: ByScore) -> Block:
    """Return what the clues of classes need [6, class].

    Begin and inverse width of its bins, mean and inverse sd of its implicit scores, mean of its
    positives' scores, and the logarithm of its prior.
    """
    histograms = by_score.histograms
    low, width = histograms.low, np.maximum(histograms.width, 1e-12)
    (mean, sd), (mean_positive, _) = (
        _in_scores(one, low, width) for one in (histograms.implicit, histograms.positives)
    )
    n = histograms.positives.sum(axis=1)
    has_positives = n > 0
    above = (mean_positive - mean) / sd
    usual = float(above[has_positives].mean()) if has_positives.any() else 0.0
    known = np.where(has_positives, mean_positive, 0.0) * n
    borrowed = BORROWED_POSITIVES * (mean + usual * sd)
    mean_positive = (known + borrowed) / (n + BORROWED_POSITIVES)
    prior = np.log((labels.n_positives + 0.5) / max(labels.n_clips, 1))
    return np.stack([low, 1 / width, mean, 1 / sd, mean_positive, prior]).astype(np.float32)


def _in_scores(counts: Matrix, low: Matrix, width: Matrix) -> tuple[Matrix, Matrix]:
    """Return mean and sd [class] of binned scores; 0 and a bin's width where there are none."""
    mean, variance = moments(np.where(counts.sum(axis=1, keepdims=True) > 0, counts, 1.0))
    return low + (mean + 0.5) * width, np.sqrt(np.maximum(variance, 1.0)) * width


def _lift(labels: LabelSet) -> Block:
    """Return how much oftener than by chance two classes are labelled together, as a logarithm.

    [class, class], 0 for a class with itself; [0, 0] where there are too many classes.
    """
    if labels.n_classes > MOST_CLASSES_TOGETHER:
        return np.zeros((0, 0), np.float32)
    starts, positives = _positives(labels)
    both = _n_together(starts, positives.astype(np.int64), labels.n_classes)
    n = np.diag(both).copy()
    lift = np.log((both + 1) / (np.outer(n, n) / max(labels.n_clips, 1) + 1))
    np.fill_diagonal(lift, 0)
    return np.ascontiguousarray(lift, np.float32)


def _n_together(starts: Longs, positives: Longs, n_classes: int) -> Matrix:
    """Count the clips [class, class] in which two classes are labelled."""
    last = np.repeat(starts[1:], np.diff(starts))  # where each label's clip ends
    pairs, n_pairs = [], 0
    found = np.zeros(n_classes**2, np.int64)
    for step in range(1, int(np.diff(starts).max(initial=1))):
        first = np.flatnonzero(np.arange(step, step + len(last)) < last)
        pairs.append(positives[first] * n_classes + positives[first + step])
        n_pairs += len(first)
        if n_pairs > len(found):
            found += np.bincount(np.concatenate(pairs), minlength=len(found))
            pairs, n_pairs = [], 0
    found += np.bincount(np.concatenate([positives[:0], *pairs]), minlength=len(found))
    above = found.reshape(n_classes, n_classes).astype(np.float64)
    return above + above.T + np.diag(np.bincount(positives, minlength=n_classes))


def _positives(labels: LabelSet) -> tuple[Longs, Ints]:
    """Return where each clip's positives start, and their classes, one clip after another."""
    n_before = np.concatenate([[0], np.cumsum(labels.present)])
    return n_before[labels.starts].astype(np.int64), labels.columns[labels.present].astype(np.int32)
