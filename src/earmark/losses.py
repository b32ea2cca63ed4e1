"""Binary cross-entropy that ignores flagged labels.

Equation (1) of the paper sums binary cross-entropy over classes; equation (2)'s mask M multiplies
its negative term. Every loss here works on a (target, weight) pair per label, so that what becomes
of a flagged label is data: masking is target 0 with weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from earmark.errors import EarmarkError

Reduction = Literal["sum", "mean_kept"]


def masked_bce(
    logits: Tensor, states: Tensor, ignored: Tensor | None = None, reduction: Reduction = "sum"
) -> Tensor:
    """Return binary cross-entropy in which ignored negatives have no part; a scalar.

    ``logits`` [example, class] are the student's; ``states`` [example, class] are +1, -1 or 0
    (implicit, taken as negative); ``ignored`` [example, class] is true where an implicit label was
    flagged. The mask acts on the negative term only: a positive is never ignored.

    >>> masked_bce(torch.zeros(1, 2), torch.tensor([[1, 0]]), torch.tensor([[False, True]]))
    tensor(0.6931)
    """
    target, weight = masked(states, ignored, logits.dtype)
    return weighted_bce(logits, target, weight, reduction)


def masked(
    states: Tensor, ignored: Tensor | None, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Return target and weight of each label: 1 or 0, and weight 0 where a negative is ignored."""
    is_positive = states > 0
    if ignored is None:
        return is_positive.to(dtype), torch.ones_like(states, dtype=dtype)
    return is_positive.to(dtype), (is_positive | ~ignored).to(dtype)


@dataclass(frozen=True)
class Targets:
    """What a batch of labels asks of the students.

    ``target`` and ``weight`` are [student or 1, example, class]; ``implicit`` [example, class] is
    true where nobody was asked; ``rows`` int64 [example] names the clips, for a loss that
    remembers them.
    """

    target: Tensor
    weight: Tensor
    implicit: Tensor
    rows: Tensor | None = None

    def to(self, device: torch.device) -> Targets:
        """Return the same on a device."""
        rows = None if self.rows is None else self.rows.to(device)
        target, weight = self.target.to(device), self.weight.to(device)
        return Targets(target, weight, self.implicit.to(device), rows)

    def of(self, students: slice) -> Targets:
        """Return what is asked of some of the students."""
        target = self.target if len(self.target) == 1 else self.target[students]
        weight = self.weight if len(self.weight) == 1 else self.weight[students]
        return Targets(target, weight, self.implicit, self.rows)


@dataclass(frozen=True)
class Moment:
    """How far a run has come: epoch and step count from 0, ``n_steps`` is the steps of an epoch."""

    epoch: int
    step: int
    n_steps: int


def bce_entries(logits: Tensor, targets: Targets, moment: Moment | None = None) -> Tensor:
    """Return weighted binary cross-entropy of every label [student, example, class]."""
    del moment
    target, weight = targets.target.expand_as(logits), targets.weight.expand_as(logits)
    return functional.binary_cross_entropy_with_logits(logits, target, weight, reduction="none")


def weighted_bce(
    logits: Tensor, target: Tensor, weight: Tensor, reduction: Reduction = "sum"
) -> Tensor:
    """Return weighted binary cross-entropy of [example, class], or of several students' at once.

    See :func:`reduced` for what ``reduction`` does with classes, examples and students.
    """
    _check_shapes(logits, target, weight)
    entries = bce_entries(logits, Targets(target, weight, torch.zeros_like(target)))
    return reduced(entries, weight, reduction)


def reduced(entries: Tensor, weight: Tensor, reduction: Reduction) -> Tensor:
    """Add up the losses of [example, class], or of several students' at once; a scalar.

    ``sum`` adds up classes and averages over examples (equation 1); ``mean_kept`` divides by the
    sum of the weights. With every weight at zero the loss is 0 and so is its gradient. Students
    stand before the examples, [student, example, class]; their losses are added up, so each has
    the gradient that it would have alone.
    """
    return normalised(entries, norms(weight, reduction))


def norms(weight: Tensor, reduction: Reduction) -> Tensor:
    """Return what each student's sum of losses is divided by: examples, or the sum of weights.

    Norms of parts of a batch add up to the whole batch's, which is how processes share one.
    """
    if reduction == "sum":
        return weight.new_full((), weight.shape[-2])
    return weight.sum(dim=(-2, -1))


def normalised(entries: Tensor, norms: Tensor) -> Tensor:
    """Add up the losses of [example, class], or of several students', each over its norm."""
    return by_student(entries, norms).sum()


def by_student(entries: Tensor, norms: Tensor) -> Tensor:
    """Return every student's sum of losses over its norm [student], from [student, example, c]."""
    return entries.sum(dim=(-2, -1)) / norms.clamp(min=1e-12)


def _check_shapes(logits: Tensor, target: Tensor, weight: Tensor) -> None:
    if not logits.shape == target.shape == weight.shape:
        raise EarmarkError(
            f"logits, labels and mask must have one shape [example, class], got "
            f"{tuple(logits.shape)}, {tuple(target.shape)} and {tuple(weight.shape)}"
        )
