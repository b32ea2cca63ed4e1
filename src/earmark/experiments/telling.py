"""What strategies tell: flags by a teacher, by chances or at random, their treatment, and a loss.

Students of a sweep and the public :class:`~earmark.experiments.supervision.Supervision` are told
through the one :func:`tell_all`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from earmark.experiments.strategies import BASELINE, Strategy
from earmark.scores import TeacherScores
from earmark.training import FlagSources, Told, find_flags


class Wish(NamedTuple):
    """A strategy at one operating point; the seed says what ``random`` draws."""

    strategy: Strategy
    point: float
    seed: int


class Origins(Protocol):
    """What flags can go by: a teacher and labels, chances, and scores drawn at random."""

    @property
    def teacher(self) -> TeacherScores:
        """The teacher's scores."""

    def sources(self, teacher: TeacherScores) -> FlagSources:
        """Return labels, class tree and, where it is known, the truth, beside such scores."""

    @property
    def chances(self) -> TeacherScores:
        """The chances that labels are missing, as log-odds, in the teacher's place."""

    def random_scores(self, seed: int) -> TeacherScores:
        """Return scores by a teacher that knows nothing."""


def tell_all(origins: Origins, wishes: Sequence[Wish]) -> dict[Wish, Told]:
    """Find what every strategy tells; one pass over the scores serves all percentages."""
    groups: dict[tuple[str | None, bool, int], list[Wish]] = {}
    for wish in wishes:
        is_baseline = wish.strategy == BASELINE and wish.point == 0
        policy = None if is_baseline else wish.strategy.policy
        seed = wish.seed if policy == "random" else 0
        groups.setdefault((policy, wish.strategy.by_chance, seed), []).append(wish)
    told = {}
    for (policy, by_chance, seed), own in groups.items():
        points = sorted({wish.point for wish in own})
        sources = None if policy is None else _sources(origins, policy, by_chance, seed)
        flags = {} if sources is None else find_flags(sources, policy or "", points)
        for wish in own:
            strategy, loss_point = wish.strategy, wish.strategy.loss_point(wish.point)
            treatment = strategy.treatment or "mask"
            told[wish] = Told(flags.get(wish.point), treatment, strategy.loss, loss_point)
    return told


def _sources(origins: Origins, policy: str, by_chance: bool, seed: int) -> FlagSources:
    if policy == "random":
        return origins.sources(origins.random_scores(seed))
    return origins.sources(origins.chances if by_chance else origins.teacher)


def draw_scores(teacher: NDArray[np.floating], seed: int) -> NDArray[np.float32]:
    """Draw scores [clip, class] at random for the classes that a teacher scored; NaN elsewhere."""
    drawn = np.random.default_rng(seed).random(teacher.shape, np.float32)
    drawn[:, np.isnan(teacher[0])] = np.nan
    return drawn
