"""How many labels of a class are missing, and the chance that a given one is.

The implicit scores of a class mix negatives with *missing* labels: sounds that are there but that
nobody was asked about. The missing ones score like the class's explicit positives, or a little
lower where faint sounds are labelled less often; :mod:`earmark.flags.mixture` tells them from
negatives.

- ``n_missing``, ``low`` and ``high``: the median of what the scores leave possible, and 90 % of
  it. Before the scores are seen, a class misses 0.6 labels per positive, give or take a factor of
  2.7; a weak teacher of a rare class changes little about that, and the interval stays wide.
- ``upper_bound`` (95 %): above any score there are no more missing labels than implicit ones, and
  the positives tell which share of the missing lies there; exact bounds, the best of nine scores,
  that hold even if the odds of being labelled are e times lower for each sd of the score.
- chances pool what the classes have in common, and so reach those with a positive or two.

A class with fewer than 30 explicit positives is not estimable. An audit by ear is better than any
of these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import beta, chi2

from earmark.flags.histograms import (
    N_BINS,
    Histograms,
    Matrix,
    moments,
    quantile_bins,
    score_histograms,
    smoothed,
)
from earmark.flags.mixture import chances_of_missing, fit, mixture, quantiles_of_missing
from earmark.labels.label_set import LabelSet
from earmark.scores.matrix import ScoreMatrix, ScoresLike, find_unscored, open_scores
from earmark.scores.top_scores import Summary

MIN_POSITIVES = 30
"""Explicit positives, and implicit labels, below which a class is not estimable."""

MIN_NEGATIVES = 30
"""Explicit negatives among the positives' scores from which ``method`` names them."""

EXPECTED_PER_POSITIVE, EXPECTED_SD = 0.6, 1.0
"""Missing labels per positive before the scores are seen, and the sd of its logarithm.

A nominator that finds 30 to 95 % of the sounds leaves 2.3 to 0.05."""

VAGUE = 10.0
"""How many times ``low`` ``high`` may be before the number is called an expectation (27 times
where the scores tell nothing at all)."""

POOLED_SD = 0.7
"""How much missing labels per positive differ between the classes of one dataset."""

POOLED_TILT_SD = 0.2
"""How much likelier high-scored sounds may be labelled, for chances: they are best kept simple."""

MOST_PER_EXPECTED = 3.0
"""How many times the expected number of missing labels a class's chances may add up to."""

MOST_TILT = 1.0
"""Fall in the log-odds of being labelled, per sd of the score, under which the bound holds."""

TYPICAL_SEPARATION, TYPICAL_SPREAD = 2.5, 0.8
"""How far positives score above implicit labels, in sds, and how that differs between classes."""

COUNT_SCHEMA = {
    "class_id": pl.String,
    "n_positives": pl.Int64,
    "n_implicit": pl.Int64,
    "n_missing": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "upper_bound": pl.Float64,
    "method": pl.String,
    "reason": pl.String,
}


