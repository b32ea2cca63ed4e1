"""Histograms of each class's scores: all that counting needs to know of them.

Explicit scores and the highest implicit ones are counted exactly, in one pass over scores that
need not fit in memory; the rest is estimated from a sample of clips.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from earmark.errors import short_repr
from earmark.labels import LabelSet
from earmark.scores import (
    ScoreMatrix,
    ScoresLike,
    Summary,
    Tail,
    find_unscored,
    open_scores,
    top_scores,
)

TAIL_SHARE, TAIL_PER_PRIOR, MOST_TAIL_SHARE = 0.1, 5.0, 0.5
"""The share of implicit scores that tells of missing labels, and is counted exactly: a tenth, or
five times the class's share of positives, but no more than half. Long enough to show the negatives'
slope, short enough for a curve."""

N_BINS = 128

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Histograms:
    """Counts of scores [class, bin]: implicit labels, explicit positives and negatives.

    ``low`` and ``width`` [class] place the bins; scores beyond them count in the outer bins.
    ``certainty`` [class, bin] of the implicit counts is 1 where they are exact, and the sampled
    share of the clips where they are estimated.
    """

    low: Matrix
    width: Matrix
    implicit: Matrix
    positives: Matrix
    negatives: Matrix
    certainty: Matrix

    __repr__ = short_repr

    @property
    def edges(self) -> Matrix:
        """The edges [class, bin + 1] of the bins."""
        return self.low[:, None] + np.arange(N_BINS + 1) * self.width[:, None]

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Whether all scores of a class [class] share one bin, so that none stands out."""
        return np.asarray((self.implicit + self.positives > 0).sum(axis=1) <= 1)

    def implicit_per_positive(self, q: float) -> Matrix:
        """Return implicit labels per positive [class] above a quantile of the positives."""
        is_high = np.arange(N_BINS) >= quantile_bins(self.positives, q)[:, None]
        n_positives = (self.positives * is_high).sum(axis=1)
        return np.asarray((self.implicit * is_high).sum(axis=1) / n_positives)

    def of(self, classes: NDArray[np.bool_]) -> Histograms:
        """Return the histograms of some classes."""
        return Histograms(
            self.low[classes],
            self.width[classes],
            self.implicit[classes],
            self.positives[classes],
            self.negatives[classes],
            self.certainty[classes],
        )


def score_histograms(
    labels: LabelSet, logits: ScoresLike | ScoreMatrix, summary: Summary | None = None
) -> Histograms:
    """Count the scores of each class: explicit ones and high implicit ones exactly.

    Implicit scores below those in the tails of ``summary`` (by default a share that
    :func:`tail_shares` gives) are estimated from a sample of clips.
    """
    scores = open_scores(logits, labels)
    if summary is None:
        shares = tail_shares(labels.n_positives, labels.n_implicit)
        n_kept = (shares * labels.n_implicit).astype(np.int64)
        summary = top_scores(labels, scores, np.where(find_unscored(scores), 0, n_kept)[None])
    sample = summary.sample
    low, width = _bins(labels, summary, sample)
    edges = low[:, None] + np.arange(N_BINS + 1) * width[:, None]
    implicit = np.empty((labels.n_classes, N_BINS))
    for column, one in enumerate(summary.classes):
        n_implicit = int(labels.n_implicit[column])
        implicit[column] = _implicit_counts(one.tail, sample[column], edges[column], n_implicit)
    positives, negatives = (
        _explicit_counts(labels.columns[chosen], summary.explicit[chosen], low, width)
        for chosen in (labels.present, ~labels.present)
    )
    bounds = np.array([one.tail.bound for one in summary.classes], np.float64)
    sampled = np.maximum(summary.n_sampled / np.maximum(labels.n_implicit, 1), 1e-6)
    certainty = np.where(edges[:, :-1] >= bounds[:, None], 1.0, sampled[:, None])
    return Histograms(low, width, implicit, positives, negatives, certainty)


def tail_shares(n_positives: NDArray[np.number], n_implicit: NDArray[np.number]) -> Matrix:
    """Return the share [class] of the implicit scores that tells of missing labels."""
    prior = n_positives / np.maximum(n_implicit, 1)
    return np.asarray(np.clip(TAIL_PER_PRIOR * prior, TAIL_SHARE, MOST_TAIL_SHARE))


def _bins(labels: LabelSet, summary: Summary, sample: NDArray[np.float32]) -> tuple[Matrix, Matrix]:
    """Return where the bins of each class begin and how wide they are, whatever its outliers.

    They begin where a fiftieth of the sampled scores lies below. They end at the highest score, but
    no further than 10 sds above the sample's median or 3 sds above the positives' mean.
    """
    low, reach = _sampled_range(sample)
    lowest, highest, positives_reach = _positives_range(labels, summary)
    tails = [one.tail for one in summary.classes]
    kept = [tail.centres[-1] if tail.counts.any() else -np.inf for tail in tails]
    top = np.maximum(np.maximum(highest, kept), sample.max(axis=1, initial=-np.inf))
    low = np.where(np.isfinite(low), low, lowest)  # no implicit score in the sample
    high = np.minimum(top, np.maximum(reach, positives_reach))
    is_empty = ~np.isfinite(high - low)  # no implicit score and no positive
    low, high = np.where(is_empty, 0.0, low), np.where(is_empty, 1.0, high)
    width = np.maximum((high - low) / N_BINS, 1e-6 * np.maximum(np.abs(high), 1e-6))
    # Rounded, so that the order in which scores were added up leaves no trace.
    return low.astype(np.float32).astype(np.float64), width.astype(np.float32).astype(np.float64)


