from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from earmark.config import CompareParams, ModelParams, NetworkParams, SweepParams, TrainParams
from earmark.datasets import Split, Workspace, held_out_scores, read_labels, readable_clips
from earmark.errors import EarmarkError
from earmark.experiments import (
    BASELINE,
    METRICS,
    Basis,
    Evaluations,
    Student,
    combine,
    evaluate_students,
    find_bases,
    parse_strategy,
    run_sweep,
    student_scores,
    students_of_sweep,
    train_students,
    write_student_cards,
)
from earmark.flags import thresholds
from earmark.losses import ignored
from earmark.metrics import evaluate
from earmark.models import ModelCard, read_card
from earmark.review import relabel, write_relabelled
from earmark.scores import ScoreFolder, logits_of
from reviews import judgement, table
from scenes import FOLDS, ONE, PROBE, open_store, scored_workspace
from students import listed, targets_of

CNN = NetworkParams(
    name="cnn",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=1, batch_patches=40, learning_rate=3e-3),
)
MASK = Student(PROBE, "train", 0, parse_strategy("mask", [20]), 20.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, ScoreFolder]:
    workspace, scores = scored_workspace(tmp_path_factory.mktemp("assessment"))
    train_students(workspace, [MASK, MASK.baseline], {"train": 1.0}, scores, engine=ONE)
    return workspace, scores


def bases_of(workspace: Workspace, scores: ScoreFolder, ignored_percent: float) -> list[Basis]:
    params = CompareParams(n_resamples=100, ignored_percent=ignored_percent)
    return find_bases(workspace, params, scores, FOLDS, engine=ONE)


def test_marks_are_the_evaluations_numbers(trained: tuple[Workspace, ScoreFolder]) -> None:
    workspace, _ = trained
    evaluations = evaluate_students(workspace, [MASK], [Basis("eval", "truth", 100)], engine=ONE)
    (basis,) = evaluations.bases
    truth = readable_clips(workspace, open_store(workspace), "eval", workspace.truth).labels
    logits = logits_of(student_scores(workspace, MASK), truth.clip_ids)
    overall = evaluate(truth, logits).overall
    for metric in ("lwlrap", "map", "d_prime_all", "d_prime_explicit"):
        assert evaluations.value(basis, MASK, metric).value == overall[metric]
    assert set(evaluations.results[basis, MASK].draws) == set(METRICS)
    gain = evaluations.gain(basis, MASK, "map")
    base = evaluations.value(basis, MASK.baseline, "map")
    assert gain.value == pytest.approx(overall["map"] - base.value)


def test_flagged_labels_of_the_evaluation_set_take_no_part(
    trained: tuple[Workspace, ScoreFolder],
) -> None:
    workspace, scores = trained
    against, held_out = bases_of(workspace, scores, 20.0), held_out_scores(workspace, scores)
    assert held_out is not None
    assert [basis.labels for basis in against] == ["given", "ignored", "truth"] * 2
    basis = next(one for one in against if (one.split, one.labels) == ("eval", "ignored"))
    evaluations = evaluate_students(workspace, [MASK], [basis], engine=ONE)
    labels = readable_clips(workspace, open_store(workspace), "eval").labels
    suspects = logits_of(held_out, labels.clip_ids)
    edges = thresholds(labels, suspects, [20.0]).values[0]
    is_flagged = ignored(labels.states(), suspects, edges)
    assert is_flagged.any()
    logits = logits_of(student_scores(workspace, MASK), labels.clip_ids)
    expected = evaluate(labels, logits, left_out=is_flagged).overall["map"]
    assert evaluations.value(basis, MASK, "map").value == expected


def judge(
    workspace: Workspace, split: Split, answers: Sequence[str], name: str = "corrected"
) -> np.ndarray:
    """Have the first implicit labels of a split answered; return each as (row, column) of it."""
    rows = workspace.rows(split)
    judged = np.argwhere(workspace.labels.states()[rows] == 0)[: len(answers)]
    told = [
        judgement(
            number, answer, clip_id=workspace.labels.clip_ids[int(rows[row])],
            class_id=workspace.labels.class_ids[column],
        )
        for number, ((row, column), answer) in enumerate(zip(judged, answers, strict=True))
    ]  # fmt: skip
    judgements = table(*told)
    write_relabelled(workspace, name, relabel(workspace.labels, judgements), judgements)
    return judged


