"""Processes that train one network together by torch's DistributedDataParallel.

``torchrun`` or a test starts them; all see the same workspace. Each takes its share of
every batch. Losses are divided by the norms of the whole batch and gradients are summed, so the
result is that of one process on the whole batch, also where shares differ in size or one is empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

from earmark.models import own_device

_STARTED_TOGETHER = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
"""What torchrun sets in the environment of the processes that it starts."""


@contextmanager
def join_processes() -> Iterator[None]:
    """Join the processes that torchrun started with this one; do nothing without torchrun."""
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


def is_first_process() -> bool:
    """Tell whether this is the process that prints and writes."""
    return not distributed.is_initialized() or distributed.get_rank() == 0


def share_of_batch(n_examples: int) -> slice:
    """Return this process's part of a batch; parts differ by one at most and may be empty."""
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    return slice(n_examples * rank // n_processes(), n_examples * (rank + 1) // n_processes())


def wait_for_all() -> None:
    """Wait until all processes are here."""
    if n_processes() > 1:
        distributed.barrier()


def broadcast_from_first(value: Any) -> Any:
    """Return the first process's value in all of them."""
    if n_processes() == 1:
        return value
    values = [value]
    distributed.broadcast_object_list(values, device=own_device())
    return values[0]


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum over processes; its gradient reaches all of them."""
    return values if n_processes() == 1 else all_reduce(values)  # type: ignore[no-untyped-call]


def parallel(network: nn.Module) -> nn.Module:
    """Return a network whose gradients are averaged over processes in the backward pass."""
    if n_processes() == 1:
        return network
    return DistributedDataParallel(network, broadcast_buffers=False)


def share_statistics(network: nn.Module) -> None:
    """Let batch normalisation take its statistics over the whole batch."""
    if n_processes() == 1:
        return
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, _SharedBatchNorm2d.like(child))


class _SharedBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation over the images of all processes; torch's SyncBatchNorm needs a GPU.

    Statistics are taken in two passes, so that a mean far from zero costs no digits.
    """

    @classmethod
    def like(cls, norm: nn.BatchNorm2d) -> _SharedBatchNorm2d:
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
        count = values.new_tensor(values.numel() // values.shape[1], dtype=torch.float64)
        count = sum_over_processes(count)
        mean = sum_over_processes(values.sum(dim=(0, 2, 3)).double()) / count
        centred = values - mean.to(values.dtype).view(1, -1, 1, 1)
        squares = sum_over_processes(centred.square().sum(dim=(0, 2, 3)).double())
        variance = (squares / count).to(values.dtype)
        self._update_statistics(mean.detach(), variance.detach(), count.item())
        scale = (self.weight * torch.rsqrt(variance + self.eps)).view(1, -1, 1, 1)
        return (centred * scale + self.bias.view(1, -1, 1, 1)).to(image.dtype)

    def _update_statistics(self, mean: Tensor, variance: Tensor, count: float) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance * (count / max(count - 1, 1)), self.momentum)
        self.num_batches_tracked += 1
