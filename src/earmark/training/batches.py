"""Which examples make up each batch: a pure function of the seed, the epoch and the step.

Nothing remembers a position, so a run continues anywhere, with any number of processes. Of the
whole train set a plan holds eight bytes for each example of the epoch at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError
from earmark.runs import TrainParams

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
    how often each is to be drawn (see :func:`earmark.training.lessons.class_balance`).
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
    def examples_per_epoch(self) -> int:
        """Examples of a whole epoch."""
        return int(_drawn(self.per_clip, self.params).sum())

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
        """Yield the batches of one epoch in order, from some step on."""
        order = EpochOrder.draw(self.per_clip, self.params, epoch, self.balance)
        size = self.params.batch_patches
        for step in range(first_step, self.steps_of(epoch)):
            yield Batch(epoch, step, *order.part(slice(step * size, (step + 1) * size)))

    def learning_rate(self, epoch: int, step: int) -> float:
        """Return the learning rate of a step."""
        return learning_rate(self.params, epoch * self.steps_per_epoch + step, self.n_steps)


@dataclass(frozen=True)
class EpochOrder:
    """The examples of one epoch in training order, worked out for the part that is asked for."""

    places: NDArray[np.int64]
    """The examples by number, counted through all clips: a permutation unless balanced."""
    ends: NDArray[np.int64]
    """The number of the first example after each clip [clip]."""
    per_clip: NDArray[np.int64]
    drawn: NDArray[np.int64]
    starts: NDArray[np.int64] | None
    """The first patch of each clip where only some are drawn."""

    @classmethod
    def draw(
        cls,
        per_clip: NDArray[np.int64],
        params: TrainParams,
        epoch: int,
        balance: NDArray[np.float64] | None = None,
    ) -> EpochOrder:
        """Draw the order of an epoch from the examples per clip, the seed and the epoch alone.

        With ``patches_per_clip`` the patches of a clip are evenly spaced from a random start, so
        that none is drawn twice. With ``balance`` as many examples as in a plain epoch are drawn
        with replacement: a clip by its balance, then any of its patches.
        """
        generator = np.random.default_rng([params.seed, epoch])
        drawn = _drawn(per_clip, params)
        if balance is not None:
            return cls._draw_balanced(per_clip, balance, int(drawn.sum()), generator)
        starts = None
        if params.patches_per_clip is not None:
            starts = (generator.random(len(per_clip)) * per_clip).astype(np.int64)
        ends = np.cumsum(drawn)
        return cls(generator.permutation(int(drawn.sum())), ends, per_clip, drawn, starts)

    @classmethod
    def _draw_balanced(
        cls,
        per_clip: NDArray[np.int64],
        balance: NDArray[np.float64],
        n_examples: int,
        generator: np.random.Generator,
    ) -> EpochOrder:
        chances = np.where(per_clip > 0, balance, 0)
        clips = generator.choice(len(per_clip), n_examples, p=chances / chances.sum())
        within = (generator.random(n_examples) * per_clip[clips]).astype(np.int64)
        ends = np.cumsum(per_clip)
        return cls(ends[clips] - per_clip[clips] + within, ends, per_clip, per_clip, None)

    def part(self, part: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return clips and the examples within them, of a part of the order."""
        places = self.places[part]
        clips = np.searchsorted(self.ends, places, side="right")
        which = places - (self.ends[clips] - self.drawn[clips])
        if self.starts is not None:
            available = self.per_clip[clips]
            which = (self.starts[clips] + which * available // self.drawn[clips]) % available
        return clips, which


def learning_rate(params: TrainParams, step: int, n_steps: int) -> float:
    """Return the learning rate of a step: constant, or a short rise and a cosine to zero."""
    if params.schedule == "constant":
        return params.learning_rate
    n_warm_up = max(1, round(_WARM_UP_SHARE * n_steps))
    if step < n_warm_up:
        return params.learning_rate * (step + 1) / n_warm_up
    progress = (step - n_warm_up) / max(1, n_steps - n_warm_up)
    return params.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def _drawn(per_clip: NDArray[np.int64], params: TrainParams) -> NDArray[np.int64]:
    limit = params.patches_per_clip
    return per_clip if limit is None else np.minimum(per_clip, limit)
