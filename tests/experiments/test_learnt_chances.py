from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.compute import LocalEngine
from earmark.datasets import Workspace, label_names, read_labels, write_dataset
from earmark.errors import EarmarkError
from earmark.experiments import (
    Student,
    TrainSet,
    combine,
    parse_strategy,
    student_scores,
    train_students,
)
from earmark.labels import Ontology, find_implied
from earmark.scores import ScoreFolder
from earmark.training import cross_fit
from scenes import FOLDS, PROBE, TEACHER, band_workspace, open_store

ONE = LocalEngine(1)
WHOLE = {"train": 1.0}


@pytest.fixture
def scored(tmp_path: Path) -> tuple[Workspace, ScoreFolder]:
    workspace = band_workspace(tmp_path)
    return workspace, cross_fit(workspace, TEACHER, FOLDS, engine=ONE)


def listed(*names: str) -> list[Student]:
    points = [
        (strategy, point)
        for strategy in (parse_strategy(name, [10]) for name in names)
        for point in strategy.points
    ]
    return combine([PROBE], WHOLE, [0], points)


def write_chances(workspace: Workspace, scores: ScoreFolder) -> np.ndarray:
    chances = np.random.default_rng(1).uniform(0.01, 0.99, scores.logits.shape)
    workspace.chances_path.parent.mkdir(exist_ok=True)
    np.save(workspace.chances_path, np.log(chances / (1 - chances)).astype(np.float32))
    return chances


def expected_of(name: str, chance: float, point: float) -> tuple[float, float]:
    """What an implicit label is told: (target, weight)."""
    if chance <= point:
        return 0.0, 1.0
    told = {"mask": (0, 0), "flip": (1, 1), "soft": (chance, 1), "hedge": (chance / 2, 1)}
    return {**told, "weight": (0, 1 - chance)}[name]


@pytest.mark.parametrize("name", ["mask", "flip", "soft", "hedge", "weight"])
@pytest.mark.parametrize("point", [0.0, 0.3])
def test_students_are_told_the_learnt_chances(
    scored: tuple[Workspace, ScoreFolder], name: str, point: float
) -> None:
    workspace, scores = scored
    chances = write_chances(workspace, scores)
    data = TrainSet.open(workspace, open_store(workspace), 1.0, "given", scores)
    (student,) = listed(f"chance/{name}@{point}")
    treated = data.targets.with_treatments([data.treatments([student])[student]])
    states = data.clips.labels.states()
    found = treated.targets(np.arange(len(states)))
    for label in np.ndindex(states.shape):
        expected = (float(states[label] > 0), 1.0)
        if states[label] == 0:
            expected = expected_of(name, chances[label], point)
        told = found.target[0][label].item(), found.weight[0][label].item()
        assert told == pytest.approx(expected, abs=1e-5), label


