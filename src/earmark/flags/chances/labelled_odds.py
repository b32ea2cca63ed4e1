"""How the odds of being labelled rise with the score: what the labels alone teach of a class.

A sound of class c that scores s is present with probability expit(a + b s), and whoever labelled
found it with the same probability 1 / (1 + r) whatever its score. Then implicit labels of the score
s are missing with a chance of r times the odds of being labelled there. The odds are seen; r, the
missing labels per labelled one, is seen only where they stop rising, and is otherwise a belief
(:mod:`earmark.flags.chances.by_score`).

Classes are fitted together: each has its own a, b and log r, drawn towards what the classes have
in common as far as its few positives leave it open (empirical Bayes). Where scores say nothing, b
is 0 and every label of a class has the same odds. No kept library fits this model, with one group
of three effects and a ceiling for each class, from binned counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from earmark.flags.histograms import N_BINS, Histograms, Matrix
from earmark.scores import look_at_odds

CEILING_SD = 1.0
"""How much log r differs between classes, before their scores are seen."""

PRIOR_CLASSES = 5
"""Classes that the beliefs about r and about the spreads count for."""

LEAST_SPREADS = (1.0, 0.1)
"""Variances of a and b that those classes have, so that a spread never collapses."""

N_ROUNDS, N_STEPS, CONVERGED = 24, 2, 1e-3
LARGEST_STEP, N_HALVINGS = 2.0, 6


@dataclass(frozen=True)
class LabelledOdds:
    """The odds [class, bin] that a label of a class and score is explicit and positive.

    ``ceiling`` [class]: the odds that they approach as scores rise; its inverse is the largest r
    that agrees with them.
    """

    values: Matrix
    ceiling: Matrix


@dataclass(frozen=True)
class _Counts:
    """Labelled and implicit counts [class, bin] and their scores, in sds of all implicit scores."""

    labelled: Matrix
    implicit: Matrix
    scores: Matrix


@dataclass(frozen=True)
class _Prior:
    """What the classes' (a, b, log r) have in common: mean [3] and covariance [3, 3]."""

    mean: Matrix
    covariance: Matrix

    @property
    def precision(self) -> Matrix:
        return np.asarray(np.linalg.inv(self.covariance))


def labelled_odds(histograms: Histograms) -> LabelledOdds:
    """Fit the odds of all classes; every class has positives and implicit labels."""
    counts = _standardised(histograms)
    found = _fit_together(counts)
    return LabelledOdds(_odds(counts, found.parameters), np.exp(-found.parameters[:, 2]))


def pooled_odds(histograms: Histograms) -> LabelledOdds:
    """Fit one curve to the scores of all classes, as if they were one class."""
    counts = _standardised(histograms)
    shape = counts.scores.shape
    every = _Counts(
        *(one.reshape(1, -1) for one in (counts.labelled, counts.implicit, counts.scores))
    )
    found = _fit_together(every)
    ceiling = np.repeat(np.exp(-found.parameters[:, 2]), shape[0])
    return LabelledOdds(_odds(every, found.parameters).reshape(shape), ceiling)


def _standardised(histograms: Histograms) -> _Counts:
    centres = histograms.low[:, None] + (np.arange(N_BINS) + 0.5) * histograms.width[:, None]
    weights = histograms.implicit / histograms.implicit.sum()
    mean = (weights * centres).sum()
    sd = np.sqrt((weights * (centres - mean) ** 2).sum())
    scores = (centres - mean) / max(float(sd), 1e-12)
    return _Counts(histograms.positives, histograms.implicit, scores)


