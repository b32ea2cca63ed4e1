"""The chance that an implicit label is missing, by its class and score.

An implicit label is missing with a chance of r times the odds of being labelled at its score
(:mod:`earmark.flags.labelled_odds`), where r is the number of missing labels per labelled one. It
is believed to be 0.6, give or take a factor of 2.7, unless the scores of a class with 30 positives
say more (:mod:`earmark.flags.mixture`), and never many times more than the odds allow: a chance
cannot be above 1. So a teacher that knows little gives every label of a class nearly the same
small chance, and a good one tells them apart.

- ``values``: the mean over what r may be.
- ``sure``: r in the lower quarter of what it may be. A policy that promises a chance goes by these.
- ``low`` and ``high``: r as low, and as high, as it may be in most classes at once.

Where people were asked and said "not present" at the same scores, the chance is no higher than
their share of "present".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from earmark.flags.histograms import N_BINS, Histograms, Matrix, smoothed
from earmark.flags.labelled_odds import labelled_odds
from earmark.flags.mixture import MIN_POSITIVES, mixture, most_probable

PER_LABELLED, PER_LABELLED_SD = 0.6, 1.0
"""Missing labels per labelled one: the median of what is believed, and the sd of its logarithm."""

MOST_PER_CEILING = 4.0
"""How many times the r that the odds' ceiling allows it may be: faint sounds are labelled less
often, so the odds stop rising late."""

LOWER_QUARTER = -0.674
"""Where a quarter of a normal distribution lies below, in sds."""

REACH = 1.8
"""How far r may be off in most classes at once: sds of its logarithm."""

NEARBY_BINS = 4.0
"""How far around a score people's answers count for it: sd, in bins."""


@dataclass(frozen=True)
class Chances:
    """The chance of being missing of every class and score.

    ``values``, ``sure``, ``low`` and ``high`` [class, bin] rise with the score in the bins of
    ``histograms``; NaN where a class has no positives or no scores, and everywhere if the scores
    do not know the labels.
    """

    histograms: Histograms
    values: Matrix
    sure: Matrix
    low: Matrix
    high: Matrix

    def at(self, columns: NDArray[np.integer], logits: NDArray[np.floating]) -> Matrix:
        """Return the chance that implicit labels of given classes and scores are missing."""
        return self._between(self.values, columns, logits)

    def n_right(
        self, columns: NDArray[np.integer], logits: NDArray[np.floating]
    ) -> tuple[float, float]:
        """Return between which numbers the missing ones among some labels lie."""
        ends = (self._between(values, columns, logits) for values in (self.low, self.high))
        low, high = (float(np.nansum(chances)) for chances in ends)
        return low, high

    def _between(
        self, values: Matrix, columns: NDArray[np.integer], logits: NDArray[np.floating]
    ) -> Matrix:
        places = (logits - self.histograms.low[columns]) / self.histograms.width[columns] - 0.5
        places = places.clip(0, N_BINS - 1)
        left = np.minimum(places.astype(np.int64), N_BINS - 2)
        below, above = values[columns, left], values[columns, left + 1]
        return np.asarray(below + (places - left) * (above - below))

    @property
    def n_expected(self) -> Matrix:
        """The sum of the chances [class]: missing labels that can be expected; 0 where unknown."""
        return np.asarray((np.nan_to_num(self.values) * self.histograms.implicit).sum(axis=1))

    def score_at(self, chance: float | Matrix) -> NDArray[np.float32]:
        """Return the score [class] from which on a chance is reached; +inf where it never is.

        ``chance`` is one number, or one for each class.
        """
        return _score_at(self.histograms, self.values, chance)

    def score_surely_at(self, chance: float) -> NDArray[np.float32]:
        """Return the score [class] from which on a chance is reached even if little is missing."""
        return _score_at(self.histograms, self.sure, chance)

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
    found = np.full((4, len(has_both), N_BINS), np.nan)
    if has_both.any():
        found[:, has_both] = _by_belief(histograms.of(has_both))
    return Chances(histograms, *found)


def _by_belief(histograms: Histograms) -> Matrix:
    """Return the mean, the sure, the low and the high chance [4, class, bin]."""
    odds = labelled_odds(histograms)
    middle, sd = _per_labelled(histograms)
    most = MOST_PER_CEILING / odds.ceiling
    share_present = _present_when_asked(histograms)

    def chance(sds: float) -> Matrix:
        per_labelled = np.minimum(middle * np.exp(sd * sds), most)
        return np.asarray(np.minimum(per_labelled[:, None] * odds.values, share_present))

    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    mean = np.einsum("n,ncb->cb", weights / weights.sum(), np.stack([chance(x) for x in nodes]))
    found = np.stack([mean, chance(LOWER_QUARTER), chance(-REACH), chance(REACH)])
    return np.asarray(np.maximum.accumulate(found, axis=2))


def _per_labelled(histograms: Histograms) -> tuple[Matrix, Matrix]:
    """Return what r is believed to be [class]: its median, and the sd of its logarithm."""
    n = histograms.positives.sum(axis=1)
    middle, sd = np.full(len(n), PER_LABELLED), np.full(len(n), PER_LABELLED_SD)
    is_large = n >= MIN_POSITIVES
    if is_large.any():
        large = histograms.of(is_large)
        n_expected = PER_LABELLED * n[is_large]
        n_missing, sd[is_large] = most_probable(
            mixture(large, smoothed(large.positives), n_expected, PER_LABELLED_SD)
        )
        middle[is_large] = n_missing / n[is_large]
    return middle, sd


def _present_when_asked(histograms: Histograms) -> Matrix:
    """Return the share [class, bin] of "present" among answers about clips of nearby scores.

    One answer "present" is added, so that without answers it is 1.
    """
    reach = NEARBY_BINS * np.sqrt(2 * np.pi)  # bins that count fully, together
    positives, negatives = (
        gaussian_filter1d(counts, NEARBY_BINS, axis=1, mode="constant") * reach
        for counts in (histograms.positives, histograms.negatives)
    )
    return np.asarray((positives + 1) / (positives + negatives + 1))


def _score_at(
    histograms: Histograms, values: Matrix, chance: float | Matrix
) -> NDArray[np.float32]:
    wanted = np.broadcast_to(chance, len(values))
    is_reached = values >= wanted[:, None]
    right = is_reached.argmax(axis=1)
    rows, left = np.arange(len(right)), np.maximum(right - 1, 0)
    below, above = values[rows, left], values[rows, right]
    step = (wanted - below) / np.where(above > below, above - below, 1)
    places = np.where(right > 0, left + step, -np.inf)
    scores = histograms.low + (places + 0.5) * histograms.width
    return np.where(is_reached.any(axis=1), scores, np.inf).astype(np.float32)
