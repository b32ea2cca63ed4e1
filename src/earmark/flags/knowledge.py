"""Whether scores know the labels at all, asked before anything is made of them.

If label rows and score rows are in different orders, or the classes are, everything else still
yields numbers: confident and wrong. So explicit positives are held against implicit labels (AUC:
how often a positive outscores an implicit label; 0.5 is chance) and against what the same scores
give when clips, or classes, are shuffled. Scores that do no better than shuffled ones do not know
the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from earmark.errors import short_repr
from earmark.flags.p_missing import Floats, Matrix
from earmark.labels import LabelSet
from earmark.scores import ScoreMatrix

Level = Literal["nothing", "unclear", "little", "something", "much"]

LITTLE, MUCH = 0.7, 0.85
"""Median AUC below which scores know little, and from which on they know much."""

MOST_CLIPS, N_SHUFFLES = 2048, 200
"""Clips with positives that are looked at, and as many others; shuffles of clips and classes."""

LEAST_SDS = 2.33
"""How far above shuffled scores real ones must be: one time in a hundred by chance."""

UNCLEAR_SD = 0.07
"""Spread of shuffled scores' AUC above which nothing follows from not being above it."""

LEAST_CLASSES = 5
"""Classes from which on shuffling them tells something."""

DOUBTFUL_POSITIVES = 10
"""Positives from which on a class that is not known is named."""

N_BLOCKS, BLOCK_POSITIVES = 8, 20
"""Parts, one after the other, that the clips are cut into, and the fewest positives of each."""

LEAST_POSITIVES = 5
"""Positives from which on a class's AUC counts in the median."""

MIN_POSITIVES, IN_SAMPLE_RATIO = 30, 0.05
"""Positives of the classes that are asked whether scores are in-sample; implicit labels per
positive, above the positives' median, below which they look so."""


@dataclass(frozen=True)
class Knowledge:
    """How well scores know labels.

    ``auc`` [class]: NaN without positives or implicit labels. ``is_class_known`` [class]: whether
    it is above chance, 95 times in 100. ``n_positives`` that have scores. ``is_order_of_classes``
    tells that the clips seem to be in order where the classes are not; ``unknown_rows`` are clips
    in a row whose labels are not known where others' are.
    """

    auc: Matrix
    is_class_known: NDArray[np.bool_]
    level: Level
    n_positives: int
    median_auc: float
    is_class_doubtful: NDArray[np.bool_]
    is_order_of_classes: bool = False
    unknown_rows: range | None = None

    __repr__ = short_repr

    @property
    def is_enough(self) -> bool:
        """Whether chances and counts can be had from the scores."""
        return self.level not in ("nothing", "unclear")

    @property
    def rows_told(self) -> str | None:
        """A doubt about the order of some clips, where there is one."""
        if self.unknown_rows is None or not self.is_enough:
            return None
        first, last = self.unknown_rows[0] + 1, self.unknown_rows[-1] + 1
        return (
            f"from about row {first:,} to row {last:,} the scores do not know the labels, "
            "elsewhere they do: is a row missing, doubled or out of order there?"
        )

    @property
    def told(self) -> str:
        """One sentence or two for people."""
        if self.level == "unclear":
            return (
                "Nobody can tell whether these scores know your labels: there "
                f"{'is' if self.n_positives == 1 else 'are'} only {self.n_positives} scored "
                f"positive{'' if self.n_positives == 1 else 's'}. No chances, no counts."
            )
        if self.level == "nothing":
            what = "order of the classes" if self.is_order_of_classes else "order"
            return (
                f"These scores do not know your labels; is the {what} right? Labelled clips score "
                f"no higher than shuffled ones (AUC {self.median_auc:.2f} in the median class; 0.5 "
                "is chance). No chances, no counts."
            )
        known = f"The scores know {self.level} of your labels"
        auc = f"AUC {self.median_auc:.2f} in the median class; 0.5 is chance, 1 is perfect"
        doubt = " Most flags will be wrong." if self.level == "little" else ""
        return f"{known} ({auc}).{doubt}"


