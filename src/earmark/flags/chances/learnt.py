"""Chances that learn from ears: a logistic model of all classes, with an effect for each.

The log-odds that a label is missing are a sum of its clues (:mod:`earmark.flags.chances.clues`),
weighed, and of its class's own effect. Weights and effects are drawn towards 0 as far as answers
leave them open (ridge), so a class that was heard often speaks for itself and others go by what
all have in common. What the labels alone teach counts as two hundred answers: labels of all chances
whose answer is the chance by score, so that few answers change little.

An answer counts by how many labels it stands for, but only by the fourth root of that: the clues
know what the sample went by, and full weights would let a few answers speak for nearly all labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from earmark.flags.chances.clues import N_CLUES
from earmark.flags.histograms import Matrix

LEAST_ANSWERS = 20
"""Answers from which on chances learn from them."""

TAUGHT_ANSWERS = 200.0
"""Answers that what the labels teach counts for."""

WEIGHT_VARIANCE, EFFECT_VARIANCE = 0.3, 0.9
"""Variances of a clue's weight (per sd of the clue) and of a class's effect, before any answer."""

STANDS_FOR_POWER = 0.25
"""The power of the number of labels that an answer stands for which weighs it."""

INTERCEPT_VARIANCE = 25.0


@dataclass(frozen=True)
class Answers:
    """What ears said of implicit labels.

    Answer i is about clip ``rows[i]`` and class ``columns[i]``; ``present[i]`` is 1, 0, or between
    where raters were unsure or at odds. It ``stands_for[i]`` so many labels: the inverse of the
    probability that it was asked for; NaN where nobody knows it.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    present: NDArray[np.float64]
    stands_for: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: NDArray[np.bool_]) -> Answers:
        """Return some of the answers."""
        rows, columns = self.rows[chosen], self.columns[chosen]
        return Answers(rows, columns, self.present[chosen], self.stands_for[chosen])

    @property
    def is_sampled(self) -> NDArray[np.bool_]:
        """Which answers were asked for with a known probability."""
        return np.isfinite(self.stands_for)

    @property
    def has_sample(self) -> bool:
        """Whether so many were that they speak for all labels."""
        return int(self.is_sampled.sum()) >= LEAST_ANSWERS

    @property
    def weights(self) -> Matrix:
        """How much each answer counts; 1 on average."""
        known = np.where(np.isfinite(self.stands_for), self.stands_for, np.nan)
        usual = np.nanmedian(known) if np.isfinite(known).any() else 1.0
        weights = np.nan_to_num(known, nan=usual).clip(1) ** STANDS_FOR_POWER
        return np.asarray(weights / weights.mean())


@dataclass(frozen=True)
class Taught:
    """Labels that stand for what the labels alone teach: their clues, and their log-odds."""

    clues: NDArray[np.float32]
    log_odds: Matrix

    @property
    def scale(self) -> tuple[Matrix, Matrix]:
        """Mean and sd of every clue."""
        sd = self.clues.std(axis=0, dtype=np.float64)
        return self.clues.mean(axis=0, dtype=np.float64), np.where(sd > 1e-6, sd, 1.0)


@dataclass(frozen=True)
class Model:
    """The fitted model: ``weights`` of the clues as they are, ``effects`` of the classes.

    ``covariance`` is that of (weights, intercept, effects of the classes in ``heard``), of clues on
    their standard scale (``mean``, ``sd``); a class that was not heard has EFFECT_VARIANCE.
    """

    weights: Matrix
    intercept: float
    effects: Matrix
    mean: Matrix
    sd: Matrix
    heard: NDArray[np.int64]
    covariance: Matrix

    def log_odds(self, clues: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-odds [clip, class] of labels with clues [clip, class, clue]."""
        weights, shift = self._as_they_are
        return np.asarray(clues @ weights + shift, np.float32)

    def log_odds_of(
        self, clues: NDArray[np.float32], columns: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the log-odds of single labels with clues [label, clue]."""
        weights, shift = self._as_they_are
        return np.asarray(clues @ weights + shift[columns], np.float32)

    @property
    def _as_they_are(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weights [clue] of clues that are not standardised, and what is added [class]."""
        weights = self.weights / self.sd
        shift = self.effects + self.intercept - float(self.mean @ weights)
        return weights.astype(np.float32), shift.astype(np.float32)

    def variances(self, slopes: Matrix, own: Matrix) -> Matrix:
        """Return the variance [class] of a class's sum of chances, per square of the sum.

        ``slopes`` [class, clue] are how the sum's logarithm changes with the weights of the clues
        as they are, ``own`` [class] with the intercept, and with the class's effect alike.
        """
        standard = (slopes - own[:, None] * self.mean) / self.sd
        place = np.full(len(own), -1)
        place[self.heard] = np.arange(len(self.heard))
        gradient = np.zeros((len(own), len(self.covariance)))
        gradient[:, :N_CLUES], gradient[:, N_CLUES] = standard, own
        is_heard = place >= 0
        gradient[is_heard, N_CLUES + 1 + place[is_heard]] = own[is_heard]
        variance = np.einsum("ci,ij,cj->c", gradient, self.covariance, gradient)
        return np.asarray(variance + np.where(is_heard, 0.0, EFFECT_VARIANCE * own**2))


def learn(answers: Answers, clues: NDArray[np.float32], taught: Taught, n_classes: int) -> Model:
    """Fit the model to answers with clues [answer, clue] and to what the labels taught."""
    from sklearn.linear_model import LogisticRegression  # here, because it takes long to load

    mean, sd = taught.scale
    heard, places = np.unique(answers.columns, return_inverse=True)
    n_taught = len(taught.log_odds)
    design = np.zeros((len(answers) + n_taught, N_CLUES + 1 + len(heard)))
    design[:, :N_CLUES] = (np.concatenate([clues, taught.clues]) - mean) / sd
    scales = np.full(design.shape[1], np.sqrt(WEIGHT_VARIANCE))
    scales[N_CLUES], scales[N_CLUES + 1 :] = np.sqrt(INTERCEPT_VARIANCE), np.sqrt(EFFECT_VARIANCE)
    design[:, N_CLUES] = 1.0
    design[np.arange(len(answers)), N_CLUES + 1 + places] = 1.0
    present = np.concatenate([answers.present, expit(taught.log_odds)])
    counted = np.concatenate([answers.weights, np.full(n_taught, TAUGHT_ANSWERS / n_taught)])
    # An answer between yes and no is both, each as far as it goes.
    twice = np.concatenate([counted * present, counted * (1 - present)])
    outcome = np.repeat([1, 0], len(present))
    is_used = twice > 0
    fitted = LogisticRegression(C=1.0, fit_intercept=False, max_iter=2_000).fit(
        np.concatenate([design, design])[is_used] * scales, outcome[is_used], twice[is_used]
    )
    found = fitted.coef_[0] * scales
    chances = expit(design @ found)
    information = (design * (counted * chances * (1 - chances))[:, None]).T @ design
    covariance = np.linalg.inv(information + np.diag(scales**-2.0))
    effects = np.zeros(n_classes)
    effects[heard] = found[N_CLUES + 1 :]
    return Model(
        found[:N_CLUES], float(found[N_CLUES]), effects, mean, sd, heard, np.asarray(covariance)
    )