@dataclass(frozen=True)
class Counts:
    """What is known about the missing labels of every class.

    ``chances`` [class, bin] is the chance that an implicit label in a bin of ``histograms`` is
    missing, rising with the score; NaN where a class has no positives or no scores.
    """

    labels: LabelSet
    is_scored: NDArray[np.bool_]
    histograms: Histograms
    chances: Matrix

    @cached_property
    def table(self) -> pl.DataFrame:
        """The numbers of missing labels, as :func:`count_missing` returns them."""
        return _table(self.labels, self.is_scored, self.histograms)

    def chance(self, columns: NDArray[np.integer], logits: NDArray[np.floating]) -> Matrix:
        """Return the chance that implicit labels of given classes and scores are missing."""
        places = (logits - self.histograms.low[columns]) / self.histograms.width[columns] - 0.5
        places = places.clip(0, N_BINS - 1)
        left = np.minimum(places.astype(np.int64), N_BINS - 2)
        below, above = self.chances[columns, left], self.chances[columns, left + 1]
        return np.asarray(below + (places - left) * (above - below))

    @property
    def n_expected(self) -> Matrix:
        """The sum of the chances [class]: missing labels that can be expected; 0 where unknown."""
        return np.asarray((np.nan_to_num(self.chances) * self.histograms.implicit).sum(axis=1))

    def score_at(self, chance: float | Matrix) -> NDArray[np.float32]:
        """Return the score [class] from which on a chance is reached; +inf where it never is.

        ``chance`` is one number, or one for each class.
        """
        wanted = np.broadcast_to(chance, len(self.chances))
        is_reached = self.chances >= wanted[:, None]
        right = is_reached.argmax(axis=1)
        rows, left = np.arange(len(right)), np.maximum(right - 1, 0)
        below, above = self.chances[rows, left], self.chances[rows, right]
        step = (wanted - below) / np.where(above > below, above - below, 1)
        places = np.where(right > 0, left + step, -np.inf)
        scores = self.histograms.low + (places + 0.5) * self.histograms.width
        return np.where(is_reached.any(axis=1), scores, np.inf).astype(np.float32)

    def chance_of_best(self, n_labels: int, weights: Matrix) -> Matrix:
        """Return chances [class] that about half as many again as ``n_labels`` reach.

        They are alike after weighting by class, and no lower than 0.1 % of the best weight.
        """
        worth = (np.nan_to_num(self.chances) * weights[:, None]).ravel()
        order = np.argsort(-worth, kind="stable")
        n_reaching = np.cumsum(self.histograms.implicit.ravel()[order])
        place = int(np.searchsorted(n_reaching, 1.5 * n_labels))
        lowest = float(worth[order[place]]) if place < len(order) else 0.0
        return np.asarray(np.maximum(lowest, 1e-3 * weights.max(initial=0)) / weights)


def count_missing(labels: LabelSet, logits: ScoresLike | ScoreMatrix) -> pl.DataFrame:
    """Estimate how many labels of each class are missing.

    Returns class_id, n_positives, n_implicit, n_missing, low and high (90 % interval),
    upper_bound (never below high), method and reason. The method is ``expectation`` where the
    scores tell little and the number is mostly what is expected of any class; else ``negatives``
    where explicit negatives were heard, or ``shapes``. Where a class is not estimable, the reason
    says why and the numbers are null (the upper bound needs one positive only).
    """
    return estimate_missing(labels, logits).table


def estimate_missing(
    labels: LabelSet, logits: ScoresLike | ScoreMatrix, summary: Summary | None = None
) -> Counts:
    """Estimate chances of missing labels, in one pass or from an earlier one's summary.

    The table of numbers is made when it is asked for; the chances take a tenth of its time.
    """
    scores = open_scores(logits, labels)
    is_scored = ~find_unscored(scores)
    histograms = score_histograms(labels, scores, summary)
    has_both = is_scored & (np.minimum(labels.n_positives, labels.n_implicit) > 0)
    chances = np.full((labels.n_classes, N_BINS), np.nan)
    chances[has_both] = _pooled_chances(histograms.of(has_both))
    return Counts(labels, is_scored, histograms, chances)


def tilts_of_missing(histograms: Histograms) -> Matrix:
    """Return how much lower missing labels score than positives, in the positives' sds [class].

    For the classes of ``histograms`` with 30 positives or more. About 0 if labels go missing at
    random and the teacher never saw them; above 1 in most classes if the teacher was trained on
    them as negatives and has pushed them down.
    """
    n = np.minimum(histograms.positives.sum(axis=1), histograms.implicit.sum(axis=1))
    chosen = histograms.of(n >= MIN_POSITIVES)
    n_expected = EXPECTED_PER_POSITIVE * chosen.positives.sum(axis=1)
    shape = smoothed(chosen.positives)
    return fit(mixture(chosen, shape, n_expected, EXPECTED_SD, tilt_sd=1.5 * MOST_TILT)).tilt


