from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.engine import LocalEngine
from earmark.errors import EarmarkError
from earmark.params import CrossFitParams, ModelParams, NetworkParams, SweepParams, TrainParams
from earmark.scoring import Scores, cross_fit
from earmark.strategies import parse_strategy
from earmark.students import (
    Student,
    TrainSet,
    combine,
    stacks,
    student_scores,
    students,
    train_students,
)
from earmark.supervision import TrainingSet
from earmark.train import train
from earmark.workspace import Workspace
from scenes import band_workspace, open_store

PROBE = NetworkParams(
    name="probe",
    model=ModelParams(architecture="mlp_probe", n_hidden=16, dropout=0.2),
    train=TrainParams(epochs=3, batch_patches=16, learning_rate=1e-2, average_share=0.5),
)
CNN = NetworkParams(name="cnn", model=ModelParams(width=0.125), train=TrainParams(epochs=1))
TEACHER = PROBE.model_copy(update={"name": "teacher"})
ONE = LocalEngine(1)
WHOLE = {"train": 1.0}


def scored(root: Path) -> tuple[Workspace, Scores]:
    workspace = band_workspace(root)
    return workspace, cross_fit(workspace, TEACHER, CrossFitParams(n_folds=2), engine=ONE)


def listed(*names: str, seeds: tuple[int, ...] = (0,)) -> list[Student]:
    strategies = [parse_strategy(name, [10]) for name in names]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    return combine([PROBE], WHOLE, seeds, points)


def test_probes_of_one_seed_train_in_one_stack_and_networks_one_by_one() -> None:
    params = SweepParams(discard_percents=(0, 1), seeds=(0, 1), random_control_percents=(1,))
    groups = stacks(students([PROBE, CNN], params))
    assert sorted(len(group) for group in groups) == [1] * 6 + [3, 3]
    assert all(group[0].point == 0 for group in groups if len(group) == 3)


def test_students_of_one_loss_stand_together_in_a_stack() -> None:
    (stack,) = stacks(listed("hill", "mask", "em@0.1,0.2", "soft"))
    assert [one.strategy.loss for one in stack] == ["bce", "bce", "em", "em", "hill"]


def test_a_student_in_a_stack_is_the_student_that_it_would_be_alone(tmp_path: Path) -> None:
    wanted = [Student(PROBE, "train", 0), *listed("mask", "random", "soft", "flip", "ll-cp@1")]
    wanted += listed("splc", "weight", "precision/mask@0.1", "oracle/mask", "truth")
    logits = {}
    for name, groups in (("stack", [wanted]), ("alone", [[student] for student in wanted])):
        workspace, scores = scored(tmp_path / name)
        for group in groups:
            train_students(workspace, group, WHOLE, scores, engine=ONE)
        logits[name] = [student_scores(workspace, student).logits for student in wanted]
    for together, alone in zip(logits["stack"], logits["alone"], strict=True):
        assert np.allclose(together, alone, atol=1e-4)
    baseline = logits["stack"][0]
    assert not any(np.allclose(own, baseline, atol=1e-3) for own in logits["stack"][1:])


def test_students_are_found_again_whatever_stack_they_come_in(tmp_path: Path) -> None:
    workspace, scores = scored(tmp_path)
    first = listed("mask", "soft")
    train_students(workspace, first, WHOLE, scores, engine=ONE)
    path = student_scores(workspace, first[0]).folder / "logits.npy"
    written = path.stat().st_mtime_ns
    train_students(workspace, [*first, *listed("flip", "mask+adjust")], WHOLE, scores, engine=ONE)
    assert path.stat().st_mtime_ns == written
    assert student_scores(workspace, listed("flip")[0]).logits.shape[1] == 3


class StopAfter:
    """A meter that breaks off a training, as a killed process would."""

    def __init__(self, n_steps: int) -> None:
        self.n_left = n_steps

    def advance(self, n_done: int, note: str = "") -> None:
        self.n_left -= n_done > 0
        if self.n_left < 0:
            raise KeyboardInterrupt


