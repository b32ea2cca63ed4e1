"""Robust losses: they allow for missing labels without a teacher, most by the student's outputs.

Each is the published formula as a function of logits, the targets of a batch, the epoch and an
operating point; it returns the loss of every label. Only implicit labels are suspected. An explicit
negative keeps its cross-entropy, an explicit positive takes the loss's own positive term where it
has one. Written p is the student's output, z its logit.

LL-R (Kim et al. 2022) drops the k largest losses of a batch, so its result depends on the size of
batches. What a loss remembers belongs into the run's checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, softplus

from earmark.errors import EarmarkError
from earmark.losses import BatchTargets, bce_entries
from earmark.training.distributed import n_processes

SPLC_GAMMA, SPLC_MARGIN = 2.0, 1.0

RECORDING_RATE = 0.1
"""How far what a student says of a recording moves to what it says of the clip at hand."""

Loss = Callable[[Tensor, BatchTargets, int | None], Tensor]
"""From logits, targets and the epoch to the loss of every label [student, example, class]."""


def _cross_entropy(
    logits: Tensor, targets: BatchTargets, _epoch: int | None, _point: float
) -> Tensor:
    """Weighted binary cross-entropy, to which a treatment gives targets and weights."""
    return bce_entries(logits, targets)


def _weak_negatives(
    logits: Tensor, targets: BatchTargets, _epoch: int | None, negative_weight: float
) -> Tensor:
    """Implicit labels are negatives of little weight: w * -log(1 - p), the same for all of them.

    With 0.01 it is the rule that OpenSoundscape has for labels that nobody checked.
    """
    return _entries(logits, targets, softplus(-logits), negative_weight * softplus(logits))


def _label_smoothing(
    logits: Tensor, targets: BatchTargets, _epoch: int | None, epsilon: float
) -> Tensor:
    """AN-LS: a label of 1 becomes 1 - epsilon and a label of 0 becomes epsilon."""
    smooth = targets.target * (1 - 2 * epsilon) + epsilon
    return bce_entries(logits, replace(targets, target=smooth))


def _entropy_maximisation(
    logits: Tensor, targets: BatchTargets, _epoch: int | None, alpha: float
) -> Tensor:
    """EM (Zhou et al. 2022): implicit labels ask for a high entropy, -alpha * H(p).

    The loss of an implicit label is negative: alpha * (p log p + (1 - p) log(1 - p)).
    """
    p = logits.sigmoid()
    negative_entropy = p * logsigmoid(logits) + (1 - p) * logsigmoid(-logits)
    return _entries(logits, targets, softplus(-logits), alpha * negative_entropy)


def _self_paced_correction(
    logits: Tensor, targets: BatchTargets, epoch: int | None, tau: float
) -> Tensor:
    """SPLC (Zhang et al. 2021): from the second epoch an implicit label with p > tau is a positive.

    Implicit: -p^2 log(1 - p). Positive: -(1 - p_m)^2 log p_m with p_m = sigmoid(z - 1).
    """
    p = logits.sigmoid()
    rest = SPLC_MARGIN - logits
    positive = rest.sigmoid() ** SPLC_GAMMA * softplus(rest)
    negative = p**SPLC_GAMMA * softplus(logits)
    if _needed(epoch, "splc") >= 1:
        negative = torch.where(p > tau, positive, negative)
    return _entries(logits, targets, positive, negative)


def _large_loss_rejection(
    logits: Tensor, targets: BatchTargets, epoch: int | None, delta_percent: float
) -> Tensor:
    """LL-R: the k largest losses of a batch's implicit labels are dropped.

    k = ceil(B * C * epoch * delta), with epoch counted from 0: the first is untouched.
    """
    if n_processes() > 1:
        raise EarmarkError(
            "ll-r drops the largest losses of a whole batch, of which each process has a part; use "
            "another strategy, or train in one process"
        )
    entries = bce_entries(logits, targets)
    share = delta_percent / 100 * _needed(epoch, "ll-r")
    return entries.masked_fill(largest(entries, targets.implicit, share), 0.0)


@dataclass
class RecordingConsistency:
    """Clips of one recording agree: what is heard in one of them is likely in the others.

    An implicit label has cross-entropy to its label and, alpha times, to the mean of what the
    student has said of its class in clips of the same recording, a running mean that follows the
    clips at hand by :data:`RECORDING_RATE`. A recording of one clip has nothing to agree with. The
    idea is that of the L48 benchmark (Sun et al. 2025), the formula ours.
    """

    alpha: float = 1.0
    memory: Tensor = field(default_factory=lambda: torch.empty(0), init=False)
    """What was said of recordings [student, recording, class]; NaN where nothing was yet."""

    def __call__(self, logits: Tensor, targets: BatchTargets, epoch: int | None) -> Tensor:
        """Return cross-entropy to the labels, and to what was said of the recording."""
        del epoch
        if targets.recordings is None or n_processes() > 1:
            raise EarmarkError(
                "consistency remembers what it has seen: it cannot be used with mixup or with "
                "several processes; use another strategy, or train in one process without mixup"
            )
        recordings = targets.recordings.cpu()
        entries = bce_entries(logits, targets)
        is_shared = recordings >= 0
        if not is_shared.any():
            return entries
        self._make_room(len(logits), int(recordings.max()) + 1, logits.shape[-1])
        said = torch.where(is_shared[:, None], self.memory[:, recordings], torch.nan).to(logits)
        is_known = targets.implicit & ~said.isnan()
        agreement = binary_cross_entropy_with_logits(logits, said.nan_to_num(), reduction="none")
        outputs = logits.detach().sigmoid().to(self.memory)
        self._remember(recordings[is_shared], outputs[:, is_shared])
        return entries + self.alpha * targets.weight * agreement.masked_fill(~is_known, 0.0)

    def _make_room(self, n_students: int, n_recordings: int, n_classes: int) -> None:
        known = self.memory.view(n_students, -1, n_classes) if len(self.memory) else None
        n_more = n_recordings - (0 if known is None else known.shape[1])
        if n_more > 0:
            unknown = torch.full((n_students, n_more, n_classes), torch.nan)
            self.memory = unknown if known is None else torch.cat([known, unknown], dim=1)

    def _remember(self, recordings: Tensor, outputs: Tensor) -> None:
        """Move what was said of recordings to their means in ``outputs`` [student, example, c]."""
        which, places = np.unique(recordings.numpy(), return_inverse=True)
        sums = outputs.new_zeros(len(outputs), len(which), outputs.shape[2])
        now = sums.index_add_(1, torch.from_numpy(places), outputs)
        now /= torch.from_numpy(np.bincount(places))[:, None]
        before = self.memory[:, which]
        self.memory[:, which] = torch.where(before.isnan(), now, before).lerp(now, RECORDING_RATE)


def largest(losses: Tensor, candidates: Tensor, share: float) -> Tensor:
    """Tell which losses [student, example, class] are among each student's k largest candidates.

    ``candidates`` [example, class] or of the losses' shape is true where a label may be chosen;
    k = ceil(share * B * C) with B examples and C classes. Losses that tie with the k-th are chosen
    too. With share 0 nothing is.
    """
    n_entries = losses[0].numel()
    k = min(math.ceil(round(share * n_entries, 6)), n_entries)
    if k == 0:
        return torch.zeros_like(losses, dtype=torch.bool)
    eligible = losses.detach().masked_fill(~candidates, -torch.inf)
    least = eligible.flatten(1).topk(k).values[:, -1]  # [student]
    return (eligible >= least[:, None, None]) & candidates.expand_as(losses)


_FUNCTIONS: Mapping[str, tuple[Callable[..., Tensor], float]] = {
    "bce": (_cross_entropy, math.nan),
    "weak-negatives": (_weak_negatives, 0.01),
    "an-ls": (_label_smoothing, 0.1),
    "em": (_entropy_maximisation, 0.1),
    "splc": (_self_paced_correction, 0.6),
    "ll-r": (_large_loss_rejection, 0.2),
}

LOSSES = (*_FUNCTIONS, "consistency")
"""Names of losses. Strategies give them their usual points
(:data:`earmark.experiments.strategies.LOSS_POINTS`)."""


def make_loss(name: str, point: float | None = None) -> Loss:
    """Return the loss of a name in :data:`LOSSES`, at an operating point or its default.

    The point is the weight for ``weak-negatives``, epsilon for ``an-ls``, alpha for ``em`` and
    ``consistency``, tau for ``splc`` and delta in per cent for ``ll-r``; ``bce`` has none.
    """
    if name == "consistency":
        return RecordingConsistency() if point is None else RecordingConsistency(point)
    if name not in _FUNCTIONS:
        raise EarmarkError(f"there is no loss {name!r}; the choices are {', '.join(LOSSES)}")
    function, default = _FUNCTIONS[name]
    return lambda logits, targets, epoch: function(
        logits, targets, epoch, default if point is None else point
    )


def _needed(epoch: int | None, name: str) -> int:
    if epoch is None:
        raise EarmarkError(
            f"{name} changes from epoch to epoch: pass the epoch, counted from 0, as in "
            "loss(logits, rows, epoch=epoch)"
        )
    return epoch


def _entries(logits: Tensor, targets: BatchTargets, positive: Tensor, negative: Tensor) -> Tensor:
    """Weigh a positive and a negative term; explicit negatives keep their cross-entropy."""
    negative = torch.where(targets.implicit, negative, softplus(logits))
    return targets.weight * (targets.target * positive + (1 - targets.target) * negative)
