"""Linear probes fitted as a whole: logistic regression by L-BFGS, in place of many small steps.

With a few thousand clips that is faster than steps of Adam and finds a better probe. What the probe
sees of each clip is computed once and kept in memory; every iteration goes over all clips. Features
are centred and divided by the root of their spread, between leaving them as they are and making all
equal; then scaled such that a clip's mean square is 1, so that ``ridge`` means the same for any
embedding. What comes out is an ordinary probe: centring and scales go into its weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from earmark.audio import FrameStore
from earmark.compute import Meter
from earmark.config import NetworkParams
from earmark.errors import EarmarkError
from earmark.losses import BatchTargets
from earmark.models import ClipExamples, Probe, build, own_device
from earmark.training.targets import TrainingSet

_CLIPS_AT_ONCE = 256
_LEAST_SPREAD = 0.1
"""Added to each feature's spread, as a share of the mean spread: rare features must not explode."""

_HISTORY = 10
"""Steps that L-BFGS remembers."""


@dataclass(frozen=True)
class Fitted:
    """A fitted probe, and its history: the loss after the last iteration of each student."""

    probe: Probe
    history: list[dict[str, float]]


def fit_linear_probe(
    network: NetworkParams, data: TrainingSet, store: FrameStore, meter: Meter
) -> Fitted:
    """Fit the linear probes of a training set, a student after the other.

    The meter counts each clip as often as the loss is looked at, ``epochs`` times at most.
    """
    start = time.monotonic()
    n_iterations = network.train.epochs
    if network.model.architecture != "linear_probe" or n_iterations is None:
        raise EarmarkError(
            f'solver = "lbfgs" fits linear probes in so many epochs, got '
            f"{network.model.architecture} and {network.train.length}"
        )
    n_classes, n_students = len(data.targets.class_ids), data.targets.n_students
    probe = build(network.model, store.n_bands, n_classes, n_students, network.train.seed)
    assert isinstance(probe, Probe)
    scaled = _Scaled.of(_seen(probe, ClipExamples(store, data.store_rows)))
    targets = data.targets.targets(np.arange(len(data.store_rows)))
    targets = replace(targets, recordings=None).to(own_device())  # no loss can remember here
    ticks, losses = _Ticks(meter, len(data.store_rows), n_iterations), []
    for student in range(n_students):
        own = slice(student, student + 1)
        problem = _Problem(scaled, data, targets.select(own), own, network.train.ridge)
        weight, bias, loss = problem.solve(n_iterations, ticks.tick)
        weight, bias = scaled.unscaled(weight, bias)
        with torch.no_grad():
            probe.weights[0][student], probe.biases[0][student, 0] = weight, bias
        losses.append(loss / max(len(data.store_rows), 1))
    ticks.finish(f"loss {np.mean(losses):.3f}")
    seconds = time.monotonic() - start
    row = {"epoch": n_iterations, "loss": float(np.mean(losses)), "seconds": seconds}
    return Fitted(probe.eval(), [row])


def _seen(probe: Probe, examples: ClipExamples) -> Tensor:
    """Return what a probe sees of all clips [clip, feature]."""
    parts = []
    for first in range(0, len(examples.rows), _CLIPS_AT_ONCE):
        clips = np.arange(first, min(first + _CLIPS_AT_ONCE, len(examples.rows)))
        with torch.no_grad():
            parts.append(probe.see(*examples.inputs(clips, np.zeros_like(clips)))[0])
    return torch.cat(parts)


@dataclass(frozen=True)
class _Scaled:
    """Features [clip, feature] as they are fitted, and what was taken off and divided by."""

    features: Tensor
    centre: Tensor
    scale: Tensor

    @classmethod
    def of(cls, seen: Tensor) -> _Scaled:
        centre, spread = seen.mean(dim=0), seen.std(dim=0, correction=0)
        root = (spread + _LEAST_SPREAD * spread.mean()).sqrt()
        root = torch.where(root > 0, root, 1.0)
        features = seen.sub_(centre).div_(root)  # in place: there may be gigabytes of them
        length = torch.linalg.vector_norm(features) / max(len(features), 1) ** 0.5
        length = length.clamp(min=1e-12)
        return cls(features.div_(length), centre, root * length)

    def unscaled(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights [feature, class] and bias [class] for features as they are seen."""
        own = weight / self.scale.unsqueeze(1)
        return own, bias - self.centre @ own


@dataclass
class _Ticks:
    """Progress of a fit of which nobody knows how many steps it takes."""

    meter: Meter
    n_clips: int
    n_left: int

    def tick(self) -> None:
        """Count one look at all clips, but not the last: that is the end."""
        if self.n_left > 1:
            self.n_left -= 1
            self.meter.advance(self.n_clips)

    def finish(self, note: str) -> None:
        """Count whatever was not needed."""
        self.meter.advance(self.n_clips * self.n_left, note)


@dataclass(frozen=True)
class _Problem:
    """What one student's weights are the answer to."""

    scaled: _Scaled
    data: TrainingSet
    targets: BatchTargets
    student: slice
    ridge: float

    def solve(self, n_iterations: int, tick: Callable[[], None]) -> tuple[Tensor, Tensor, float]:
        """Return weights [feature, class], bias [class] and the loss, without the ridge's part."""
        features = self.scaled.features
        target, weight = self.targets.target[0], self.targets.weight[0]
        share = ((target * weight).sum(dim=0) + 0.5) / (weight.sum(dim=0) + 1)
        bias = torch.logit(share).clone().requires_grad_()
        weights = features.new_zeros(features.shape[1], target.shape[1]).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [weights, bias],
            max_iter=n_iterations,
            history_size=_HISTORY,
            line_search_fn="strong_wolfe",
        )

        def loss() -> Tensor:
            logits = torch.addmm(bias, features, weights).unsqueeze(0)
            entries = self.data.targets.entries(logits, self.targets, 0, self.student)
            return entries.sum()

        def closure() -> Tensor:
            optimiser.zero_grad()
            value = loss() + self.ridge / 2 * weights.square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            tick()
            return value

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            return weights.detach(), bias.detach(), float(loss())