def find_knowledge(
    labels: LabelSet, scores: ScoreMatrix, sample: Floats, explicit: Floats
) -> Knowledge:
    """Compare the explicit positives' scores with the implicit ones', and with shuffled ones.

    ``sample`` [class, clip] ascends: implicit scores of some clips after -inf in place of explicit
    labels. ``explicit`` are the scores of the explicit labels.
    """
    n_implicit = np.isfinite(sample).sum(axis=1)
    is_used = labels.present & np.isfinite(explicit) & (n_implicit > 0)[labels.columns]
    columns = labels.columns[is_used].astype(np.int64)
    n = np.bincount(columns, minlength=labels.n_classes).astype(np.float64)
    won = np.bincount(columns, _places_of(sample, columns, explicit[is_used]), labels.n_classes)
    auc = np.where(n > 0, won / np.maximum(n, 1), np.nan)
    is_measured, median = np.isfinite(auc), median_auc(auc, n)
    is_class_known = _is_above_chance(auc, n, n_implicit)
    drawn = _drawn(labels, scores, sample, is_measured)
    verdict = _against_shuffled(drawn)
    level: Level = "little" if median < LITTLE else "something" if median < MUCH else "much"
    return Knowledge(
        auc,
        is_class_known,
        "nothing" if verdict == "classes" else verdict or level,
        int(n.sum()),
        median,
        is_class_doubtful=is_measured & ~is_class_known & (n >= DOUBTFUL_POSITIVES),
        is_order_of_classes=verdict == "classes",
        unknown_rows=_unknown_rows(drawn, auc[is_measured]),
    )


def in_sample_warning(
    labels: LabelSet,
    explicit: Floats,
    count_above: Callable[[Floats], NDArray[np.int64]],
    *,
    out_of_fold: bool = False,
) -> str | None:
    """Say so if the scores look as if the teacher had been trained on these very labels.

    A teacher that saw the missing labels as negatives has pushed their scores down. Of the classes
    with at least 30 positives, half then have under a twentieth as many implicit labels as
    positives above the positives' median. None without such a class. ``count_above`` counts the
    implicit labels above limits [class]. Scores that are called ``out_of_fold`` are doubted without
    the advice to make them so.
    """
    is_used = labels.present & np.isfinite(explicit)
    columns, values = labels.columns[is_used], explicit[is_used]
    n = np.bincount(columns, minlength=labels.n_classes)
    is_large = n >= MIN_POSITIVES
    if not is_large.any():
        return None
    order = np.lexsort((values, columns))
    middle = np.cumsum(n) - n + (n - 1) // 2
    medians = np.full(labels.n_classes, np.inf, np.float32)
    medians[is_large] = values[order][middle[is_large]]
    n_above, n_half = count_above(medians)[is_large], n[is_large] / 2
    if np.median(n_above / n_half) >= IN_SAMPLE_RATIO:
        return None
    advice = ", though its scores are called out of fold" if out_of_fold else "; score out of fold"
    return (
        f"in half of the classes fewer than {IN_SAMPLE_RATIO:.0%} as many implicit labels as "
        "positives score above the positives' median: either hardly a label is missing, or the "
        f"teacher was trained on these labels and hides what is missing{advice}"
    )


def median_auc(auc: Matrix, n_positives: Matrix) -> float:
    """Return the AUC of the class in the middle: the one number for all classes together.

    Wherever an AUC is told without a class, it is this one. Classes [class] with few positives do
    not count where others have more; NaN without any.

    >>> median_auc(np.array([0.9, 0.6, 0.7, np.nan, 0.1]), np.array([9, 9, 9, 9, 1]))
    0.7
    """
    is_measured = np.isfinite(auc)
    least = min(LEAST_POSITIVES, n_positives[is_measured].max(initial=0))
    is_counted = is_measured & (n_positives >= least)
    return float(np.median(auc[is_counted])) if is_counted.any() else np.nan


@dataclass(frozen=True)
class _Sample:
    """Some clips ``rows``, most with positives, and the ``places`` of their scores [clip, class].

    A place is the share of the class's implicit scores below. ``clip_of`` and ``class_of`` tell
    where in it the positives are.
    """

    rows: NDArray[np.int64]
    places: Matrix
    clip_of: NDArray[np.int64]
    class_of: NDArray[np.int64]

    @property
    def of_positives(self) -> Matrix:
        return np.asarray(self.places[self.clip_of, self.class_of])


def _drawn(
    labels: LabelSet, scores: ScoreMatrix, sample: Floats, is_measured: NDArray[np.bool_]
) -> _Sample:
    is_used = labels.present & is_measured[labels.columns]
    clips = labels.clip_rows[is_used]  # ascending
    labelled = scores.sample_rows(MOST_CLIPS, among=clips[np.diff(clips, prepend=-1) > 0])
    others = np.setdiff1d(scores.sample_rows(MOST_CLIPS), labelled)
    rows = np.concatenate([labelled, scores.sample_rows(MOST_CLIPS, among=others)])
    chosen, columns = labels.select(rows), np.flatnonzero(is_measured)
    is_used = chosen.present & is_measured[chosen.columns]
    values = scores.sample(rows)[:, columns]
    places = np.empty(values.shape)
    for place, column in enumerate(columns):
        places[:, place] = _places(sample[column], values[:, place])
    class_of = np.searchsorted(columns, chosen.columns[is_used])
    return _Sample(rows, places, chosen.clip_rows[is_used], class_of)


