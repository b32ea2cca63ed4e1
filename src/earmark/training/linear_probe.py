"""Logistic regression of many classes at once, with a target and a weight for every label.

The whole fit is one convex problem, solved by L-BFGS: the answer does not depend on an order of
clips, a learning rate or a seed. Plain arrays are fitted, features [clip, feature] to targets
[clip, class], and nothing needs torch. :func:`earmark.training.train` fits the linear probes of a
frame store with it, where a recipe says ``solver = "lbfgs"``.

Features are centred and divided by a power of their spread, then scaled such that a clip's mean
square is 1, so that ``ridge`` means the same for any features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import logit

from earmark.errors import EarmarkError
from earmark.labels import LabelSet

Numbers = NDArray[np.floating[Any]]

RIDGE = 1.0
"""The default ridge: half of it times the squares of all weights is added to the loss."""

_LEAST_SPREAD = 0.1
"""Added to each feature's spread, as a share of the mean spread: rare features must not explode."""

_HISTORY, _TOLERANCE = 10, 1e-7
"""Steps that L-BFGS remembers; the relative gain of a step below which it has arrived."""


@dataclass(frozen=True)
class LinearProbe:
    """Weights [feature, class] and bias [class] for unscaled features."""

    weights: Numbers
    bias: Numbers
    loss: float
    """The weighted cross-entropy that the fit reached, summed over clips and classes."""

    def logits(self, features: Numbers) -> NDArray[np.float32]:
        """Return the logits [clip, class] float32 of features [clip, feature]."""
        return np.asarray(np.asarray(features) @ self.weights + self.bias, np.float32)


@dataclass(frozen=True)
class ScaledFeatures:
    """Scaled features [clip, feature] with the centre and the scale of each.

    Scale once, fit many probes: the copy of the features is the only large one.
    """

    values: Numbers
    centre: Numbers
    scale: Numbers

    @classmethod
    def of(cls, features: Numbers, power: float = 1.0) -> ScaledFeatures:
        """Copy and scale features; float32 stays float32.

        Features are divided by this power of their spread: 1 makes all spreads equal, 0.5 goes
        half-way.
        """
        raw = np.asarray(features)
        kind = raw.dtype if raw.dtype in (np.float32, np.float64) else np.dtype(np.float32)
        values = raw.astype(kind)  # a copy, even of a memory map
        centre = values.mean(axis=0, dtype=np.float64).astype(kind)
        values -= centre
        spread = np.sqrt(np.square(values).mean(axis=0, dtype=np.float64))
        divisor = (spread + _LEAST_SPREAD * spread.mean()) ** power
        divisor = np.where(divisor > 0, divisor, 1.0)
        length = max(float(np.sqrt(np.square(spread / divisor).sum())), 1e-12)
        scale = (divisor * length).astype(kind)
        values /= scale
        return cls(values, centre, scale)


def fit_probe(
    features: Numbers | ScaledFeatures,
    target: Numbers | NDArray[np.bool_],
    weight: Numbers | None = None,
    *,
    ridge: float = RIDGE,
    n_iterations: int = 300,
    on_iteration: Callable[[], object] | None = None,
) -> LinearProbe:
    """Fit one linear probe to targets in 0 to 1 [clip, class] by weighted cross-entropy.

    A label of weight 0 has no part in it; without weights all count alike. The bias is not drawn
    to 0. A class all of whose labels have weight 0 gets a logit of 0.
    """
    scaled = features if isinstance(features, ScaledFeatures) else ScaledFeatures.of(features)
    values = scaled.values
    pull, label_weight = _weighted_target(values, target, weight)
    n_classes = pull.shape[1]

    def parts(solution: NDArray[np.float64]) -> tuple[Numbers, Numbers]:
        """Return weights [feature, class] and bias [class]."""
        typed = solution.astype(values.dtype)
        return typed[:-n_classes].reshape(-1, n_classes), typed[-n_classes:]

    def loss_and_slope(solution: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, bias = parts(solution)
        logits = values @ weights
        logits += bias
        # log(1 + e^z) and its slope from one exponential, which never overflows.
        small = np.exp(-np.abs(logits))
        entries = np.maximum(logits, 0) + np.log1p(small)
        outputs = np.where(logits >= 0, 1, small) / (1 + small)
        if label_weight is not None:
            entries *= label_weight
            outputs *= label_weight
        entries -= pull * logits
        outputs -= pull
        penalty = ridge / 2 * np.square(weights).sum(dtype=np.float64)
        slope = values.T @ outputs + ridge * weights
        gradient = np.concatenate([slope.ravel(), outputs.sum(axis=0, dtype=np.float64)])
        return float(entries.sum(dtype=np.float64) + penalty), gradient.astype(np.float64)

    # Begin with no weights, and the biases that fit each class's share of positives.
    n = len(pull) if label_weight is None else label_weight.sum(axis=0, dtype=np.float64)
    share = (pull.sum(axis=0, dtype=np.float64) + 0.5) / (n + 1)
    solution = scipy.optimize.minimize(
        loss_and_slope,
        np.concatenate([np.zeros(values.shape[1] * n_classes), logit(share)]),
        jac=True,
        method="L-BFGS-B",
        callback=None if on_iteration is None else lambda _: on_iteration(),
        options={"maxiter": n_iterations, "maxcor": _HISTORY, "ftol": _TOLERANCE, "gtol": 1e-5},
    )
    weights, bias = parts(solution.x)
    penalty = ridge / 2 * np.square(weights).sum(dtype=np.float64)
    weights = weights / scaled.scale[:, None]
    return LinearProbe(weights, bias - scaled.centre @ weights, float(solution.fun - penalty))


def _weighted_target(
    features: Numbers, target: Numbers | NDArray[np.bool_], weight: Numbers | None
) -> tuple[Numbers, Numbers | None]:
    """Return targets times their weights [clip, class], and the weights, as the features' type."""
    targets = np.asarray(target, features.dtype)
    if targets.ndim != 2 or len(targets) != len(features):
        raise EarmarkError(
            f"targets must be [clip, class] for {len(features):,} clips, got {targets.shape}"
        )
    if weight is None:
        return targets, None
    weights = np.asarray(weight, features.dtype)
    if weights.shape != targets.shape:
        raise EarmarkError(f"targets have shape {targets.shape}, their weights {weights.shape}")
    return targets * weights, weights


def cross_fit_probe(
    features: Numbers,
    labels: LabelSet,
    fold_of: NDArray[np.int64],
    *,
    ridge: float = RIDGE,
) -> NDArray[np.float32]:
    """Score every label by a probe that learnt from the other folds: logits float32 [clip, class].

    ``fold_of`` [clip] numbers the folds from 0. An implicit label counts as a negative, as for any
    teacher.
    """
    logits = np.empty((labels.n_clips, labels.n_classes), np.float32)
    for fold in range(int(fold_of.max()) + 1):
        learnt, held = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        probe = fit_probe(features[learnt], labels.states(learnt) > 0, ridge=ridge)
        logits[held] = probe.logits(features[held])
    return logits
