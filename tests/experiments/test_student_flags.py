"""Students ignore the labels that ``earmark flag`` writes, with a class tree and with answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from earmark.datasets import Workspace, read_labels, read_relabelled
from earmark.experiments import Supervision
from earmark.labels import LabelSet
from earmark.pipeline import export_labels, write_flags
from earmark.review import JudgementStore, relabel, write_relabelled
from reviews import judgement
from told_workspace import N_TRAIN, told_workspace

POLICIES = {
    "mask@10": {"policy": "percentile", "discard_percent": 10},
    "precision/mask@0.5": {"policy": "precision", "target": 0.5},
    "count/mask": {"policy": "count"},
    "budget/mask@10": {"policy": "budget"},
    "positives_quantile/mask@0.25": {"policy": "positives_quantile", "quantile": 0.25},
    "psla/mask@0.25": {"policy": "positives_quantile", "quantile": 0.25, "gate": True},
    "confident/mask": {"policy": "confident"},
    "global/mask@0.6": {"policy": "global", "probability": 0.6},
}
Pairs = set[tuple[str, str]]


@pytest.fixture(scope="module", params=["tree", "tree and answers"])
def work(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace, _ = told_workspace(tmp_path_factory.mktemp("told"))
    if request.param == "tree and answers":
        answer_some(workspace)
    return workspace


@pytest.fixture(scope="module")
def corrected(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace, _ = told_workspace(tmp_path_factory.mktemp("corrected"))
    answer_some(workspace)
    with JudgementStore(workspace.judgements_path) as store:
        judgements = store.current()
    relabelled = relabel(workspace.labels, judgements)
    write_relabelled(workspace, "corrected", relabelled, judgements)
    return workspace


def answer_some(workspace: Workspace, n_answers: int = 80) -> None:
    """Answer labels from the truth; every tenth answer is unsure."""
    labels, truth = workspace.labels, workspace.truth
    assert truth is not None
    states, present = labels.states()[:N_TRAIN], truth.states() > 0
    implicit = np.argwhere(states == 0)
    chosen = np.random.default_rng(1).choice(implicit, n_answers, replace=False)
    answers = [
        judgement(
            number,
            "unsure" if number % 10 == 0 else "present" if present[row, column] else "not_present",
            clip_id=labels.clip_ids[row],
            class_id=labels.class_ids[column],
        )
        for number, (row, column) in enumerate(chosen.tolist())
    ]
    with JudgementStore(workspace.judgements_path) as store:
        store.add_all(answers)


def ignored_by_student(workspace: Workspace, strategy: str) -> Pairs:
    supervision = Supervision.from_workspace(workspace, strategy)
    _, weight = supervision.targets(range(N_TRAIN))
    labels = supervision.labels
    return {
        (labels.clip_ids[row], labels.class_ids[column])
        for row, column in np.argwhere(weight.numpy() == 0).tolist()
    }


def pairs(table: pl.DataFrame) -> Pairs:
    return set(table.select("clip_id", "class_id").rows())


def options_of(strategy: str, labels: LabelSet) -> dict[str, Any]:
    """Return the options of ``earmark flag``; a budget's point is a percentage of all labels."""
    options: dict[str, Any] = dict(POLICIES[strategy])
    if options["policy"] == "budget":
        options["n_flags"] = int(0.10 * labels.n_implicit.sum())
    return options


@pytest.mark.parametrize("strategy", POLICIES)
def test_a_student_ignores_what_earmark_flag_writes(work: Workspace, strategy: str) -> None:
    options = options_of(strategy, work.labels.select(work.rows("train")))
    flags = write_flags(work, **options).flags
    assert len(flags) > 0
    assert ignored_by_student(work, strategy) == pairs(flags)


@pytest.mark.parametrize("strategy", POLICIES)
def test_a_student_on_corrected_labels_ignores_what_is_exported_as_ignored(
    corrected: Workspace, tmp_path: Path, strategy: str
) -> None:
    """Judged-absent labels are never flagged, unsettled ones are always ignored."""
    changes = read_relabelled(corrected, "corrected").changes
    labels = read_labels(corrected, "corrected").labels
    options = options_of(strategy, labels.select(corrected.rows("train")))
    flags = write_flags(corrected, labels="corrected", **options).flags
    table = export_labels(corrected, tmp_path / "labels.csv", labels="corrected").table
    ignored = ignored_by_student(corrected, f"corrected+{strategy}")
    assert ignored == pairs(table.filter(state="ignored"))
    assert not ignored & pairs(changes.filter(pl.col("after").is_in(["cleared", "present"])))
    assert ignored >= pairs(changes.filter(after="ignored"))
    assert len(pairs(flags) & ignored) > 0
