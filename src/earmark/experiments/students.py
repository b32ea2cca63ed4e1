"""The students of a sweep or comparison, by name: which there are, and where their scores lie.

Nothing here needs torch: whoever measures students reads their scores. They are trained by
:mod:`earmark.experiments.train_sets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from earmark.datasets import CORRECTED, GIVEN, Split, Workspace
from earmark.experiments.strategies import BASELINE, Strategy, parse_strategy
from earmark.runs import NetworkParams, SweepParams
from earmark.scores import ScoreFolder

EVALUATED_SPLITS: tuple[Split, ...] = ("tune", "eval")


@dataclass(frozen=True)
class Student:
    """A network told about its labels by one strategy at one operating point.

    ``round`` counts how often students have become teachers before (see
    :mod:`earmark.experiments.rounds`).
    """

    network: NetworkParams
    train_set: str
    seed: int
    strategy: Strategy = BASELINE
    point: float = 0.0
    round: int = 0

    @property
    def name(self) -> str:
        """The name of the folder with the scores of the trained network."""
        told = self.trained
        after = f"-round{told.round}" if told.round else ""
        return f"{told.stack_name}-{told.strategy.name.replace('/', '-')}{told.point:g}{after}"

    @property
    def stack_name(self) -> str:
        """What the students have in common that may train at once."""
        labels = "" if self.strategy.labels == GIVEN else f"-{self.strategy.labels}"
        return f"{self.network.name}-{self.train_set}-seed{self.seed}{labels}"

    @property
    def seeded_network(self) -> NetworkParams:
        """The network with the student's seed in place of the recipe's."""
        train = self.network.train.model_copy(update={"seed": self.seed})
        return self.network.model_copy(update={"train": train})

    @property
    def keys(self) -> dict[str, str | int | float]:
        """The columns that identify the student in the result tables."""
        return {
            "student": self.network.name,
            "train_set": self.train_set,
            "seed": self.seed,
            "kind": self.strategy.name,
            "discard_percent": float(self.point),
        }

    @property
    def trained(self) -> Student:
        """The student whose weights this one has: logit adjustment only changes its scores."""
        strategy = self.strategy.trained
        if strategy == BASELINE and self.point == 0:
            return self.baseline
        return replace(self, strategy=strategy)

    @property
    def loss_point(self) -> float | None:
        """The operating point of the loss; a strategy that flags has given it to its policy."""
        return self.strategy.loss_point(self.point)

    @property
    def baseline(self) -> Student:
        """The student that takes labels as they are, to which this one is compared."""
        return Student(self.network, self.train_set, self.seed)


def students_of_sweep(networks: Sequence[NetworkParams], params: SweepParams) -> list[Student]:
    """List the students of a sweep, baselines first within each network, train set and seed.

    Those on corrected labels, whatever the name of the set, follow the strategies ``corrected``
    and ``corrected+mask``.
    """
    strategies = [
        parse_strategy("mask", params.discard_percents),
        parse_strategy("random", params.random_control_percents),
    ]
    if params.labels != GIVEN:
        corrected = [
            parse_strategy(CORRECTED, ()),
            parse_strategy(f"{CORRECTED}+mask", params.discard_percents),
        ]
        strategies += [replace(one, labels=params.labels) for one in corrected]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    return combine(networks, params.train_sets, params.seeds, [(BASELINE, 0.0), *points])


def combine(
    networks: Sequence[NetworkParams],
    train_sets: Mapping[str, float],
    seeds: Sequence[int],
    points: Sequence[tuple[Strategy, float]],
) -> list[Student]:
    """List a student for every network, train set, seed and point, in that order.

    The smallest train set comes first, however they were named.
    """
    return [
        Student(network, train_set, seed, strategy, float(point))
        for network in networks
        for train_set in sorted(train_sets, key=train_sets.__getitem__)
        for seed in seeds
        for strategy, point in points
    ]


def student_scores(workspace: Workspace, student: Student) -> ScoreFolder:
    """Open the scores of the tune and eval splits by a student's network."""
    return ScoreFolder.open(scores_folder(workspace, student))


def scores_folder(workspace: Workspace, student: Student) -> Path:
    """Return where the scores of a student lie, or will lie."""
    return workspace.student_scores_folder(student.name)