def test_students_follow_the_raters_rulings(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    cleared, unsure = judge(workspace, "train", ["not_present", "unsure"])
    targets = targets_of(workspace, scores, listed("corrected+all/mask"))
    weight = targets.targets(np.arange(40)).weight[0].numpy()
    assert weight[tuple(cleared)] == 1  # all other implicit labels are ignored
    assert weight[tuple(unsure)] == 0
    params = SweepParams(
        discard_percents=(0, 20), random_control_percents=(), labels="corrected", n_resamples=100
    )
    kinds = [(one.strategy.name, one.point) for one in students_of_sweep([PROBE], params)]
    assert kinds == [("mask", 0), ("mask", 20), ("corrected", 0), ("corrected+mask", 20)]
    found = run_sweep(workspace, [PROBE], params, scores, FOLDS, engine=ONE)
    assert set(found.summary["kind"]) == {"mask", "corrected", "corrected+mask"}
    # Nobody listened to the evaluated splits: their corrected labels would be those as given.
    assert set(found.summary["labels"]) == {"given", "ignored", "truth"}


def test_a_sweep_trains_on_and_judges_by_a_corrected_set_of_any_name(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    judge(workspace, "eval", ["unsure"])
    judge(workspace, "eval", ["present", "present"], "mine")
    params = SweepParams(discard_percents=(0, 20), labels="mine", n_resamples=100)
    told = students_of_sweep([PROBE], params)
    assert {(one.strategy.name, one.strategy.labels) for one in told} == {
        ("mask", "given"), ("random", "given"), ("corrected", "mine"), ("corrected+mask", "mine"),
    }  # fmt: skip
    usual = students_of_sweep([PROBE], params.model_copy(update={"labels": "corrected"}))
    assert not {one.name for one in told[3:]} & {one.name for one in usual[3:]}
    found = run_sweep(workspace, [PROBE], params, scores, FOLDS, engine=ONE)
    assert set(found.summary["kind"]) == {"mask", "random", "corrected", "corrected+mask"}
    own = found.per_class.filter(split="eval", labels="corrected", kind="mask", discard_percent=0.0)
    heard = read_labels(workspace, "mine").labels
    eval_rows = workspace.rows("eval")
    assert own["n_positives"].sum() == (heard.states(eval_rows) > 0).sum()
    assert own["n_positives"].sum() == (workspace.labels.states(eval_rows) > 0).sum() + 2


@pytest.mark.parametrize(
    ("name", "told"), [("nobodys", "'nobodys'.*given, mine"), ("truth", "--strategy truth")]
)
def test_a_sweep_on_labels_that_are_not_there_lists_those_that_are(
    tmp_path: Path, name: str, told: str
) -> None:
    workspace, scores = scored_workspace(tmp_path)
    judge(workspace, "train", ["present"], "mine")
    with pytest.raises(EarmarkError, match=told):
        run_sweep(workspace, [PROBE], SweepParams(labels=name), scores, FOLDS, engine=ONE)
    assert not list((workspace.root / "models").glob("probe*"))


def test_corrected_labels_count_where_raters_listened(
    trained: tuple[Workspace, ScoreFolder],
) -> None:
    workspace, scores = trained
    present, unsure, cleared = judge(workspace, "eval", ["present", "unsure", "not_present"])
    against = bases_of(workspace, scores, 20.0)
    named = [(basis.split, basis.labels) for basis in against]
    assert ("tune", "corrected") not in named
    basis = against[named.index(("eval", "corrected"))]
    evaluations = evaluate_students(workspace, [MASK], [basis], engine=ONE)
    labels = readable_clips(workspace, open_store(workspace), "eval").labels
    states, left_out = labels.states().copy(), np.zeros((len(labels), 3), bool)
    states[tuple(present)], left_out[tuple(unsure)] = 1, True
    assert states[tuple(cleared)] == 0
    logits = logits_of(student_scores(workspace, MASK), labels.clip_ids)
    expected = evaluate(states, logits, left_out=left_out).overall
    for metric in ("lwlrap", "map"):
        assert evaluations.value(basis, MASK, metric).value == expected[metric]
    shutil.rmtree(workspace.relabelled_folder("corrected"))


def test_a_teacher_without_networks_flags_no_evaluation_labels(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    found = bases_of(workspace, scores, 30)
    assert {basis.labels for basis in found} == {"given", "ignored", "truth"}
    assert {basis.ignored_percent for basis in found if basis.labels == "ignored"} == {30}
    found = bases_of(workspace, scores, 0)
    assert {basis.labels for basis in found} == {"given", "truth"}, "not measured twice"
    shutil.rmtree(workspace.model_folder("teacher-fold1"))
    assert {basis.labels for basis in bases_of(workspace, scores, 30)} == {"given", "truth"}


def measured(root: Path, *names: str) -> tuple[Workspace, list[Student], Evaluations]:
    """Train and mark the students of some strategies, networks and probes."""
    workspace, scores = scored_workspace(root)
    strategies = [parse_strategy(name, [10]) for name in names]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    wanted = combine([CNN, PROBE], {"train": 1.0}, [0], [(BASELINE, 0.0), *points])
    train_students(workspace, wanted, {"train": 1.0}, scores, engine=ONE)
    against = bases_of(workspace, scores, 0)
    evaluations = evaluate_students(workspace, wanted, against, engine=ONE)
    return workspace, wanted, evaluations


def card_of(workspace: Workspace, student: Student) -> tuple[ModelCard, int]:
    made_by = student_scores(workspace, student).made_by
    assert made_by is not None
    return read_card(workspace.model_folder(made_by.network)), made_by.student


def test_every_students_card_has_its_figures_once_it_was_measured(tmp_path: Path) -> None:
    workspace, wanted, evaluations = measured(tmp_path, "mask", "mask+adjust")
    for student in wanted:
        card, place = card_of(workspace, student)
        assert card.n_students == len(card.students) == (2 if student.network is PROBE else 1)
        assert card.students[place].name == student.name
        assert card.students[place].metrics == {}
    write_student_cards(workspace, evaluations)
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
    workspace, _, evaluations = measured(tmp_path, "mask")
    cards = sorted(workspace.root.glob("models/*-train-seed0-*/card.json"))
    assert len(cards) == 2 + 1  # two networks, and a stack of two probes
    for path in cards:
        path.unlink()
    write_student_cards(workspace, evaluations)
    assert not any(path.exists() for path in cards)


def test_a_process_that_measures_students_does_without_torch() -> None:
    code = "import earmark.experiments.evaluation, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
