"""Students ignore what ``earmark flag`` writes; and the policies that students alone have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from earmark.datasets import Workspace, read_labels, read_relabelled
from earmark.errors import EarmarkError
from earmark.experiments import FlagSources, Supervision, build_targets, one_point
from earmark.labels import LabelSet, Ontology
from earmark.pipeline import export_labels, write_flags
from earmark.review import JudgementStore, relabel, write_relabelled
from earmark.scores import HeldScores
from reviews import judgement
from students import listed, targets_of
from told_workspace import N_TRAIN, told_workspace

POLICIES = {
    "mask@10": {"policy": "percentile", "discard_percent": 10},
    "precision/mask@0.5": {"policy": "precision", "target": 0.5},
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


CLASS_IDS = ("animal", "dog", "bark", "car")
BRANCH = Ontology(CLASS_IDS, {"bark": ("dog",), "dog": ("animal",)})
STATES = np.array(
    [[0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
)
IMPLIED = [(0, 0), (0, 1), (1, 0), (2, 1)]


def sources(**changes: Any) -> FlagSources:
    """Return labels with a class tree and scores; chances are other scores than the teacher's."""
    logits, log_odds = np.random.default_rng(0).normal(size=(2, *STATES.shape)).astype(np.float32)
    given = {
        "labels": LabelSet.from_dense(STATES, class_ids=CLASS_IDS),
        "rows": np.arange(len(STATES)),
        "teacher": lambda: HeldScores(logits, "teacher"),
        "chances": lambda: HeldScores(log_odds, "chances"),
        "random": lambda _: HeldScores(logits, "random"),
        "ontology": BRANCH,
    }
    return FlagSources(**(given | changes))


def asked(given: FlagSources, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return target and weight [clip, class] of a strategy."""
    targets = build_targets(given, [(*one_point(name), 0)]).targets(np.arange(len(given.labels)))
    return targets.target[0].numpy(), targets.weight[0].numpy()


@pytest.mark.parametrize(("start", "scores"), [("", "teacher"), ("chance/", "chances")])
@pytest.mark.parametrize("treatment", ["mask", "flip", "soft", "hedge", "weight"])
@pytest.mark.parametrize("policy", ["ancestors", "global"])
def test_flagged_labels_are_treated_by_the_scores_that_flagged_them(
    start: str, scores: str, policy: str, treatment: str
) -> None:
    """Label by label, by the class tree or by a limit."""
    given = sources()
    point = 0.5 if policy == "global" else 1
    target, weight = asked(given, f"{start}{policy}/{treatment}@{point}")
    p = expit(getattr(given, scores)().open())
    for label in np.ndindex(STATES.shape):
        expected = (float(STATES[label] > 0), 1.0)
        is_likely = STATES[label] == 0 and p[label] > 0.5
        if label in IMPLIED if policy == "ancestors" else is_likely:
            expected = {
                "mask": (0.0, 0.0),
                "flip": (1.0, 1.0),
                "soft": (p[label], 1.0),
                "hedge": (p[label] / 2, 1.0),
                "weight": (0.0, 1 - p[label]),
            }[treatment]
        assert (target[label], weight[label]) == pytest.approx(expected, abs=1e-6), label


def test_the_oracle_knows_what_is_missing_and_distillation_takes_all() -> None:
    truth = np.where(STATES == 0, np.eye(*STATES.shape, dtype=int) * 2 - 1, STATES)
    _, weight = asked(sources(truth=LabelSet.from_dense(truth, class_ids=CLASS_IDS)), "oracle/mask")
    np.testing.assert_array_equal(weight == 0, (truth > 0) & (STATES == 0))
    with pytest.raises(EarmarkError, match="needs the truth"):
        asked(sources(), "oracle/mask")
    _, weight = asked(sources(), "all/mask")
    np.testing.assert_array_equal(weight == 0, STATES == 0)


def test_a_share_of_the_train_set_finds_its_clips_in_the_score_matrix() -> None:
    random = np.random.default_rng(5)
    logits, rows = random.normal(size=(400, 2)).astype(np.float32), np.arange(100, 300)
    labels = LabelSet.from_dense(random.integers(0, 2, (200, 2)))
    teacher = HeldScores(logits, "teacher")
    _, weight = asked(sources(labels=labels, rows=rows, teacher=lambda: teacher), "mask@5")
    n_ignored = labels.n_implicit * 5 // 100
    ordered = -np.sort(-np.where(labels.states() == 0, logits[rows], -np.inf), axis=0)
    edges = ordered[n_ignored, np.arange(2)]
    np.testing.assert_array_equal(weight == 0, (labels.states() == 0) & (logits[rows] > edges))


def test_learnt_chances_are_those_of_the_workspace(tmp_path: Path) -> None:
    workspace, scores = told_workspace(tmp_path)
    students = listed("chance/soft@0.1")
    with pytest.raises(EarmarkError, match=r"no learnt chances.*`earmark flag .*` learns them"):
        targets_of(workspace, scores, students)
    digests = []
    workspace.chances_path.parent.mkdir(exist_ok=True)
    for value in (1.0, 2.0):
        np.save(workspace.chances_path, np.full(scores.logits.shape, value, np.float32))
        targets = targets_of(workspace, scores, students)
        digests.append(targets.digest)
    assert digests[0] != digests[1]
    np.save(workspace.chances_path, np.zeros((3, 4), np.float32))
    with pytest.raises(EarmarkError, match=r"\(3, 4\).*\(240, 4\).*anew"):
        targets_of(workspace, scores, students)