@dataclass(frozen=True)
class _Place:
    """Parameters (a, b, log r) [class, 3], and what the counts tell there.

    The log likelihood [class], its gradient [class, 3] and Fisher's information [class, 3, 3].
    """

    parameters: Matrix
    likelihood: Matrix
    gradient: Matrix
    information: Matrix

    def log_posterior(self, prior: _Prior) -> Matrix:
        apart = self.parameters - prior.mean
        doubt = ((apart @ prior.precision) * apart).sum(axis=1) / 2
        return np.asarray(self.likelihood - doubt)

    def slope(self, prior: _Prior) -> tuple[Matrix, Matrix]:
        """Return gradient and information of the log posterior."""
        gradient = self.gradient - (self.parameters - prior.mean) @ prior.precision
        return gradient, self.information + prior.precision


def _place(counts: _Counts, parameters: Matrix) -> _Place:
    n = len(parameters)
    told = (np.empty(n), np.empty((n, 3)), np.empty((n, 3, 3)))
    look_at_odds(counts.labelled, counts.implicit, counts.scores, parameters, *told)
    return _Place(parameters, *told)


def _odds(counts: _Counts, parameters: Matrix) -> Matrix:
    """Return the odds [class, bin] of being labelled."""
    present = expit(parameters[:, :1] + parameters[:, 1:2] * counts.scores)
    labelled = (present * expit(-parameters[:, 2:])).clip(1e-12, 1 - 1e-9)
    return np.asarray(labelled / (1 - labelled))


def _fit_together(counts: _Counts) -> _Place:
    """Return where all classes fit, each drawn towards all of them."""
    n, n_implicit = counts.labelled.sum(axis=1), counts.implicit.sum(axis=1)
    parameters = np.stack([np.log((n + 0.5) / n_implicit), 0 * n + 0.5, 0 * n], axis=1)
    start = np.array([np.median(parameters[:, 0]), 1.0, 0.0])
    prior = _Prior(start, np.diag([4.0, 1.0, CEILING_SD**2]))
    here = _place(counts, parameters)
    for _ in range(N_ROUNDS):
        before = here.parameters
        here, information = _fit_each(counts, here, prior)
        prior = _pooled(here.parameters, np.asarray(np.linalg.inv(information), np.float64))
        if np.abs(here.parameters - before).max() < CONVERGED:
            break
    return here


def _pooled(parameters: Matrix, covariances: Matrix) -> _Prior:
    """Return what the classes have in common; the spread of log r is held."""
    n_classes = len(parameters)
    mean = parameters.sum(axis=0) / (n_classes + np.array([0, 0, PRIOR_CLASSES]))
    apart = parameters - mean
    least = np.diag([*LEAST_SPREADS, PRIOR_CLASSES * CEILING_SD**2])
    covariance = (apart.T @ apart + covariances.sum(axis=0) + least) / (n_classes + PRIOR_CLASSES)
    held = np.array([1, 1, CEILING_SD / np.sqrt(covariance[2, 2])])
    return _Prior(mean, covariance * held * held[:, None])


def _fit_each(counts: _Counts, here: _Place, prior: _Prior) -> tuple[_Place, Matrix]:
    """Return the most probable parameters by Fisher's scoring, and their information."""
    information = np.empty(0)
    for _ in range(N_STEPS):
        gradient, information = here.slope(prior)
        solved = np.linalg.solve(information, gradient[:, :, None])[:, :, 0]
        step = np.asarray(solved.clip(-LARGEST_STEP, LARGEST_STEP), np.float64)
        before, here = here, _stepped(counts, here, step, prior)
        if np.abs(here.parameters - before.parameters).max() < CONVERGED:
            break
    return here, information


def _stepped(counts: _Counts, here: _Place, step: Matrix, prior: _Prior) -> _Place:
    """Return where as much of each class's step leads as does not lead downhill."""
    lengths, lowest = np.ones(len(step)), here.log_posterior(prior) - 1e-9
    for _ in range(N_HALVINGS):
        there = _place(counts, here.parameters + lengths[:, None] * step)
        is_worse = there.log_posterior(prior) < lowest
        if not is_worse.any():
            return there
        lengths[is_worse] *= 0.3
    lengths[is_worse] = 0
    return _place(counts, here.parameters + lengths[:, None] * step)
