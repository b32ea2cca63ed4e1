"""The batches of a run: which examples are in each, and how they are read and augmented.

A :class:`Plan` computes each batch from the seed, the epoch and the step. It stores no position,
so a run continues from any step, with any number of processes. It holds eight bytes for each
example of the current epoch.

A :class:`Loader` reads batches from disk in a thread, ahead of the network, and applies mixup and
SpecAugment. Random numbers are drawn for the whole batch from (seed, epoch, step), and every
process takes its share of them. So a resumed run, or a run with more processes, sees the same
examples.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.config import SpecAugmentParams, TrainParams
from earmark.errors import EarmarkError
from earmark.losses import BatchTargets
from earmark.models import ClipExamples, Examples
from earmark.training.distributed import share_of_batch
from earmark.training.targets import TargetProvider

_WARM_UP_SHARE = 0.05
"""Share of all steps over which the cosine schedule's learning rate rises."""


@dataclass(frozen=True)
class Batch:
    """The examples of one step over all processes: clips, and which example of each."""

    epoch: int
    step: int
    clips: NDArray[np.int64]
    which: NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """The batches of a whole run.

    ``per_clip`` [clip] is the number of examples of each clip; ``balance`` [clip], where given, is
    how often each is to be drawn (see :func:`earmark.training.targets.class_balance`).
    """

    params: TrainParams
    per_clip: NDArray[np.int64]
    balance: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.examples_per_epoch == 0:
            raise EarmarkError(
                f"{len(self.per_clip):,} clips to train on have not one patch among them: they are "
                "all shorter than a patch, or there are none"
            )

    @cached_property
    def drawn_per_clip(self) -> NDArray[np.int64]:
        """Examples of each clip in an epoch that is not balanced [clip]."""
        limit = self.params.patches_per_clip
        return self.per_clip if limit is None else np.minimum(self.per_clip, limit)

    @property
    def examples_per_epoch(self) -> int:
        """Examples of a whole epoch."""
        return int(self.drawn_per_clip.sum())

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a whole epoch; the last one may have fewer examples."""
        return math.ceil(self.examples_per_epoch / self.params.batch_patches)

    @property
    def n_steps(self) -> int:
        """Steps of the run."""
        if self.params.epochs is None:
            assert self.params.steps is not None
            return self.params.steps
        return self.params.epochs * self.steps_per_epoch

    @property
    def n_epochs(self) -> int:
        """Epochs of the run; a number of steps may end in the middle of the last."""
        return math.ceil(self.n_steps / self.steps_per_epoch)

    @property
    def n_examples(self) -> int:
        """Examples of the run."""
        return self.n_examples_before(*divmod(self.n_steps, self.steps_per_epoch))

    def n_examples_before(self, epoch: int, step: int) -> int:
        """Return how many examples a run has seen when it comes to a step."""
        within = min(step * self.params.batch_patches, self.examples_per_epoch)
        return epoch * self.examples_per_epoch + within

    def steps_of(self, epoch: int) -> int:
        """Return the steps of one epoch: fewer in the last where the run ends in its middle."""
        return min(self.steps_per_epoch, self.n_steps - epoch * self.steps_per_epoch)

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch in order, from some step on.

        The order depends on the examples per clip, the seed and the epoch alone. With
        ``patches_per_clip`` the patches of a clip are evenly spaced from a random start, so that
        none is drawn twice. With ``balance`` as many examples as in a plain epoch are drawn with
        replacement: a clip by its balance, then any of its patches.
        """
        generator = np.random.default_rng([self.params.seed, epoch])
        drawn, starts = self.drawn_per_clip, None
        if self.balance is not None:
            order, drawn = self._balanced_order(self.balance, generator), self.per_clip
        else:
            if self.params.patches_per_clip is not None:
                starts = (generator.random(len(drawn)) * self.per_clip).astype(np.int64)
            order = generator.permutation(self.examples_per_epoch)
        ends, size = np.cumsum(drawn), self.params.batch_patches
        for step in range(first_step, self.steps_of(epoch)):
            examples = order[step * size : (step + 1) * size]  # by number, through all clips
            clips = np.searchsorted(ends, examples, side="right")
            which = examples - (ends[clips] - drawn[clips])
            if starts is not None:
                available = self.per_clip[clips]
                which = (starts[clips] + which * available // drawn[clips]) % available
            yield Batch(epoch, step, clips, which)

    def _balanced_order(
        self, balance: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        chances = np.where(self.per_clip > 0, balance, 0)
        n_examples = self.examples_per_epoch
        clips = generator.choice(len(balance), n_examples, p=chances / chances.sum())
        within = (generator.random(n_examples) * self.per_clip[clips]).astype(np.int64)
        firsts = np.cumsum(self.per_clip) - self.per_clip
        order: NDArray[np.int64] = firsts[clips] + within
        return order

    def learning_rate(self, epoch: int, step: int) -> float:
        """Return the learning rate of a step: constant, or a short rise and a cosine to zero."""
        if self.params.schedule == "constant":
            return self.params.learning_rate
        n_before = epoch * self.steps_per_epoch + step
        n_warm_up = max(1, round(_WARM_UP_SHARE * self.n_steps))
        if n_before < n_warm_up:
            return self.params.learning_rate * (n_before + 1) / n_warm_up
        progress = (n_before - n_warm_up) / max(1, self.n_steps - n_warm_up)
        return self.params.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


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
    targets: BatchTargets

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Loaded:
        """Return the same on a device, its numbers in a type; counts and masks stay as they are."""

        def moved(values: Tensor) -> Tensor:
            return values.to(device, dtype if values.is_floating_point() else None)

        targets = self.targets.to(device)
        targets = replace(targets, target=moved(targets.target), weight=moved(targets.weight))
        return Loaded(self.batch, tuple(map(moved, self.inputs)), targets)


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

    def targets(self, own: BatchTargets, others: BatchTargets) -> BatchTargets:
        """Mix targets; a label that is ignored in either example stays ignored.

        A label is implicit unless both were asked about, or one is an explicit positive: then the
        class is surely in the mixture.
        """
        share = torch.from_numpy(self.own_shares).view(-1, 1)
        is_present = _explicit_positive(own) | _explicit_positive(others)
        return BatchTargets(
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
    targets: TargetProvider

    def __post_init__(self) -> None:
        if self.params.specaugment.is_on and isinstance(self.examples, ClipExamples):
            raise EarmarkError(
                "specaugment hides stripes of log-mel patches, but a probe is trained on whole "
                "clips of embeddings; set n_time_masks and n_band_masks to 0"
            )

    def load(self, batch: Batch) -> Loaded:
        """Return this process's share of a batch, on the CPU."""
        mine = share_of_batch(len(batch.clips))
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

    def _read(
        self, batch: Batch, places: slice | NDArray[np.int64]
    ) -> tuple[tuple[Tensor, ...], BatchTargets]:
        clips = batch.clips[places]
        return self.examples.gather(clips, batch.which[places]), self.targets.targets(clips)

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


def _explicit_positive(targets: BatchTargets) -> Tensor:
    return (targets.target[0] > 0.5) & ~targets.implicit
