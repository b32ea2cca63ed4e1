"""Batches from the disk, one ahead of the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.errors import EarmarkError
from earmark.losses import Targets
from earmark.networks.examples import ClipExamples, Examples
from earmark.runs.parameters import TrainParams
from earmark.training import replicas
from earmark.training.augment import Mix, hidden_stripes, masked_patches
from earmark.training.batches import Batch
from earmark.training.supervision import Supervision

N_AHEAD = 2
"""Batches that wait for the network; more would only take memory."""

MIXUP, SPECAUGMENT = 1, 2
"""Chances of their own for each kind of augmentation, beside seed, epoch and step."""

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Loaded:
    """A process's share of a batch: what the network takes, and what the labels ask."""

    batch: Batch
    inputs: tuple[Tensor, ...]
    targets: Targets

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Loaded:
        """Return the same on a device, its numbers in a type; counts and masks stay as they are."""
        inputs = tuple(
            values.to(device, dtype if values.is_floating_point() else None)
            for values in self.inputs
        )
        moved = self.targets.to(device)
        targets = replace(moved, target=moved.target.to(dtype), weight=moved.weight.to(dtype))
        return Loaded(self.batch, inputs, targets)

    def first(self, n_examples: int) -> Loaded:
        """Return some of the examples."""
        some = {
            name: getattr(self.targets, name)[..., :n_examples, :]
            for name in ("target", "weight", "implicit")
        }
        rows = None if self.targets.rows is None else self.targets.rows[:n_examples]
        inputs = tuple(values[:n_examples] for values in self.inputs)
        return replace(self, inputs=inputs, targets=replace(self.targets, rows=rows, **some))


@dataclass(frozen=True)
class Loader:
    """Reads and augments batches; the result depends on the parameters and the batch alone."""

    params: TrainParams
    examples: Examples
    supervision: Supervision

    def __post_init__(self) -> None:
        if self.params.specaugment.is_on and isinstance(self.examples, ClipExamples):
            raise EarmarkError(
                "specaugment hides stripes of log-mel patches, but a probe is trained on whole "
                "clips of embeddings; set n_time_masks and n_band_masks to 0"
            )

    def load(self, batch: Batch) -> Loaded:
        """Return this process's share of a batch, on the CPU."""
        mine = replicas.share(len(batch.clips))
        inputs, targets = self._read(batch, np.arange(mine.start, mine.stop))
        if self.params.mixup:
            generator = self._generator(batch, MIXUP)
            mix = Mix.draw(len(batch.clips), self.params.mixup, generator).part(mine)
            other_inputs, other_targets = self._read(batch, mix.partners)
            inputs, targets = mix.inputs(inputs, other_inputs), mix.targets(targets, other_targets)
        if self.params.specaugment.is_on:
            (patches,) = inputs
            shape, generator = patches.shape[1:], self._generator(batch, SPECAUGMENT)
            hidden = hidden_stripes(
                len(batch.clips), (shape[0], shape[1]), self.params.specaugment, generator
            )
            inputs = (masked_patches(patches, hidden[mine]),)
        return Loaded(batch, inputs, targets)

    def load_all(self, batches: Iterable[Batch]) -> Generator[Loaded]:
        """Load batches in order, in a thread that keeps ahead of the caller."""
        return made_ahead(self.load, batches)

    def _read(self, batch: Batch, places: NDArray[np.int64]) -> tuple[tuple[Tensor, ...], Targets]:
        clips = batch.clips[places]
        return self.examples.gather(clips, batch.which[places]), self.supervision.targets(clips)

    def _generator(self, batch: Batch, kind: int) -> np.random.Generator:
        return np.random.default_rng([self.params.seed, batch.epoch, batch.step, kind])


def made_ahead(
    make: Callable[[Item], Made], items: Iterable[Item], n_ahead: int = N_AHEAD
) -> Generator[Made]:
    """Yield ``make(item)`` of all items in order, made in a thread up to ``n_ahead`` before.

    An exception of the thread is raised where its item would have come. Closing the iterator ends
    the thread after the item that it is at.

    >>> list(made_ahead(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    pending: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, "loader") as thread:
        try:
            for item in items:
                pending.append(thread.submit(make, item))
                if len(pending) > n_ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