def test_what_a_loss_remembers_survives_an_interrupt(tmp_path: Path) -> None:
    workspace, scores = scored(tmp_path)
    store = open_store(workspace)
    often = PROBE.train.model_copy(update={"checkpoint_seconds": 0})
    network = PROBE.model_copy(update={"train": often})

    def data() -> TrainingSet:
        given = TrainSet.open(workspace, store, 1.0, "given", scores)
        student = listed("ll-cp@2")[0]
        treated = given.treated.of([given.tell([student])[student]])
        return TrainingSet(store.folder, given.clips.store_rows, treated)

    whole = train(network, data(), tmp_path / "whole", StopAfter(1_000))
    with pytest.raises(KeyboardInterrupt):
        train(network, data(), tmp_path / "broken", StopAfter(7))  # in the last of three epochs
    resumed = train(network, data(), tmp_path / "broken", StopAfter(1_000))
    for name, values in whole.state_dict().items():
        assert torch.equal(values, resumed.state_dict()[name]), name


def test_logit_adjustment_trains_nothing_of_its_own() -> None:
    adjusted, masked = listed("mask+adjust")[0], listed("mask")[0]
    assert adjusted.name == masked.name
    assert adjusted.trained == masked
    alone = listed("adjust")[0]
    assert alone.trained == alone.baseline


def test_the_random_control_ignores_as_many_labels_and_others_for_every_seed(
    tmp_path: Path,
) -> None:
    workspace, scores = scored(tmp_path)
    data = TrainSet.open(workspace, open_store(workspace), 1.0, "given", scores)
    wanted = [*listed("mask"), *listed("random", seeds=(0, 1))]
    told = data.tell(wanted)
    rows = np.arange(len(data.clips.labels))
    weights = data.treated.of([told[student] for student in wanted]).targets(rows).weight.numpy()
    n_ignored = (weights == 0).sum(axis=1)  # [student, class]
    assert n_ignored.sum() > 0
    assert (n_ignored == n_ignored[0]).all()
    assert not np.array_equal(weights[1], weights[2])
    assert not np.array_equal(weights[0], weights[1])


def test_the_random_control_leaves_classes_alone_that_the_teacher_did_not_score(
    tmp_path: Path,
) -> None:
    workspace, scores = scored(tmp_path)
    logits = np.array(scores.logits)
    logits[:, 1] = np.nan
    np.save(scores.folder / "logits.npy", logits)
    data = TrainSet.open(workspace, open_store(workspace), 1.0, "given", scores)
    control = listed("random")[0]
    rows = np.arange(len(data.clips.labels))
    weight = data.treated.of([data.tell([control])[control]]).targets(rows).weight.numpy()[0]
    is_ignored = (weight == 0).any(axis=0)
    assert not is_ignored[1]
    assert is_ignored[[0, 2]].all()


def test_the_baseline_is_the_student_that_takes_labels_as_they_are() -> None:
    control = listed("random", seeds=(3,))[0]
    assert control.baseline == Student(PROBE, "train", 3)
    assert control.seeded_network.train.seed == 3
    assert control.baseline.keys["discard_percent"] == 0


def test_scores_of_other_clips_are_refused(tmp_path: Path) -> None:
    workspace, scores = scored(tmp_path)
    shorter = Scores(
        scores.folder, scores.clip_ids[1:], scores.class_ids, scores.logits[1:],
        scores.best_patches[1:], scores.out_of_fold, scores.digest,
    )  # fmt: skip
    with pytest.raises(EarmarkError, match="not the 40 of the train split"):
        train_students(workspace, listed("mask"), WHOLE, shorter, engine=ONE)


def test_training_on_corrected_labels_needs_judgements(tmp_path: Path) -> None:
    workspace, scores = scored(tmp_path)
    with pytest.raises(EarmarkError, match="earmark relabel"):
        train_students(workspace, listed("corrected"), WHOLE, scores, engine=ONE)
