"""Where networks compute, and in which types of numbers: float32, on a GPU mixed with a shorter."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from earmark.config import TrainParams
from earmark.errors import EarmarkError


def own_device() -> torch.device:
    """Return where this process computes: a GPU of its own, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


@dataclass(frozen=True)
class NumberTypes:
    """The type of a run's weights, and of its activations where that is another."""

    weights: torch.dtype
    activations: torch.dtype | None = None

    @classmethod
    def of(cls, params: TrainParams, device: torch.device) -> NumberTypes:
        """Choose the types for a device; ``auto`` mixes on a GPU, in bfloat16 if it can.

        Shorter types are refused on a CPU: without AMX they take ten times as long, and a virtual
        machine that claims AMX without having it dies of the first step.
        """
        name = params.number_type
        if name == "auto" and device.type == "cuda":
            name = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        if name in ("bfloat16", "float16") and device.type == "cpu":
            raise EarmarkError(
                f'number_type = "{name}" needs a GPU, and torch finds none here; take "float32", '
                'or "auto" for the best on either'
            )
        if name == "float64":
            return cls(torch.float64)
        mixed = {"bfloat16": torch.bfloat16, "float16": torch.float16}
        return cls(torch.float32, mixed.get(name))

    def mixed(self, device: torch.device) -> torch.autocast:
        """Return the context in which the forward pass runs."""
        is_mixed = self.activations is not None
        return torch.autocast(device.type, self.activations or torch.bfloat16, enabled=is_mixed)