def _table(labels: LabelSet, is_scored: NDArray[np.bool_], histograms: Histograms) -> pl.DataFrame:
    """Count the missing labels of estimable classes, and say why others are not."""
    is_known = is_scored & (np.minimum(labels.n_positives, labels.n_implicit) >= MIN_POSITIVES)
    upper = np.where(is_scored, _upper_bound(histograms), np.nan)
    numbers = np.full((3, labels.n_classes), np.nan)
    numbers[:, is_known] = _count(histograms.of(is_known), upper[is_known])
    method, reason = (np.full(labels.n_classes, None, object) for _ in range(2))
    by_scores = np.where(_hears_negatives(histograms), "negatives", "shapes")
    is_vague = numbers[2] > VAGUE * numbers[0]  # low is 0, high is 2
    method[is_known] = np.where(is_vague, "expectation", by_scores)[is_known]
    reason[labels.n_positives < MIN_POSITIVES] = f"fewer than {MIN_POSITIVES} explicit positives"
    reason[labels.n_implicit < MIN_POSITIVES] = f"fewer than {MIN_POSITIVES} implicit labels"
    reason[~is_scored] = "no scores"
    columns = {
        "class_id": list(labels.class_ids),
        "n_positives": labels.n_positives,
        "n_implicit": labels.n_implicit,
        **dict(zip(("low", "n_missing", "high"), numbers, strict=True)),
        "upper_bound": np.where(np.isfinite(upper), upper, np.nan),
        "method": method.tolist(),
        "reason": reason.tolist(),
    }
    return pl.DataFrame({name: columns[name] for name in COUNT_SCHEMA}, COUNT_SCHEMA).fill_nan(None)


def _count(histograms: Histograms, upper: Matrix) -> Matrix:
    """Return low, median and high [3, class] of the number of missing labels."""
    n_expected = EXPECTED_PER_POSITIVE * histograms.positives.sum(axis=1)
    model = mixture(histograms, smoothed(histograms.positives), n_expected, EXPECTED_SD)
    return quantiles_of_missing(model, np.array([0.05, 0.5, 0.95]), upper)


def _hears_negatives(histograms: Histograms) -> NDArray[np.bool_]:
    """Tell in which classes people said "not present" where three quarters of positives score."""
    is_high = np.arange(N_BINS) >= quantile_bins(histograms.positives, 0.25)[:, None]
    return np.asarray((histograms.negatives * is_high).sum(axis=1) >= MIN_NEGATIVES)


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


def _upper_bound(histograms: Histograms, error: float = 0.05) -> Matrix:
    """Return the lowest of nine exact upper bounds [class]; infinite without positives."""
    bounds = [np.full(len(histograms.low), np.inf)]
    with np.errstate(invalid="ignore", divide="ignore"):
        for q in np.arange(0.1, 0.95, 0.1):
            is_high = np.arange(N_BINS) >= quantile_bins(histograms.positives, q)[:, None]
            n_implicit = (histograms.implicit * is_high).sum(axis=1)
            most = chi2.ppf(1 - error / 9, 2 * (n_implicit + 1)) / 2
            bounds.append(most / _least_share(histograms.positives, is_high, error / 9))
    return np.asarray(np.fmin.reduce(bounds, axis=0))


def _least_share(positives: Matrix, is_high: NDArray[np.bool_], error: float) -> Matrix:
    """Return the least share [class] of missing labels in high bins, given where positives are.

    An exact binomial bound; its odds are then turned by the greatest tilt.
    """
    n, n_high = positives.sum(axis=1), (positives * is_high).sum(axis=1)
    share = beta.ppf(error, n_high, n - n_high + 1)
    mean, variance = moments(positives)
    tilt = np.exp(-MOST_TILT * (np.arange(N_BINS) - mean[:, None]) / np.sqrt(variance)[:, None])
    above = (positives * tilt * is_high).sum(axis=1) / n_high
    below = (positives * tilt * ~is_high).sum(axis=1) / np.maximum(n - n_high, 1)
    return np.asarray(share * above / (share * above + (1 - share) * below))