def _positives_range(labels: LabelSet, summary: Summary) -> tuple[Matrix, Matrix, Matrix]:
    """Return lowest and highest positive and 3 sds above their mean [class]; infinite without."""
    columns, scores = labels.columns[labels.present], summary.explicit[labels.present]
    is_scored = ~np.isnan(scores)
    columns, scores = columns[is_scored], scores[is_scored].astype(np.float64)
    count = partial(np.bincount, columns, minlength=labels.n_classes)
    n = np.maximum(count(), 1)
    mean = count(scores) / n
    sd = np.sqrt(count((scores - mean[columns]) ** 2) / n)
    lowest, highest = np.full(len(n), np.inf), np.full(len(n), -np.inf)
    np.minimum.at(lowest, columns, scores)
    np.maximum.at(highest, columns, scores)
    return lowest, highest, np.where(np.isfinite(highest), mean + 3 * sd, -np.inf)


def _sampled_range(sample: NDArray[np.float32]) -> tuple[Matrix, Matrix]:
    """Return the 2 % quantile and ten sds above the median [class]; infinite without scores."""
    n_missing = np.isneginf(sample).sum(axis=1)
    n = sample.shape[1] - n_missing
    padded = np.pad(sample, ((0, 0), (0, 1)), constant_values=np.inf)
    low, middle, upper = (
        np.take_along_axis(padded, (n_missing + (q * n).astype(np.int64))[:, None], 1)[:, 0]
        for q in (0.02, 0.5, 0.9)
    )
    with np.errstate(invalid="ignore"):
        reach = middle + 10 * (upper - middle) / 1.28
    return low.astype(np.float64), np.where(np.isfinite(low), reach, np.inf).astype(np.float64)


def _implicit_counts(
    tail: Tail, sample: NDArray[np.float32], edges: Matrix, n_implicit: int
) -> Matrix:
    """Count the tail [bin], and the other implicit scores as the sample spreads below it."""
    places = np.searchsorted(edges[1:-1], tail.centres)
    counts = np.bincount(places, weights=tail.counts, minlength=N_BINS)
    below = sample[slice(*np.searchsorted(sample, (np.float32(-np.inf), tail.bound), "right"))]
    if not len(below):
        below = np.array([max(tail.bound, np.float32(edges[0]))])
    ends = np.concatenate([[0], np.searchsorted(below, edges[1:-1]), [len(below)]])
    spread = ends[1:] - ends[:-1]
    return np.asarray(counts + spread * (n_implicit - tail.counts.sum()) / len(below))


def _explicit_counts(
    columns: NDArray[np.integer], scores: NDArray[np.float32], low: Matrix, width: Matrix
) -> Matrix:
    """Count explicit scores [class, bin]."""
    is_scored = ~np.isnan(scores)
    columns, scores = columns[is_scored], scores[is_scored]
    places = ((scores - low[columns]) / width[columns]).astype(np.int64).clip(0, N_BINS - 1)
    flat = np.bincount(columns * N_BINS + places, minlength=len(low) * N_BINS)
    return flat.reshape(-1, N_BINS).astype(np.float64)


def quantile_bins(counts: Matrix, q: float | Matrix) -> NDArray[np.int64]:
    """Return the bin [class] in which a quantile of the counts lies; 0 without counts."""
    n = np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    shares = np.cumsum(counts, axis=1) / n
    is_below = shares < np.reshape(q, (-1, 1)) * (shares[:, -1:] > 0)
    return np.asarray(is_below.sum(axis=1))


def moments(counts: Matrix) -> tuple[Matrix, Matrix]:
    """Return mean and variance [class] of counts, in bins; a class without counts is an error."""
    bins = np.arange(N_BINS)
    n = counts.sum(axis=1)
    mean = counts @ bins / n
    variance = (counts * (bins - mean[:, None]) ** 2).sum(axis=1) / n
    return mean, variance + 1 / 12  # the width of a bin


def smoothed(counts: Matrix) -> Matrix:
    """Return the density [class, bin] of counts, smoothed by Silverman's rule."""
    _, variance = moments(counts)
    n = counts.sum(axis=1)
    spread = (quantile_bins(counts, 0.75) - quantile_bins(counts, 0.25)) / 1.34
    sigmas = np.maximum(0.9 * np.minimum(np.sqrt(variance), spread) * n**-0.2, 0.5)
    smooth = blurred(counts, sigmas, "edge")
    return np.asarray(smooth / smooth.sum(axis=1, keepdims=True))


def blurred(counts: Matrix, sigmas: Matrix, beyond: Literal["edge", "constant"]) -> Matrix:
    """Blur the counts [class, bin] of each class by a normal curve of its own sd [class], in bins.

    Beyond the bins there is what is at the edge, or (``constant``) nothing. The curve ends at four
    sds. :mod:`scipy.ndimage` does the same for one sd, and takes longer to load than a small scan.

    >>> blurred(np.array([[0.0, 1.0, 0.0]]), np.array([0.5]), "edge").round(3).tolist()
    [[0.106, 0.787, 0.106]]
    """
    reach = (4 * sigmas + 0.5).astype(np.int64)
    most = int(reach.max(initial=0))
    steps = np.arange(-most, most + 1)
    weights = np.exp(-0.5 * (steps / sigmas[:, None]) ** 2) * (np.abs(steps) <= reach[:, None])
    weights /= weights.sum(axis=1, keepdims=True)
    padded = np.pad(counts, ((0, 0), (most, most)), mode=beyond)
    found = np.zeros_like(counts)
    for place, weight in enumerate(weights.T):
        found += weight[:, None] * padded[:, place : place + counts.shape[1]]
    return found
