"""The mixture's fit in plain numpy: the slow twin of the loop in C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.flags import CONVERGED, N_FIRST_STEPS, Mixture
from earmark.flags.mixture import _first_guess

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class PlainFit:
    """Parameters, and what they make expect: missing, negatives, all [class, bin]."""

    parameters: Matrix
    missing: Matrix
    negatives: Matrix
    expected: Matrix
    depth: Matrix
    objective: Matrix


def is_tail(model: Mixture) -> NDArray[np.bool_]:
    return model.basis[:, 0] > 0


def plain_fit(
    model: Mixture,
    start: Matrix | None = None,
    n_steps: int = N_FIRST_STEPS,
    converged: float = CONVERGED,
) -> PlainFit:
    """Find the most probable parameters by Newton's method with Fisher's information."""
    found = _evaluated(model, _first_guess(model) if start is None else start)
    for _ in range(n_steps):
        before = found.objective
        step = _newton_step(model, found)
        for length in (1.0, 0.3, 0.1, 0.01):
            tried = _evaluated(model, found.parameters + length * step)
            is_better = tried.objective >= found.objective - converged
            found = _choose(is_better, tried, found)
            if is_better.all():
                break
            step = np.where(is_better[:, None], 0, step)
        if (found.objective < before + converged).all():
            break
    return found


def _evaluated(model: Mixture, parameters: Matrix) -> PlainFit:
    coefficients, tilt, log_m = parameters[:, :-2], parameters[:, -2:-1], parameters[:, -1:]
    shape = model.shape * np.exp((-tilt * model.depth).clip(-30, 30))
    shape /= shape.sum(axis=1, keepdims=True)
    n_missing = np.exp(log_m.clip(-30, 30))
    missing = n_missing * shape[:, -model.counts.shape[1] :] * is_tail(model)
    exponent = np.einsum("ckb,ck->cb", model.basis, coefficients)
    negatives = np.exp(exponent.clip(-40, 30)) * is_tail(model)
    expected = missing + negatives + n_missing * model.alike + 1e-9
    likelihood = (model.weights * (model.counts * np.log(expected) - expected)).sum(axis=1)
    doubt = (model.precision * (parameters - model.centre) ** 2).sum(axis=1) / 2
    depth = (model.depth * shape).sum(axis=1)
    return PlainFit(parameters, missing, negatives, expected, depth, likelihood - doubt)


def _choose(is_better: NDArray[np.bool_], tried: PlainFit, found: PlainFit) -> PlainFit:
    """Take the classes' better fits."""
    if is_better.all():
        return tried
    rows = is_better[:, None]
    return PlainFit(
        np.where(rows, tried.parameters, found.parameters),
        np.where(rows, tried.missing, found.missing),
        np.where(rows, tried.negatives, found.negatives),
        np.where(rows, tried.expected, found.expected),
        np.where(is_better, tried.depth, found.depth),
        np.where(is_better, tried.objective, found.objective),
    )


def _newton_step(model: Mixture, found: PlainFit) -> Matrix:
    slopes = slopes_of(model, found)
    rest = (model.weights * (model.counts / found.expected - 1))[:, None, :]
    gradient = (rest @ slopes)[:, 0] - model.precision * (found.parameters - model.centre)
    information = information_of(model, found, slopes)
    return np.asarray(np.linalg.solve(information, gradient[:, :, None])[:, :, 0], np.float64)


def slopes_of(model: Mixture, found: PlainFit) -> Matrix:
    """Return how the expected counts change [class, bin, parameter]."""
    depth = model.depth[:, -model.counts.shape[1] :]
    by_tilt = found.missing * (found.depth[:, None] - depth)
    by_log_m = found.expected - found.negatives
    curve = (model.basis * found.negatives[:, None, :]).transpose(0, 2, 1)
    return np.concatenate([curve, by_tilt[:, :, None], by_log_m[:, :, None]], axis=2)


def information_of(model: Mixture, found: PlainFit, slopes: Matrix) -> Matrix:
    """Return the Fisher information of the parameters [class, parameter, parameter]."""
    weighted = slopes * (model.weights / found.expected)[:, :, None]
    information = weighted.transpose(0, 2, 1) @ slopes
    return np.asarray(information + model.precision[:, :, None] * np.eye(model.precision.shape[1]))
