"""Layers that train faster on a CPU than torch's: the same sums, with fewer trips to memory.

torch normalises and rectifies in four passes over an image forwards and six backwards; here a
depthwise convolution takes the normalisations around it with it. A wide 1x1 convolution of a
channels-last image is one matrix product. The loss of a stack's labels is one pass, too, mask
included, and so is what stands between the matrix products of probes. Each function takes what
torch's layers take and gives the same to float32's rounding; what probes are made of, to the bit.
None is for a GPU, for other types of numbers or for many threads: :func:`is_for` tells.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from earmark.networks.layers.compiled import (
    cross_entropy,
    depthwise_backward,
    depthwise_forward,
    rectify_and_drop,
    rectify_and_drop_backward,
)
from earmark.networks.layers.compiled import frame_statistics as _frame_statistics

Norm = tuple[nn.BatchNorm2d] | tuple[nn.BatchNorm2d, nn.Module]
"""A normalisation, with its rectifier if it has one."""

_NO_RECTIFIER = -1.0

_MOST_THREADS = 2
"""These layers work on one; beside more than two, torch's own, which share out, are done sooner."""

_TORCH_COLUMNS = 64
"""Columns that torch adds up at once: four vectors of AVX-512, or twice four of AVX2."""

_FEWEST_CHANNELS = 128
"""With fewer on a side, torch's convolution beats a matrix product."""


def is_for(image: Tensor) -> bool:
    """Tell whether an image [patch, channel, row, column], or logits, can be taken by this module.

    One that only stands for an image, in an export or a compilation, cannot; weights are asked too.
    """
    return (
        type(image) in (Tensor, nn.Parameter)
        and torch.is_grad_enabled()
        and torch.get_num_threads() <= _MOST_THREADS
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and image.device.type == "cpu"
        and image.dtype == torch.float32
        and image.numel() > 0
    )


def is_even(width: int) -> bool:
    """Tell whether sums of rows of some width are torch's to the bit.

    Others torch takes apart, and adds up the rest in an order that depends on the processor.
    """
    return width % _TORCH_COLUMNS == 0


def is_wide(weight: Tensor) -> bool:
    """Tell whether kernels [channel out, channel in, row, column] are for :func:`pointwise`."""
    return weight.shape[2:] == (1, 1) and min(weight.shape[:2]) >= _FEWEST_CHANNELS


def pointwise(image: Tensor, weight: Tensor) -> Tensor:
    """Convolve with 1x1 kernels [channel out, channel in, 1, 1]."""
    return functional.linear(image.permute(0, 2, 3, 1), weight[:, :, 0, 0]).permute(0, 3, 1, 2)


def depthwise(
    image: Tensor,
    before: Norm,
    weight: Tensor,
    stride: int,
    after: Norm,
) -> Tensor:
    """Normalise and rectify, convolve every channel with its 3x3 kernel, and do the first again.

    Kernels are [channel, 1, 3, 3], padded as :class:`SameConv` pads.
    """
    first, second = before[0], after[0]
    values = (first.weight, first.bias, weight, second.weight, second.bias)
    norms = (first, _limit(*before[1:]), second, _limit(*after[1:]))
    convolved: Tensor = _Depthwise.apply(image, *values, *norms, stride)  # type: ignore[no-untyped-call]
    return convolved


