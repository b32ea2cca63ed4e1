"""The chance that an implicit label is missing, by its class and score.

Chances pool what the classes have in common, and so reach those with a positive or two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.flags.histograms import N_BINS, Histograms, Matrix, moments, smoothed
from earmark.flags.mixture import (
    EXPECTED_PER_POSITIVE,
    EXPECTED_SD,
    MIN_POSITIVES,
    chances_of_missing,
    fit,
    mixture,
)

POOLED_SD = 0.7
"""How much missing labels per positive differ between the classes of one dataset."""

POOLED_TILT_SD = 0.2
"""How much likelier high-scored sounds may be labelled, for chances: they are best kept simple."""

MOST_PER_EXPECTED = 3.0
"""How many times the expected number of missing labels a class's chances may add up to."""

TYPICAL_SEPARATION, TYPICAL_SPREAD = 2.5, 0.8
"""How far positives score above implicit labels, in sds, and how that differs between classes."""


@dataclass(frozen=True)
class Chances:
    """The chance of being missing of every class and score.

    ``values`` [class, bin] rise with the score in the bins of ``histograms``; NaN where a class has
    no positives or no scores.
    """

    histograms: Histograms
    values: Matrix

    def at(self, columns: NDArray[np.integer], logits: NDArray[np.floating]) -> Matrix:
        """Return the chance that implicit labels of given classes and scores are missing."""
        places = (logits - self.histograms.low[columns]) / self.histograms.width[columns] - 0.5
        places = places.clip(0, N_BINS - 1)
        left = np.minimum(places.astype(np.int64), N_BINS - 2)
        below, above = self.values[columns, left], self.values[columns, left + 1]
        return np.asarray(below + (places - left) * (above - below))

    @property
    def n_expected(self) -> Matrix:
        """The sum of the chances [class]: missing labels that can be expected; 0 where unknown."""
        return np.asarray((np.nan_to_num(self.values) * self.histograms.implicit).sum(axis=1))

    def score_at(self, chance: float | Matrix) -> NDArray[np.float32]:
        """Return the score [class] from which on a chance is reached; +inf where it never is.

        ``chance`` is one number, or one for each class.
        """
        wanted = np.broadcast_to(chance, len(self.values))
        is_reached = self.values >= wanted[:, None]
        right = is_reached.argmax(axis=1)
        rows, left = np.arange(len(right)), np.maximum(right - 1, 0)
        below, above = self.values[rows, left], self.values[rows, right]
        step = (wanted - below) / np.where(above > below, above - below, 1)
        places = np.where(right > 0, left + step, -np.inf)
        scores = self.histograms.low + (places + 0.5) * self.histograms.width
        return np.where(is_reached.any(axis=1), scores, np.inf).astype(np.float32)

    def of_best(self, n_labels: int, weights: Matrix) -> Matrix:
        """Return chances [class] that about half as many again as ``n_labels`` reach.

        They are alike after weighting by class, and no lower than 0.1 % of the best weight.
        """
        worth = (np.nan_to_num(self.values) * weights[:, None]).ravel()
        order = np.argsort(-worth, kind="stable")
        n_reaching = np.cumsum(self.histograms.implicit.ravel()[order])
        place = int(np.searchsorted(n_reaching, 1.5 * n_labels))
        lowest = float(worth[order[place]]) if place < len(order) else 0.0
        return np.asarray(np.maximum(lowest, 1e-3 * weights.max(initial=0)) / weights)


def find_chances(histograms: Histograms, has_both: NDArray[np.bool_]) -> Chances:
    """Find the chances of the classes that are true in ``has_both`` [class].

    Those have scores, explicit positives and implicit labels; the others' chances are NaN.
    """
    values = np.full((len(has_both), N_BINS), np.nan)
    values[has_both] = _pooled_chances(histograms.of(has_both))
    return Chances(histograms, values)


def _pooled_chances(histograms: Histograms) -> Matrix:
    """Return the chance [class, bin] of being missing, also in classes with a positive or two.

    What a class's own positives leave open, the other classes tell: where positives score, how
    widely, and how many labels are missing for each.
    """
    shape = _pooled_shape(histograms)
    n_positives = histograms.positives.sum(axis=1)
    n_expected = EXPECTED_PER_POSITIVE * n_positives
    alone = fit(mixture(histograms, shape, n_expected, EXPECTED_SD, POOLED_TILT_SD))
    is_large = n_positives >= MIN_POSITIVES
    ratios = (alone.n_missing / n_positives)[is_large]
    per_positive = float(np.median(ratios)) if len(ratios) else EXPECTED_PER_POSITIVE
    n_expected = per_positive * n_positives
    model = mixture(histograms, shape, n_expected, POOLED_SD, POOLED_TILT_SD)
    chances = chances_of_missing(model, MOST_PER_EXPECTED * per_positive * (n_positives + 1))
    return np.asarray(np.maximum.accumulate(chances, axis=1))


def _pooled_shape(histograms: Histograms) -> Matrix:
    """Return the positives' density [class, bin], drawn towards a normal one of pooled moments."""
    bins = np.arange(N_BINS)
    n = histograms.positives.sum(axis=1)
    centre, variance = moments(histograms.implicit)
    mean, own_variance = moments(histograms.positives)
    separation, ratio = (mean - centre) / np.sqrt(variance), own_variance / variance
    is_known = n >= 10  # positives from which a class tells others about its moments
    pooled_ratio = (1.0 * 5 + ratio[is_known].sum()) / (5 + is_known.sum())
    ratio = (n * ratio + 10 * pooled_ratio) / (n + 10)
    pooled = (TYPICAL_SEPARATION * 5 + separation[is_known].sum()) / (5 + is_known.sum())
    weight = n / (n + ratio / TYPICAL_SPREAD**2)
    separation = weight * separation + (1 - weight) * pooled
    spread = np.sqrt((ratio + (1 - weight) * TYPICAL_SPREAD**2) * variance)
    z = (bins - (centre + separation * np.sqrt(variance))[:, None]) / spread[:, None]
    normal = np.exp(-z * z / 2) + 1e-300
    normal /= normal.sum(axis=1, keepdims=True)
    own = smoothed(histograms.positives)
    return np.asarray((n[:, None] * own + 30 * normal) / (n[:, None] + 30))