def test_other_policies_may_go_by_chances(scored: tuple[Workspace, ScoreFolder]) -> None:
    workspace, scores = scored
    chances = write_chances(workspace, scores)
    data = TrainSet.open(workspace, open_store(workspace), 1.0, "given", scores)
    by_teacher, by_chance = listed("mask@10", "chance/percentile/mask@10")
    told = data.treatments([by_teacher, by_chance])
    states = data.clips.labels.states()
    rows = np.arange(len(states))
    treated = data.targets.with_treatments([told[by_teacher], told[by_chance]])
    is_ignored = treated.targets(rows).weight.numpy() == 0
    assert not np.array_equal(is_ignored[0], is_ignored[1])
    for column in range(states.shape[1]):
        implicit = np.flatnonzero(states[:, column] == 0)
        best = implicit[np.argsort(-chances[implicit, column])][: len(implicit) * 10 // 100]
        assert set(np.flatnonzero(is_ignored[1][:, column])) == set(best)


def test_chances_that_are_not_there_are_named_with_their_command(
    scored: tuple[Workspace, ScoreFolder],
) -> None:
    workspace, scores = scored
    wanted = listed("chance/soft@0.1")
    with pytest.raises(EarmarkError, match=r"no learnt chances.*`earmark flag .*` learns them"):
        train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    write_chances(workspace, scores)
    np.save(workspace.chances_path, np.load(workspace.chances_path)[1:])
    with pytest.raises(EarmarkError, match=r"\(39, 3\).*\(40, 3\).*anew"):
        train_students(workspace, wanted, WHOLE, scores, engine=ONE)


def test_other_chances_make_another_student(scored: tuple[Workspace, ScoreFolder]) -> None:
    workspace, scores = scored
    write_chances(workspace, scores)
    (student,) = listed("chance/soft@0.1")
    digests = []
    for change in (0, 1):
        np.save(workspace.chances_path, np.load(workspace.chances_path) + change)
        data = TrainSet.open(workspace, open_store(workspace), 1.0, "given", scores)
        digests.append(data.treatments([student])[student].digest)
    assert digests[0] != digests[1]


def test_students_train_by_chances_on_filled_labels_and_with_the_new_rivals(
    scored: tuple[Workspace, ScoreFolder],
) -> None:
    """Each is a student of its own; some recordings of these clips have two of them."""
    workspace, scores = scored
    workspace = with_tree(workspace)
    write_chances(workspace, scores)
    names = ("chance/soft@0.1", "chance/mask@0.5", "filled", "ancestors/flip", "ancestors/soft")
    wanted = [Student(PROBE, "train", 0), *listed(*names, "weak-negatives", "consistency")]
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    baseline, *others = [student_scores(workspace, one).logits for one in wanted]
    assert all(np.isfinite(own).all() for own in others)
    assert not any(np.allclose(own, baseline, atol=1e-4) for own in others)


def test_filled_labels_have_what_the_class_tree_implies(
    scored: tuple[Workspace, ScoreFolder],
) -> None:
    workspace = with_tree(scored[0])
    assert "filled" in label_names(workspace)
    filled = read_labels(workspace, "filled").labels
    assert filled.digest == find_implied(workspace.labels, workspace.ontology).fill().digest
    given, found = workspace.labels.states(), filled.states()
    is_implied = (given[:, 0] > 0) & (given[:, 2] == 0)
    assert is_implied.any()
    assert (found[is_implied, 2] > 0).all()
    assert ((found != given).any(axis=1) == is_implied).all()


def with_tree(workspace: Workspace) -> Workspace:
    """Return the same workspace with ``low`` below ``high``."""
    old = workspace.ontology
    tree = Ontology(old.class_ids, {old.class_ids[0]: (old.class_ids[2],)}, old.names)
    parts = (workspace.clips, tree, workspace.labels, workspace.truth)
    return write_dataset(workspace.root, *parts, replace=True)


@pytest.mark.parametrize(
    ("text", "policy", "treatment", "points"),
    [
        ("chance/mask@0.3", "global", "mask", (0.3,)),
        ("chance/soft", "global", "soft", (0.5, 0.3, 0.1, 0.03)),
        ("chance/percentile/hedge", "percentile", "hedge", (10.0,)),
        ("chance/ancestors/soft", "ancestors", "soft", (1.0,)),
        ("chance/distil", "all", "soft", (1.0,)),
        ("filled+chance/hedge+weak-negatives+adjust@0.1", "global", "hedge", (0.1,)),
    ],
)
def test_names_say_that_chances_are_gone_by(
    text: str, policy: str, treatment: str, points: tuple[float, ...]
) -> None:
    found = parse_strategy(text, [10])
    assert found.by_chance
    assert (found.policy, found.treatment, found.points) == (policy, treatment, points)
    assert found.labels == ("filled" if text.startswith("filled") else "given")
    assert not parse_strategy("soft", [10]).by_chance


@pytest.mark.parametrize("text", ["chance", "chance/random/mask", "chance/", "chance/chance/mask"])
def test_a_chance_needs_something_that_goes_by_it(text: str) -> None:
    with pytest.raises(EarmarkError, match="strategy 'chance"):
        parse_strategy(text, [10])
