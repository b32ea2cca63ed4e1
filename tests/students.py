"""Students of strategies by name, and the targets that they train on."""

from __future__ import annotations

from collections.abc import Sequence

from earmark.config import NetworkParams
from earmark.datasets import Workspace
from earmark.experiments import (
    BASELINE,
    Student,
    build_targets,
    combine,
    open_train_set,
    parse_strategy,
)
from earmark.scores import ScoreFolder
from earmark.training import TargetProvider
from scenes import PROBE, open_store

WHOLE = {"train": 1.0}


def listed(*names: str, seeds: Sequence[int] = (0,), of: NetworkParams = PROBE) -> list[Student]:
    """List the students of some strategies at their points, 10 % where none are named."""
    strategies = [parse_strategy(name, [10]) for name in names]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    return combine([of], WHOLE, seeds, points)


def with_baseline(*names: str, of: NetworkParams = PROBE) -> list[Student]:
    """List the baseline, then the students of some strategies."""
    return [Student(of, "train", 0, BASELINE, 0.0), *listed(*names, of=of)]


def targets_of(
    workspace: Workspace, scores: ScoreFolder, students: Sequence[Student]
) -> TargetProvider:
    """Return the targets of students that train on the same labels."""
    labels = students[0].strategy.labels
    _, sources = open_train_set(workspace, open_store(workspace), 1.0, labels, scores)
    return build_targets(sources, [(one.strategy, one.point, one.seed) for one in students])
