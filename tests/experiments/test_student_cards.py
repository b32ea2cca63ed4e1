from __future__ import annotations

from pathlib import Path

import pytest

from earmark.datasets.readable_clips import readable_clips
from earmark.datasets.workspace import Workspace
from earmark.experiments.marks import MarkBook, bases, mark_students
from earmark.experiments.strategies import BASELINE, parse_strategy
from earmark.experiments.student_cards import write_student_cards
from earmark.experiments.students import Student, combine, student_scores, train_students
from earmark.metrics.evaluation import evaluate
from earmark.networks.model_card import ModelCard, read_card
from earmark.runs.parameters import ModelParams, NetworkParams, TrainParams
from scenes import ONE, PROBE, open_store, scored_workspace

CNN = NetworkParams(
    name="cnn",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=1, batch_patches=40, learning_rate=3e-3),
)


def measured(root: Path, *names: str) -> tuple[Workspace, list[Student], MarkBook]:
    """Train and mark the students of some strategies, networks and probes."""
    workspace, scores = scored_workspace(root)
    strategies = [parse_strategy(name, [10]) for name in names]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    wanted = combine([CNN, PROBE], {"train": 1.0}, [0], [(BASELINE, 0.0), *points])
    train_students(workspace, wanted, {"train": 1.0}, scores, engine=ONE)
    book = mark_students(workspace, wanted, bases(workspace, 100), engine=ONE)
    return workspace, wanted, book


def card_of(workspace: Workspace, student: Student) -> tuple[ModelCard, int]:
    made_by = student_scores(workspace, student).made_by
    assert made_by is not None
    return read_card(workspace.model_folder(made_by.network)), made_by.student


def test_every_students_card_has_its_figures_once_it_was_measured(tmp_path: Path) -> None:
    workspace, wanted, book = measured(tmp_path, "mask", "mask+adjust")
    for student in wanted:
        card, place = card_of(workspace, student)
        assert card.n_students == len(card.students) == (2 if student.network is PROBE else 1)
        assert card.students[place].name == student.name
        assert card.students[place].metrics == {}
    write_student_cards(workspace, book)
    clips = readable_clips(workspace, open_store(workspace), "eval")
    for student in wanted:
        card, place = card_of(workspace, student)
        found = card.students[place].metrics
        scores = student_scores(workspace, student)
        logits = scores.logits[-len(clips.labels) :]  # tune, then eval
        overall = evaluate(
            clips.labels, logits
        ).overall  # without the adjustment, which is no weight
        for name in ("lwlrap", "map", "d_prime_all"):
            assert found[f"eval_{name}"] == pytest.approx(overall[name], abs=1e-6)
        assert found["tune_lwlrap_calibrated"] > 0
        readme = (workspace.model_folder(scores.made_by.network) / "README.md").read_text()
        if student.network is PROBE:
            assert f"| {place} | {student.name} |" in readme
        else:
            assert card.metrics == found
            assert f"| eval_map | {found['eval_map']:.4f} |" in readme


def test_a_network_that_is_gone_has_no_card(tmp_path: Path) -> None:
    workspace, _, book = measured(tmp_path, "mask")
    cards = sorted(workspace.root.glob("models/*-train-seed0-*/card.json"))
    assert len(cards) == 2 + 1  # two networks, and a stack of two probes
    for path in cards:
        path.unlink()
    write_student_cards(workspace, book)
    assert not any(path.exists() for path in cards)