def weighted_entropies(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return binary cross-entropy, all [student, example, class]; students may share the last two.

    Weights may be a mask of true and false.
    """
    return _CrossEntropy.apply(logits, target, weight)  # type: ignore[no-untyped-call,no-any-return]


def frame_statistics(frames: Tensor, n_frames: Tensor) -> Tensor:
    """Return mean, standard deviation and maximum over the first frames [clip, 3 x feature]."""
    n_clips, n_at_most, n_features = frames.shape
    seen = frames.new_empty(n_clips, 3 * n_features)
    n_valid = n_frames.clamp(0, n_at_most).to(torch.int64).contiguous()
    _frame_statistics(*_arrays(frames.contiguous(), n_valid, seen))
    seen[:, n_features : 2 * n_features].sqrt_()
    return seen


def hidden_layer(inputs: Tensor, weight: Tensor, bias: Tensor, keep: Tensor) -> Tensor:
    """Multiply [student, clip, unit], rectify, and multiply by what is kept [clip, unit]."""
    return _HiddenLayer.apply(inputs, weight, bias, keep)  # type: ignore[no-untyped-call,no-any-return]


def _limit(rectifier: nn.Module | None = None) -> float:
    """Return where a rectifier ends."""
    if rectifier is None:
        return _NO_RECTIFIER
    return rectifier.max_val if isinstance(rectifier, nn.Hardtanh) else math.inf


class _Depthwise(torch.autograd.Function):
    """A depthwise convolution and the normalisations before and after it as one."""

    @staticmethod
    def forward(
        context: Any,
        image: Tensor,
        gain: Tensor,
        shift: Tensor,
        weight: Tensor,
        next_gain: Tensor,
        next_shift: Tensor,
        first: nn.BatchNorm2d,
        limit: float,
        second: nn.BatchNorm2d,
        next_limit: float,
        stride: int,
    ) -> Tensor:
        z, kernels = _pixels(image), weight.detach().contiguous().flatten(1)
        n_images, *sizes, n_channels = z.shape
        x = z.new_empty(n_images, *(size // stride for size in sizes), n_channels)
        y = torch.empty_like(x)
        before, after = _channels(gain, shift, first), _channels(next_gain, next_shift, second)
        context.settings = (first.eps, limit, not first.training)
        context.settings += (second.eps, next_limit, not second.training, stride)
        depthwise_forward(*_arrays(z, before, kernels, x, after, y), *context.settings)
        _remember(first, before, z)
        _remember(second, after, x)
        context.save_for_backward(z, before, kernels, x, after)
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        given = context.saved_tensors
        z, before, kernels, _, after = given
        to_z, to_kernels = torch.empty_like(z), torch.empty_like(kernels)
        to_before, to_after = torch.empty_like(before[:2]), torch.empty_like(after[:2])
        made = (to_z, to_before, to_kernels, to_after)
        depthwise_backward(*_arrays(*given, _pixels(grad), *made), *context.settings)
        to_weight = to_kernels.view(-1, 1, 3, 3)
        return (
            to_z.permute(0, 3, 1, 2),
            *to_before,
            to_weight,
            *to_after,
            None,
            None,
            None,
            None,
            None,
        )


class _CrossEntropy(torch.autograd.Function):
    """Binary cross-entropy that finds its slopes on the way; targets and weights have none."""

    @staticmethod
    def forward(context: Any, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        entries, slopes = (logits.new_empty(logits.shape) for _ in range(2))
        given = (logits, target, entries, slopes, weight)
        cross_entropy(*_arrays(*(one.flatten(1).contiguous() for one in given)))
        context.save_for_backward(logits, target, weight)
        context.slopes = slopes
        return entries

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slopes, context.slopes = context.slopes, None
        if slopes is not None and not torch.is_grad_enabled():
            return slopes.mul_(grad), None, None
        logits, target, weight = context.saved_tensors  # asked again, or for the gradient's own
        return grad * (weight * (logits.sigmoid() - target)), None, None


class _HiddenLayer(torch.autograd.Function):
    """A layer of probes with its rectifier and dropout, which write over what was multiplied."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, weight: Tensor, bias: Tensor, keep: Tensor) -> Tensor:
        hidden = torch.baddbmm(bias, inputs, weight)
        keep = keep.contiguous()
        rectify_and_drop(*_arrays(hidden, keep))
        context.save_for_backward(inputs, weight, hidden, keep)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, hidden, keep = context.saved_tensors
        to_products = torch.empty_like(hidden)
        to_bias = hidden.new_empty(len(hidden), 1, hidden.shape[2])
        rectify_and_drop_backward(*_arrays(grad.contiguous(), hidden, keep, to_products, to_bias))
        to_inputs = to_products @ weight.mT if context.needs_input_grad[0] else None
        return to_inputs, inputs.mT @ to_products, to_bias, None


def _pixels(image: Tensor) -> Tensor:
    """Return an image as [patch, row, column, channel] without gaps, the same memory if it can."""
    return image.permute(0, 2, 3, 1).contiguous()


def _arrays(*values: Tensor) -> Any:
    """Return tensors as arrays on the same memory."""
    return [one.detach().numpy() if one.requires_grad else one.numpy() for one in values]


def _channels(gain: Tensor, shift: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    """Return a norm's values as the loops take them: the first four of six rows [channel]."""
    mean, variance = _kept(norm)
    return torch.stack([gain, shift, mean, variance, mean, mean])  # the last two are filled


def _remember(norm: nn.BatchNorm2d, channels: Tensor, image: Tensor) -> None:
    """Move the running statistics towards those of a batch."""
    if not norm.training:
        return
    _, _, mean, variance, _, _ = channels
    n_pixels, momentum = image.numel() // len(mean), norm.momentum
    kept_mean, kept_variance = _kept(norm)
    assert momentum is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    kept_mean.lerp_(mean, momentum)
    kept_variance.lerp_(variance * (n_pixels / max(n_pixels - 1, 1)), momentum)


def _kept(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Return the running mean and variance."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.running_var
