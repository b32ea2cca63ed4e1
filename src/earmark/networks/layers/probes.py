"""What probes are made of, computed by whatever is fastest where it is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from earmark.networks.layers import on_cpu


def frame_statistics(frames: Tensor, n_frames: Tensor) -> Tensor:
    """Return mean, standard deviation and maximum over a clip's frames [clip, 3 x feature].

    ``frames`` [clip, frame, feature] are padded; the first ``n_frames`` [clip] of each are its own.
    """
    is_plain = on_cpu.is_for(frames) and not frames.requires_grad
    if is_plain and on_cpu.is_even(frames.shape[2]):
        return on_cpu.frame_statistics(frames, n_frames)
    is_valid = valid_frames(frames, n_frames).unsqueeze(2)  # [clip, frame, 1]
    n_valid = is_valid.sum(dim=1)
    mean = (frames * is_valid).sum(dim=1) / n_valid
    squares = ((frames - mean.unsqueeze(1)) ** 2 * is_valid).sum(dim=1) / n_valid
    highest = frames.masked_fill(~is_valid, -torch.inf).amax(dim=1)
    return torch.cat([mean, squares.sqrt(), highest], dim=1)


def valid_frames(frames: Tensor, n_frames: Tensor) -> Tensor:
    """Tell which frames [clip, frame] are a clip's own."""
    return torch.arange(frames.shape[1], device=frames.device) < n_frames.unsqueeze(1)


def hidden_layer(inputs: Tensor, weight: Tensor, bias: Tensor, keep: Tensor | None) -> Tensor:
    """Multiply, add the bias and rectify, all [student, clip, unit]; then drop units.

    ``keep`` [clip, unit], shared by all students, is what a unit's value is multiplied by: 0 where
    it is dropped.
    """
    given = (inputs, weight, bias, keep)
    is_plain = all(one is not None and on_cpu.is_for(one) for one in given)
    if keep is not None and is_plain and on_cpu.is_even(weight.shape[2]):
        return on_cpu.hidden_layer(inputs, weight, bias, keep)
    hidden = functional.relu(torch.baddbmm(bias, inputs, weight))
    return hidden if keep is None else hidden * keep
