"""Processes that train one network together, each on its share of every batch.

``torchrun``, a cluster or a test starts them; all see the same workspace. What they compute is
summed, never averaged, and batch normalisation takes its statistics over all of them, so the
result is that of one process on the whole batch, also where shares differ in size or one is empty.
A process that is alone pays nothing for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn

from earmark.networks import own_device

_STARTED_TOGETHER = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
"""What torchrun and its like tell the processes that they start."""


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that were started with this one; do nothing where it is alone."""
    if distributed.is_initialized() or not os.environ.keys() >= _STARTED_TOGETHER:
        yield
        return
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


def n_processes() -> int:
    """Return how many processes train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """Return this process's number, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def is_first() -> bool:
    """Tell whether this is the process that prints and writes."""
    return rank() == 0


def share(n_examples: int) -> slice:
    """Return this process's part of a batch; parts differ by one at most and may be empty."""
    if n_processes() == 1:
        return slice(0, n_examples)
    first, after = (n_examples * place // n_processes() for place in (rank(), rank() + 1))
    return slice(first, after)


def wait() -> None:
    """Wait until all processes are here."""
    if n_processes() > 1:
        distributed.barrier()


def first_says(value: Any) -> Any:
    """Return the first process's value in all of them."""
    if n_processes() == 1:
        return value
    values = [value]
    distributed.broadcast_object_list(values, device=own_device())
    return values[0]


def summed(values: Tensor) -> Tensor:
    """Return the sum over processes; its gradient reaches all of them."""
    if n_processes() == 1:
        return values
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


def sum_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace the gradients by their sums over processes, in one message."""
    if n_processes() == 1:
        return
    gradients = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in parameters
    ]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for parameter, gradient, part in zip(parameters, gradients, parts, strict=True):
        parameter.grad = gradient.copy_(part.view_as(gradient))


def shared_statistics(network: nn.Module) -> None:
    """Let the batch normalisation of a network see the whole batch; change nothing when alone."""
    if n_processes() == 1:
        return
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, SharedBatchNorm2d.like(child))


class SharedBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation over the images of all processes, on any device.

    torch's own SyncBatchNorm needs a GPU. Statistics are taken in two passes, so that a mean far
    from zero costs no digits.
    """

    @classmethod
    def like(cls, norm: nn.BatchNorm2d) -> SharedBatchNorm2d:
        """Return one with another's settings, parameters and statistics."""
        shared = cls(norm.num_features, norm.eps, norm.momentum)
        shared.weight, shared.bias = norm.weight, norm.bias
        shared.running_mean, shared.running_var = norm.running_mean, norm.running_var
        shared.num_batches_tracked = norm.num_batches_tracked
        return shared

    def forward(self, image: Tensor) -> Tensor:
        """Normalise [patch, channel, frame, band]; no patch at all is allowed."""
        if not self.training:
            return super().forward(image)
        values = image.to(self.weight.dtype)
        n_values = values.new_tensor(float(values.numel() // values.shape[1]), dtype=torch.float64)
        n_values = summed(n_values)
        mean = (summed(values.sum(dim=(0, 2, 3)).double()) / n_values).to(values.dtype)
        centred = values - mean.view(1, -1, 1, 1)
        squares = summed(centred.square().sum(dim=(0, 2, 3)).double())
        variance = (squares / n_values).to(values.dtype)
        self._remember(mean.detach(), variance.detach(), n_values.item())
        scale = (self.weight * torch.rsqrt(variance + self.eps)).view(1, -1, 1, 1)
        return (centred * scale + self.bias.view(1, -1, 1, 1)).to(image.dtype)

    def _remember(self, mean: Tensor, variance: Tensor, n_values: float) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * (n_values / max(n_values - 1, 1)), self.momentum)
        self.num_batches_tracked += 1


class _Sum(torch.autograd.Function):
    """A sum over processes. Each process's loss depends on it, so the gradients are summed too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        del ctx
        return _all_reduced(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        del ctx
        return _all_reduced(gradient)


def _all_reduced(values: Tensor) -> Tensor:
    total = values.detach().clone().contiguous()
    distributed.all_reduce(total)
    return total
