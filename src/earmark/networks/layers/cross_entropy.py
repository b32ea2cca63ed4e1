"""Binary cross-entropy of every label, computed by whatever is fastest where it is."""

from __future__ import annotations

from torch import Tensor

from earmark.losses import Moment, Targets, bce_entries
from earmark.networks.layers import on_cpu


def cross_entropies(logits: Tensor, targets: Targets, moment: Moment | None = None) -> Tensor:
    """Return what :func:`earmark.losses.bce_entries` does [student, example, class]."""
    if on_cpu.is_for(logits):
        return on_cpu.weighted_entropies(logits, targets.target, targets.weight)
    return bce_entries(logits, targets, moment)
