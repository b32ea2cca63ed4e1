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
    parameters = _fit_together(counts)
    found, _ = _shares(counts, parameters)
    return LabelledOdds(found / (1 - found), np.exp(-parameters[:, 2]))


def pooled_odds(histograms: Histograms) -> LabelledOdds:
    """Fit one curve to the scores of all classes, as if they were one class."""
    counts = _standardised(histograms)
    shape = counts.scores.shape
    every = _Counts(
        *(one.reshape(1, -1) for one in (counts.labelled, counts.implicit, counts.scores))
    )
    parameters = _fit_together(every)
    found, _ = _shares(every, parameters)
    odds = (found / (1 - found)).reshape(shape)
    return LabelledOdds(odds, np.repeat(np.exp(-parameters[:, 2]), shape[0]))


def _standardised(histograms: Histograms) -> _Counts:
    centres = histograms.low[:, None] + (np.arange(N_BINS) + 0.5) * histograms.width[:, None]
    weights = histograms.implicit / histograms.implicit.sum()
    mean = (weights * centres).sum()
    sd = np.sqrt((weights * (centres - mean) ** 2).sum())
    scores = (centres - mean) / max(float(sd), 1e-12)
    return _Counts(histograms.positives, histograms.implicit, scores)


def _fit_together(counts: _Counts) -> Matrix:
    """Return (a, b, log r) [class, 3], each class drawn towards all of them."""
    n, n_implicit = counts.labelled.sum(axis=1), counts.implicit.sum(axis=1)
    parameters = np.stack([np.log((n + 0.5) / n_implicit), 0 * n + 0.5, 0 * n], axis=1)
    start = np.array([np.median(parameters[:, 0]), 1.0, 0.0])
    prior = _Prior(start, np.diag([4.0, 1.0, CEILING_SD**2]))
    for _ in range(N_ROUNDS):
        before = parameters
        parameters, information = _fit_each(counts, parameters, prior)
        prior = _pooled(parameters, np.asarray(np.linalg.inv(information), np.float64))
        if np.abs(parameters - before).max() < CONVERGED:
            break
    return parameters


def _pooled(parameters: Matrix, covariances: Matrix) -> _Prior:
    """Return what the classes have in common; the spread of log r is held."""
    n_classes = len(parameters)
    mean = parameters.sum(axis=0) / (n_classes + np.array([0, 0, PRIOR_CLASSES]))
    apart = parameters - mean
    least = np.diag([*LEAST_SPREADS, PRIOR_CLASSES * CEILING_SD**2])
    covariance = (apart.T @ apart + covariances.sum(axis=0) + least) / (n_classes + PRIOR_CLASSES)
    held = np.array([1, 1, CEILING_SD / np.sqrt(covariance[2, 2])])
    return _Prior(mean, covariance * held * held[:, None])


def _fit_each(counts: _Counts, parameters: Matrix, prior: _Prior) -> tuple[Matrix, Matrix]:
    """Return the most probable parameters by Fisher's scoring, and their information."""
    information = np.empty(0)
    for _ in range(N_STEPS):
        gradient, information = _slope(counts, parameters, prior)
        solved = np.linalg.solve(information, gradient[:, :, None])[:, :, 0]
        step = np.asarray(solved.clip(-LARGEST_STEP, LARGEST_STEP), np.float64)
        step *= _lengths(counts, parameters, step, prior)[:, None]
        parameters = parameters + step
        if np.abs(step).max() < CONVERGED:
            break
    return parameters, information


def _lengths(counts: _Counts, parameters: Matrix, step: Matrix, prior: _Prior) -> Matrix:
    """Return how much of each class's step [class] does not lead downhill."""
    before = _log_posterior(counts, parameters, prior)
    lengths = np.ones(len(parameters))
    for _ in range(N_HALVINGS):
        after = _log_posterior(counts, parameters + lengths[:, None] * step, prior)
        is_worse = after < before - 1e-9
        if not is_worse.any():
            break
        lengths[is_worse] *= 0.3
    return np.where(is_worse, 0.0, lengths)


def _shares(counts: _Counts, parameters: Matrix) -> tuple[Matrix, Matrix]:
    """Return the chance [class, bin] of being labelled, and that of being present."""
    present = expit(parameters[:, :1] + parameters[:, 1:2] * counts.scores)
    labelled = present * expit(-parameters[:, 2:])
    return labelled.clip(1e-12, 1 - 1e-9), present


def _log_posterior(counts: _Counts, parameters: Matrix, prior: _Prior) -> Matrix:
    labelled, _ = _shares(counts, parameters)
    likelihood = counts.labelled * np.log(labelled) + counts.implicit * np.log1p(-labelled)
    apart = parameters - prior.mean
    return np.asarray(likelihood.sum(axis=1) - ((apart @ prior.precision) * apart).sum(axis=1) / 2)


def _slope(counts: _Counts, parameters: Matrix, prior: _Prior) -> tuple[Matrix, Matrix]:
    """Return gradient [class, 3] and Fisher information [class, 3, 3] of the log posterior."""
    labelled, present = _shares(counts, parameters)
    by_a = labelled * (1 - present)
    by_r = -labelled * expit(parameters[:, 2:])
    changes = np.stack([by_a, by_a * counts.scores, by_r], axis=2)
    rest = counts.labelled / labelled - counts.implicit / (1 - labelled)
    gradient = (rest[:, None, :] @ changes)[:, 0] - (parameters - prior.mean) @ prior.precision
    weights = (counts.labelled + counts.implicit) / (labelled * (1 - labelled))
    information = (changes * weights[:, :, None]).transpose(0, 2, 1) @ changes
    return gradient, np.asarray(information + prior.precision)