def _against_shuffled(sample: _Sample) -> Literal["nothing", "unclear", "classes"] | None:
    """Return None if scores are better than shuffled ones; else what they do not tell."""
    places, clip_of, class_of = sample.places, sample.clip_of, sample.class_of
    if not len(clip_of):
        return "unclear"
    found = float(sample.of_positives.mean())
    n_clips, n_classes = places.shape
    every = places.reshape(-1)  # from which numbers are taken twice as fast as by two indices
    by_clips = _shuffled(n_clips, lambda order: every.take(order[clip_of] * n_classes + class_of))
    if not by_clips.is_beaten_by(found):
        return "unclear" if by_clips.sd > UNCLEAR_SD else "nothing"
    first = clip_of * n_classes
    by_classes = _shuffled(n_classes, lambda order: every.take(first + order[class_of]))
    is_told = n_classes >= LEAST_CLASSES and by_classes.sd <= UNCLEAR_SD
    return "classes" if is_told and not by_classes.is_beaten_by(found) else None


def _unknown_rows(sample: _Sample, auc: Matrix) -> range | None:
    """Return clips in a row whose positives score no higher than others, if elsewhere they do.

    A row that is missing or doubled puts all that follow out of order. Blocks of clips are held
    against their own classes, so that classes which come one after the other are no sign.
    """
    n = len(sample.clip_of) // N_BLOCKS
    if n < BLOCK_POSITIVES:
        return None
    rows = sample.rows[sample.clip_of]
    order = np.argsort(rows, kind="stable")[: n * N_BLOCKS].reshape(N_BLOCKS, n)
    found, expected = sample.of_positives[order], auc[sample.class_of[order]]
    sd = 0.5 / np.sqrt(n)  # a uniform variable's is 0.29; more, because clips share labels
    is_unknown = found.mean(axis=1) < 0.5 + 2 * sd
    is_unknown &= (found - expected).mean(axis=1) < -4 * sd
    if not is_unknown.any():
        return None
    there = rows[order[is_unknown]]
    return range(int(there.min()), int(there.max()) + 1)


@dataclass(frozen=True)
class _Shuffled:
    """Mean and sd of what shuffled scores give."""

    mean: float
    sd: float

    def is_beaten_by(self, found: float) -> bool:
        return found > self.mean + LEAST_SDS * self.sd + 1e-12


def _shuffled(n: int, gather: Callable[[NDArray[np.int64]], Matrix]) -> _Shuffled:
    rng = np.random.default_rng(0)
    means = [gather(rng.permutation(n)).mean() for _ in range(N_SHUFFLES)]
    return _Shuffled(float(np.mean(means)), float(np.std(means)))


def _places_of(sample: Floats, columns: NDArray[np.int64], scores: Floats) -> Matrix:
    """Return the share of the class's implicit scores that lie below single scores."""
    places = np.empty(len(scores))
    order = np.argsort(columns, kind="stable")
    starts = np.searchsorted(columns[order], np.arange(len(sample) + 1))
    for column in np.unique(columns).tolist():
        mine = order[starts[column] : starts[column + 1]]
        places[mine] = _places(sample[column], scores[mine])
    return places


def _places(implicit: Floats, scores: Floats) -> Matrix:
    """Return the share of implicit scores, which ascend, below each score; a tie counts half."""
    first = np.searchsorted(implicit, -np.inf, side="right")
    below, up_to = (
        np.searchsorted(implicit, scores, side="left"),
        np.searchsorted(implicit, scores, side="right"),
    )
    n_implicit = max(len(implicit) - int(first), 1)
    return np.asarray(((below + up_to) / 2 - first) / n_implicit)


def _is_above_chance(auc: Matrix, n: Matrix, n_implicit: Matrix) -> NDArray[np.bool_]:
    """Tell where an AUC [class] is above what shuffled labels give 95 times in 100."""
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = np.sqrt((n + n_implicit + 1) / (12 * n * n_implicit))  # of all permutations, no ties
        return np.asarray(auc > 0.5 + NormalDist().inv_cdf(0.95) * sd)
