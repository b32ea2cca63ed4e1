"""The chance that an implicit label is missing, by its class and score: what the labels teach.

An implicit label is missing with a chance of r times the odds of being labelled at its score
(:mod:`earmark.flags.chances.labelled_odds`), where r is the number of missing labels per labelled
one. It is believed to be 1, give or take a factor of 2.7, unless the scores of a class with 30
positives say more (:mod:`earmark.flags.mixture`), and never many times more than the odds allow: a
chance cannot be above 1. So a teacher that knows little gives every label of a class nearly the
same small chance, and a good one tells them apart.

The odds are found twice: for each class by its own curve, and by one curve for all scores of all
classes together. The chance lies half-way between the two, in log-odds. The class's own curve
knows how its scores lie, the common one is not misled by a class's few positives.

- ``values``: the mean over what r may be.
- ``sure``: r in the lower quarter of what it may be. A policy that promises a chance goes by these.
- ``low`` and ``high``: r as low, and as high, as it may be in most classes at once.

Where people were asked and said "not present" at the same scores, the chance is no higher than
their share of "present" (``most``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from earmark.flags.chances.labelled_odds import LabelledOdds, labelled_odds, pooled_odds
from earmark.flags.histograms import N_BINS, Histograms, Matrix, blurred, smoothed
from earmark.flags.mixture import MIN_POSITIVES, mixture, most_probable

PER_LABELLED, PER_LABELLED_SD = 1.0, 1.0
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


HEARD, HEARD_LEAST = 0.95, 0.75
"""Share of the labels beyond doubt that people hear: what is believed, and as low as it may be."""

TINY = 1e-9
"""The lowest chance, and the least doubt."""


@dataclass(frozen=True)
class ByScore:
    """The log-odds of being missing of every class and score.

    ``values``, ``sure``, ``low``, ``high`` and ``most`` [class, bin] go by the bins of
    ``histograms``, and all but ``most`` rise with the score. NaN where a class has no positives or
    no scores, and everywhere if the scores do not know the labels.
    """

    histograms: Histograms
    values: Matrix
    sure: Matrix
    low: Matrix
    high: Matrix
    most: Matrix

    @property
    def has_chances(self) -> NDArray[np.bool_]:
        """Whether a class [class] has chances."""
        return np.asarray(np.isfinite(self.values[:, 0]))


def find_by_score(histograms: Histograms, has_both: NDArray[np.bool_]) -> ByScore:
    """Find the log-odds of the classes that are true in ``has_both`` [class].

    Those have scores, explicit positives and implicit labels; the others' are NaN.
    """
    found = np.full((5, len(has_both), N_BINS), np.nan)
    if has_both.any():
        found[:, has_both] = _by_belief(histograms.of(has_both))
    return ByScore(histograms, *found)


def _by_belief(histograms: Histograms) -> Matrix:
    """Return the mean, the sure, the low and the high log-odds, and the most [5, class, bin]."""
    share_present = _present_when_asked(histograms)
    own, common = labelled_odds(histograms), pooled_odds(histograms)
    middle, sd = _per_labelled(histograms)
    beliefs = [
        _chances(own, middle, sd),
        _chances(common, np.full_like(middle, PER_LABELLED), np.full_like(sd, PER_LABELLED_SD)),
    ]
    log_odds = [logit(np.minimum(one, share_present).clip(TINY, 1 - TINY)) for one in beliefs]
    found = np.maximum.accumulate(sum(log_odds) / 2, axis=2)
    most = logit(share_present.clip(TINY, 1 - TINY))
    return np.concatenate([found, most[None]])


def _chances(odds: LabelledOdds, middle: Matrix, sd: Matrix) -> Matrix:
    """Return the mean, the sure, the low and the high chance [4, class, bin] by a curve of odds.

    ``middle`` and ``sd`` [class] are what r is believed to be: its median, the sd of its logarithm.
    """
    most = MOST_PER_CEILING / odds.ceiling

    def chance(sds: float) -> Matrix:
        per_labelled = np.minimum(middle * np.exp(sd * sds), most)
        return np.asarray(np.minimum(per_labelled[:, None] * odds.values, 1.0))

    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    mean = np.einsum("n,ncb->cb", weights / weights.sum(), np.stack([chance(x) for x in nodes]))
    return np.stack([mean, chance(LOWER_QUARTER), chance(-REACH), chance(REACH)])


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
        blurred(counts, np.full(len(counts), NEARBY_BINS), "constant") * reach
        for counts in (histograms.positives, histograms.negatives)
    )
    return np.asarray((positives + 1) / (positives + negatives + 1))


def as_heard(log_odds: NDArray[Any]) -> NDArray[Any]:
    """Return the log-odds of what is believed to be heard: the chance times HEARD.

    >>> from scipy.special import expit
    >>> expit(as_heard(np.array([-4.0, 0.0, 50.0]))).round(3).tolist()
    [0.017, 0.475, 0.95]
    """
    beyond = np.log1p((1 - HEARD) * np.exp(np.minimum(log_odds, 50)))
    return np.asarray(log_odds + np.log(HEARD) - beyond)
