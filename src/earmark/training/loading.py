"""Batches from the disk, one ahead of the network, augmented by mixup and SpecAugment's stripes.

Chances are drawn for the whole batch from (seed, epoch, step), and every process takes its share of
them: a resumed run, or one of more processes, sees the same examples.
"""

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
from earmark.networks import ClipExamples, Examples
from earmark.runs import SpecAugmentParams, TrainParams
from earmark.training import replicas
from earmark.training.batches import Batch
from earmark.training.lessons import Lessons

N_AHEAD = 2
"""Batches that wait for the network; more would only take memory."""

MIXUP, SPECAUGMENT = 1, 2
"""Chances of their own for each kind of augmentation, beside seed, epoch and step."""

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Loaded:
    """A process's share of a batch: what the network takes, and what the labels ask."""

    batch: Batch
    inputs: tuple[Tensor, ...]
    targets: Targets

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Loaded:
        """Return the same on a device, its numbers in a type; counts and masks stay as they are."""

        def moved(values: Tensor) -> Tensor:
            return values.to(device, dtype if values.is_floating_point() else None)

        targets = self.targets.to(device)
        targets = replace(targets, target=moved(targets.target), weight=moved(targets.weight))
        return Loaded(self.batch, tuple(map(moved, self.inputs)), targets)

    def first(self, n_examples: int) -> Loaded:
        """Return some of the examples."""
        some = {
            name: getattr(self.targets, name)[..., :n_examples, :]
            for name in ("target", "weight", "implicit")
        }
        for name in ("rows", "recordings"):
            known = getattr(self.targets, name)
            some[name] = None if known is None else known[:n_examples]
        inputs = tuple(values[:n_examples] for values in self.inputs)
        return replace(self, inputs=inputs, targets=replace(self.targets, **some))


@dataclass(frozen=True)
class Mix:
    """Which other example of its batch each one is mixed with, and how much stays its own."""

    partners: NDArray[np.int64]
    own_shares: NDArray[np.float32]

    @classmethod
    def draw(cls, n_examples: int, beta: float, generator: np.random.Generator) -> Mix:
        """Draw a partner for each example, and its own share from Beta(beta, beta).

        Shares are whole 65,536ths: numpy draws them by logarithms and powers, whose last bit
        depends on the machine.
        """
        shares = np.rint(generator.beta(beta, beta, n_examples) * 2**16) / 2**16
        return cls(generator.permutation(n_examples), shares.astype(np.float32))

    def part(self, part: slice) -> Mix:
        """Return the draws of a part of the batch."""
        return Mix(self.partners[part], self.own_shares[part])

    def inputs(self, own: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Mix patches, or clips with their numbers of frames; a shorter clip is repeated.

        All are [example, frame, feature] of one width; clips may be padded to different lengths.
        """
        share = torch.from_numpy(self.own_shares).view(-1, 1, 1)
        mine, theirs = own[0], others[0]
        if len(own) == 1:
            return (share * mine + (1 - share) * theirs,)
        longest = max(mine.shape[1], theirs.shape[1])
        mine, theirs = _repeated(mine, own[1], longest), _repeated(theirs, others[1], longest)
        return share * mine + (1 - share) * theirs, torch.maximum(own[1], others[1])

    def targets(self, own: Targets, others: Targets) -> Targets:
        """Mix targets; a label that is ignored in either example stays ignored.

        A label is implicit unless both were asked about, or one is an explicit positive: then the
        class is surely in the mixture.
        """
        share = torch.from_numpy(self.own_shares).view(-1, 1)
        is_present = _explicit_positive(own) | _explicit_positive(others)
        return Targets(
            share * own.target + (1 - share) * others.target,
            torch.minimum(own.weight, others.weight),
            (own.implicit | others.implicit) & ~is_present,
        )


def hidden_stripes(
    n_examples: int,
    shape: tuple[int, int],
    params: SpecAugmentParams,
    generator: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return where patches of a shape (frames, bands) are hidden [example, frame, band].

    Every stripe's width is uniform from 0 to its parameter (or the patch's size), its place uniform
    among those where it fits.
    """
    n_frames, n_bands = shape
    times = _stripes(n_examples, n_frames, params.n_time_masks, params.time_mask_frames, generator)
    bands = _stripes(n_examples, n_bands, params.n_band_masks, params.band_mask_bands, generator)
    return times[:, :, None] | bands[:, None, :]


def masked_patches(patches: Tensor, is_hidden: NDArray[np.bool_]) -> Tensor:
    """Return patches [example, frame, band] with their own mean where they are hidden."""
    means = patches.mean(dim=(1, 2), keepdim=True)
    return torch.where(torch.from_numpy(is_hidden), means, patches)


@dataclass(frozen=True)
class Loader:
    """Reads and augments batches; the result depends on the parameters and the batch alone."""

    params: TrainParams
    examples: Examples
    lessons: Lessons

    def __post_init__(self) -> None:
        if self.params.specaugment.is_on and isinstance(self.examples, ClipExamples):
            raise EarmarkError(
                "specaugment hides stripes of log-mel patches, but a probe is trained on whole "
                "clips of embeddings; set n_time_masks and n_band_masks to 0"
            )

    def load(self, batch: Batch) -> Loaded:
        """Return this process's share of a batch, on the CPU."""
        mine = replicas.share(len(batch.clips))
        inputs, targets = self._read(batch, mine)
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

    def _read(
        self, batch: Batch, places: slice | NDArray[np.int64]
    ) -> tuple[tuple[Tensor, ...], Targets]:
        clips = batch.clips[places]
        return self.examples.gather(clips, batch.which[places]), self.lessons.targets(clips)

    def _generator(self, batch: Batch, kind: int) -> np.random.Generator:
        return np.random.default_rng([self.params.seed, batch.epoch, batch.step, kind])


def made_ahead(
    make: Callable[[_Item], _Made], items: Iterable[_Item], n_ahead: int = N_AHEAD
) -> Generator[_Made]:
    """Yield ``make(item)`` of all items in order, made in a thread up to ``n_ahead`` before.

    An exception of the thread is raised where its item would have come. Closing the iterator ends
    the thread after the item that it is at.

    >>> list(made_ahead(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    pending: deque[Future[_Made]] = deque()
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


def _stripes(
    n_examples: int, size: int, n_masks: int, widest: int, generator: np.random.Generator
) -> NDArray[np.bool_]:
    drawn = (n_examples, n_masks, 1)
    widths = generator.integers(0, min(widest, size) + 1, drawn)
    starts = (generator.random(drawn) * (size - widths + 1)).astype(np.int64)
    places = np.arange(size)
    is_hidden = (places >= starts) & (places < starts + widths)  # [example, mask, place]
    hidden: NDArray[np.bool_] = np.asarray(is_hidden.any(axis=1))
    return hidden


def _repeated(frames: Tensor, n_frames: Tensor, n_wanted: int) -> Tensor:
    """Return every clip's valid frames over and over [example, n_wanted, feature]."""
    places = torch.arange(n_wanted) % n_frames.clamp(min=1).unsqueeze(1)
    return frames.gather(1, places.unsqueeze(2).expand(-1, -1, frames.shape[2]))


def _explicit_positive(targets: Targets) -> Tensor:
    return (targets.target[0] > 0.5) & ~targets.implicit
