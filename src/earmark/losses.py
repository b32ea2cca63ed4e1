"""Binary cross-entropy that ignores flagged labels.

Equation (1) of the paper sums binary cross-entropy over classes; equation (2)'s mask M multiplies
its negative term. Every loss here works on a (target, weight) pair per label, so that what becomes
of a flagged label is data: masking is target 0 with weight 0.

Equation (2)'s mask is the complement of :func:`ignored`, which works on numpy arrays and on torch
tensors and is the only place where scores meet thresholds: users, training, evaluation and the
counts of flags all call it. This module loads torch only where a loss is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Reduction = Literal["sum", "mean_kept"]
Floats = NDArray[np.floating[Any]]
Booleans = NDArray[np.bool_]

TREATMENTS: Mapping[str, Callable[[Floats], tuple[Floats | float, Floats | bool]]] = {
    "mask": lambda _: (0.0, False),
    "flip": lambda _: (1.0, True),
    "soft": lambda p: (p, True),
    "hedge": lambda p: (p / 2, True),
    "weight": lambda p: (0.0, 1 - p),
}
"""What becomes of flagged labels: (target, weight) by the teacher's outputs p [label].

``hedge`` stands half-way between the label as it is and the teacher. Where flags go by learnt
chances, p is the chance that the label is missing.
"""


@overload
def ignored(states: NDArray[Any], logits: Floats, thresholds_row: Floats) -> Booleans: ...
@overload
def ignored(states: Tensor, logits: Tensor, thresholds_row: Tensor | Floats) -> Tensor: ...
@overload
def ignored(states: NDArray[Any], logits: Tensor, thresholds_row: Tensor | Floats) -> Tensor: ...
def ignored(states: Any, logits: Any, thresholds_row: Any) -> Any:
    """Tell which labels [clip, class] are ignored: implicit, and scored above t_c.

    The complement of equation (2)'s mask. ``states`` are +1, -1 or 0 (implicit); ``logits`` are the
    teacher's; ``thresholds_row`` float32 [class] is one row of the thresholds' ``values``. NaN
    scores are never ignored. The answer is a tensor if one of the three is, on its device (that of
    the scores, where they are one), and else an array.

    >>> ignored(np.array([[0, 0, 1]]), np.array([[2.0, 1.0, 2.0]]), np.ones(3, np.float32))
    array([[ True, False, False]])
    """
    given = (logits, states, thresholds_row)
    like = next(filter(_is_tensor, given), None)
    logits, states, thresholds_row = (_alike(one, like) for one in given)
    if logits.shape != states.shape:
        raise EarmarkError(f"states have shape {tuple(states.shape)}, scores {tuple(logits.shape)}")
    return (states == 0) & (_as_float32(logits) > thresholds_row)


def treat(
    treatment: str,
    flagged: NDArray[np.intp],
    outputs: Floats,
    target: NDArray[np.float32],
    weight: NDArray[np.float32] | Booleans,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | Booleans]:
    """Return targets and weights [clip, class] in which flagged labels are treated.

    ``flagged`` [label] are the places of flagged labels, counted row by row, and ``outputs``
    [label] the teacher's p there. An array that a treatment does not change is returned itself, so
    that students can share it.
    """
    treated = TREATMENTS[treatment](outputs)
    new_target, new_weight = (
        _with_values(values, flagged, new)
        for values, new in zip((target, weight), treated, strict=True)
    )
    return new_target, new_weight


def _with_values(values: Any, chosen: NDArray[np.intp], new: Floats | float) -> Any:
    if np.array_equal(values.ravel()[chosen], np.broadcast_to(new, chosen.shape)):
        return values
    changed = values.astype(values.dtype if isinstance(new, bool) else np.float32)
    changed.ravel()[chosen] = new
    return changed


def masked_bce(
    logits: Tensor,
    states: Tensor | NDArray[Any],
    ignored: Tensor | Booleans | None = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """Return binary cross-entropy in which ignored negatives have no part; a scalar.

    ``logits`` [example, class] are the student's; ``states`` [example, class] are +1, -1 or 0
    (implicit, taken as negative); ``ignored`` [example, class] is true where an implicit label was
    flagged. The mask acts on the negative term only: a positive is never ignored. States and mask
    are tensors, or arrays, which are brought to the logits' device.

    >>> import torch
    >>> masked_bce(torch.zeros(1, 2), torch.tensor([[1, 0]]), torch.tensor([[False, True]]))
    tensor(0.6931)
    """
    labels, mask = (None if one is None else _alike(one, logits) for one in (states, ignored))
    assert labels is not None
    target, weight = masked(labels, mask, logits.dtype)
    return weighted_bce(logits, target, weight, reduction)


def masked(
    states: Tensor, ignored: Tensor | None, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return target and weight of each label: 1 or 0, and weight 0 where a negative is ignored.

    Their type is float32 unless another is given; for a loss of one's own that weighs labels.
    """
    import torch  # here, because the mask itself does not need it

    is_positive = states > 0
    weight = torch.ones_like(is_positive) if ignored is None else is_positive | ~ignored
    return is_positive.to(dtype or torch.float32), weight.to(dtype or torch.float32)


