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
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from earmark.flags.histograms import N_BINS, Histograms, Matrix
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

LEAST_POSITIVES = 5
"""Positives from which on a class's AUC counts in the median."""


@dataclass(frozen=True)
class Knowledge:
    """How well scores know labels.

    ``auc`` [class]: NaN without positives or implicit labels. ``is_class_known`` [class]: whether
    it is above chance, 95 times in 100. ``n_positives`` that have scores. ``is_order_of_classes``
    tells that the clips seem to be in order where the classes are not.
    """

    auc: Matrix
    is_class_known: NDArray[np.bool_]
    level: Level
    n_positives: int
    median_auc: float
    is_order_of_classes: bool = False

    @property
    def is_enough(self) -> bool:
        """Whether chances and counts can be had from the scores."""
        return self.level not in ("nothing", "unclear")

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
                f"no higher than shuffled ones (AUC {self.median_auc:.2f}; 0.50 is chance). No "
                "chances, no counts."
            )
        known = f"The scores know {self.level} of your labels"
        auc = f"AUC {self.median_auc:.2f}; 0.50 is chance, 1.00 is perfect"
        doubt = " Most flags will be wrong." if self.level == "little" else ""
        return f"{known} ({auc}).{doubt}"


def find_knowledge(labels: LabelSet, scores: ScoreMatrix, histograms: Histograms) -> Knowledge:
    """Hold the explicit positives' scores against the implicit ones', and against shuffled ones."""
    auc, n = _auc(histograms), histograms.positives.sum(axis=1)
    is_measured = np.isfinite(auc)
    is_counted = is_measured & (n >= min(LEAST_POSITIVES, n[is_measured].max(initial=0)))
    median = float(np.median(auc[is_counted])) if is_counted.any() else np.nan
    is_class_known = _is_above_chance(auc, n, histograms.implicit.sum(axis=1))
    verdict = _against_shuffled(labels, scores, histograms, is_measured)
    level: Level = "little" if median < LITTLE else "something" if median < MUCH else "much"
    return Knowledge(
        auc,
        is_class_known,
        "nothing" if verdict == "classes" else verdict or level,
        int(n[is_measured].sum()),
        median,
        is_order_of_classes=verdict == "classes",
    )


def _against_shuffled(
    labels: LabelSet, scores: ScoreMatrix, histograms: Histograms, is_measured: NDArray[np.bool_]
) -> Literal["nothing", "unclear", "classes"] | None:
    """Return None if scores are better than shuffled ones; else what they do not tell."""
    is_used = labels.present & is_measured[labels.columns]
    labelled = scores.sample_rows(MOST_CLIPS, among=np.unique(labels.clip_rows[is_used]))
    others = np.setdiff1d(scores.sample_rows(MOST_CLIPS), labelled)
    rows = np.concatenate([labelled, scores.sample_rows(MOST_CLIPS, among=others)])
    chosen = labels.select(rows)
    is_used = chosen.present & is_measured[chosen.columns]
    columns = np.flatnonzero(is_measured)
    clip_of = chosen.clip_rows[is_used]
    class_of = np.searchsorted(columns, chosen.columns[is_used])
    if not len(clip_of):
        return "unclear"
    places = _places(histograms.of(is_measured), scores.sample(rows)[:, columns])
    found = float(places[clip_of, class_of].mean())
    by_clips = _shuffled(len(rows), lambda order: places[order[clip_of], class_of])
    if not by_clips.is_beaten_by(found):
        return "unclear" if by_clips.sd > UNCLEAR_SD else "nothing"
    by_classes = _shuffled(len(columns), lambda order: places[clip_of, order[class_of]])
    is_told = len(columns) >= LEAST_CLASSES and by_classes.sd <= UNCLEAR_SD
    return "classes" if is_told and not by_classes.is_beaten_by(found) else None


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


def _places(histograms: Histograms, scores: NDArray[np.float32]) -> Matrix:
    """Return the share of the class's implicit scores that lie below each score [clip, class]."""
    counts = histograms.implicit
    below = (np.cumsum(counts, axis=1) - counts / 2) / counts.sum(axis=1, keepdims=True)
    bins = ((scores - histograms.low) / histograms.width).clip(0, N_BINS - 1).astype(np.int64)
    return np.asarray(below[np.arange(len(counts)), bins])


def _auc(histograms: Histograms) -> Matrix:
    """Return how often a positive outscores an implicit label [class]; NaN without either.

    It comes from a histogram, in which a tie counts half: good to about 0.01.
    """
    positives, implicit = histograms.positives, histograms.implicit
    below = np.cumsum(implicit, axis=1) - implicit / 2
    n_pairs = positives.sum(axis=1) * implicit.sum(axis=1)
    n_won = (positives * below).sum(axis=1)
    return np.where(n_pairs > 0, n_won / np.maximum(n_pairs, 1), np.nan)


def _is_above_chance(auc: Matrix, n: Matrix, n_implicit: Matrix) -> NDArray[np.bool_]:
    """Tell where an AUC [class] is above what shuffled labels give 95 times in 100."""
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = np.sqrt((n + n_implicit + 1) / (12 * n * n_implicit))  # of all permutations, no ties
        return np.asarray(auc > 0.5 + norm.ppf(0.95) * sd)
