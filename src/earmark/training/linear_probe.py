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
    problem = _Problem.of(scaled.values, target, weight, ridge)
    solution = scipy.optimize.minimize(
        problem.loss_and_slope,
        problem.start(),
        jac=True,
        method="L-BFGS-B",
        callback=None if on_iteration is None else lambda _: on_iteration(),
        options={"maxiter": n_iterations, "maxcor": _HISTORY, "ftol": _TOLERANCE, "gtol": 1e-5},
    )
    weights, bias = problem.parts(solution.x)
    penalty = ridge / 2 * np.square(weights).sum(dtype=np.float64)
    weights = weights / scaled.scale[:, None]
    return LinearProbe(weights, bias - scaled.centre @ weights, float(solution.fun - penalty))


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


@dataclass(frozen=True)
class _Problem:
    """What the weights are the answer to; ``pull`` is the weighted target [clip, class]."""

    features: Numbers
    pull: Numbers
    weight: Numbers | None
    ridge: float

    @classmethod
    def of(
        cls,
        features: Numbers,
        target: Numbers | NDArray[np.bool_],
        weight: Numbers | None,
        ridge: float,
    ) -> _Problem:
        targets = np.asarray(target, features.dtype)
        if targets.ndim != 2 or len(targets) != len(features):
            raise EarmarkError(
                f"targets must be [clip, class] for {len(features):,} clips, got {targets.shape}"
            )
        if weight is None:
            return cls(features, targets, None, ridge)
        weights = np.asarray(weight, features.dtype)
        if weights.shape != targets.shape:
            raise EarmarkError(f"targets have shape {targets.shape}, their weights {weights.shape}")
        return cls(features, targets * weights, weights, ridge)

    def start(self) -> NDArray[np.float64]:
        """Return no weights, and the biases that fit each class's share of positives."""
        n_features, n_classes = self.features.shape[1], self.pull.shape[1]
        n = len(self.pull) if self.weight is None else self.weight.sum(axis=0, dtype=np.float64)
        share = (self.pull.sum(axis=0, dtype=np.float64) + 0.5) / (n + 1)
        return np.concatenate([np.zeros(n_features * n_classes), logit(share)])

    def parts(self, solution: NDArray[np.float64]) -> tuple[Numbers, Numbers]:
        """Return weights [feature, class] and bias [class]."""
        n_classes = self.pull.shape[1]
        values = solution.astype(self.features.dtype)
        return values[:-n_classes].reshape(-1, n_classes), values[-n_classes:]

    def loss_and_slope(self, solution: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the loss and its gradient, both float64."""
        weights, bias = self.parts(solution)
        logits = self.features @ weights
        logits += bias
        # log(1 + e^z) and its slope from one exponential, which never overflows.
        small = np.exp(-np.abs(logits))
        entries = np.maximum(logits, 0) + np.log1p(small)
        outputs = np.where(logits >= 0, 1, small) / (1 + small)
        if self.weight is not None:
            entries *= self.weight
            outputs *= self.weight
        entries -= self.pull * logits
        outputs -= self.pull
        loss = entries.sum(dtype=np.float64) + self.ridge / 2 * np.square(weights).sum(
            dtype=np.float64
        )
        slope = self.features.T @ outputs + self.ridge * weights
        return float(loss), np.concatenate(
            [slope.ravel(), outputs.sum(axis=0, dtype=np.float64)]
        ).astype(np.float64)