@dataclass(frozen=True)
class BatchTargets:
    """What a batch of labels asks of the students.

    ``target`` and ``weight`` are [student or 1, example, class]; a mask may be a weight of true and
    false, a quarter of the bytes that its ones and zeros take. ``implicit`` [example, class] is
    true where nobody was asked; ``recordings`` int64 [example] number what the clips are cut from
    (-1 where nothing else is), for losses that remember it.
    """

    target: Tensor
    weight: Tensor
    implicit: Tensor
    recordings: Tensor | None = None

    def to(self, device: torch.device) -> BatchTargets:
        """Return the same on a device."""
        recordings = None if self.recordings is None else self.recordings.to(device)
        target, weight = self.target.to(device), self.weight.to(device)
        return BatchTargets(target, weight, self.implicit.to(device), recordings)

    def select(self, students: slice) -> BatchTargets:
        """Return what is asked of some of the students."""
        target = self.target if len(self.target) == 1 else self.target[students]
        weight = self.weight if len(self.weight) == 1 else self.weight[students]
        return BatchTargets(target, weight, self.implicit, self.recordings)


def bce_entries(logits: Tensor, targets: BatchTargets) -> Tensor:
    """Return weighted binary cross-entropy of every label [student, example, class]."""
    from torch.nn import functional  # only a loss needs torch

    target, weight = targets.target.expand_as(logits), targets.weight.expand_as(logits)
    return functional.binary_cross_entropy_with_logits(
        logits, target, weight.to(logits.dtype), reduction="none"
    )


def weighted_bce(
    logits: Tensor, target: Tensor, weight: Tensor, reduction: Reduction = "sum"
) -> Tensor:
    """Return weighted binary cross-entropy of [example, class], or of several students' at once.

    See :func:`reduced` for what ``reduction`` does with classes, examples and students.
    """
    _check_shapes(logits, target, weight)
    entries = bce_entries(logits, BatchTargets(target, weight, target.new_zeros(target.shape)))
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
    import torch  # here, because the mask itself does not need it

    dtype = torch.float32 if weight.dtype == torch.bool else weight.dtype
    if reduction == "sum":
        return torch.full((), weight.shape[-2], dtype=dtype, device=weight.device)
    return weight.sum(dim=(-2, -1), dtype=dtype)


def normalised(entries: Tensor, norms: Tensor) -> Tensor:
    """Add up the losses of [example, class], or of several students', each over its norm."""
    return by_student(entries, norms).sum()


def by_student(entries: Tensor, norms: Tensor) -> Tensor:
    """Return every student's sum of losses over its norm [student], from [student, example, c]."""
    return entries.sum(dim=(-2, -1)) / norms.clamp(min=1e-12)


def _alike(values: Any, like: Tensor | None) -> Any:
    """Return values as a tensor on the device of another; as an array where there is none."""
    if like is None:
        return np.asarray(values)
    import torch  # here, because numpy's arrays do not need it

    return torch.as_tensor(values, device=like.device)


def _is_tensor(array: Any) -> bool:
    return hasattr(array, "requires_grad")  # asked so that numpy's users need no torch


def _as_float32(logits: Any) -> Any:
    if _is_tensor(logits):
        return logits.float()
    with np.errstate(over="ignore"):  # too large for float32 is above every threshold
        return logits.astype(np.float32, copy=False)


def _check_shapes(logits: Tensor, target: Tensor, weight: Tensor) -> None:
    if not logits.shape == target.shape == weight.shape:
        raise EarmarkError(
            f"logits, labels and mask must have one shape [example, class], got "
            f"{tuple(logits.shape)}, {tuple(target.shape)} and {tuple(weight.shape)}"
        )
