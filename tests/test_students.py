from __future__ import annotations

from pathlib import Path

import numpy as np

from earmark.engine import LocalEngine
from earmark.flagging import ignored, thresholds
from earmark.params import CrossFitParams, ModelParams, NetworkParams, SweepParams, TrainParams
from earmark.scoring import cross_fit, readable_clips
from earmark.students import (
    Mask,
    Masked,
    Student,
    stacks,
    student_scores,
    students,
    train_students,
)
from scenes import CLASS_IDS, band_workspace, open_store

PROBE = NetworkParams(
    name="probe",
    model=ModelParams(architecture="mlp_probe", n_hidden=16, dropout=0.2),
    train=TrainParams(epochs=3, batch_patches=16, learning_rate=1e-2, average_share=0.5),
)
CNN = NetworkParams(name="cnn", model=ModelParams(width=0.125), train=TrainParams(epochs=1))
TEACHER = PROBE.model_copy(update={"name": "teacher"})
TWO_FOLDS = CrossFitParams(n_folds=2)


def test_probes_of_one_seed_train_in_one_stack_and_networks_one_by_one() -> None:
    params = SweepParams(discard_percents=(0, 1), seeds=(0, 1), random_control_percents=(1,))
    groups = stacks(students([PROBE, CNN], params))
    assert sorted(len(group) for group in groups) == [1] * 6 + [3, 3]
    assert all(group[0].discard_percent == 0 for group in groups if len(group) == 3)


def test_a_student_in_a_stack_is_the_student_that_it_would_be_alone(tmp_path: Path) -> None:
    params = SweepParams(discard_percents=(0, 10), random_control_percents=(10,))
    wanted = students([PROBE], params)
    logits = {}
    for name, groups in (("stack", [wanted]), ("alone", [[student] for student in wanted])):
        workspace = band_workspace(tmp_path / name)
        scores = cross_fit(workspace, TEACHER, TWO_FOLDS, engine=LocalEngine(1))
        for group in groups:
            train_students(workspace, group, params, scores, engine=LocalEngine(1))
        logits[name] = [student_scores(workspace, student).logits for student in wanted]
    for together, alone in zip(logits["stack"], logits["alone"], strict=True):
        assert np.allclose(together, alone, atol=1e-4)
    assert not np.allclose(logits["stack"][0], logits["stack"][1], atol=1e-2)


def test_the_random_control_ignores_as_many_labels(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    labels = readable_clips(workspace, open_store(workspace), "train").labels
    scores = np.random.default_rng(0).random((len(labels), len(CLASS_IDS)), np.float32)
    teacher = np.random.default_rng(1).normal(size=scores.shape).astype(np.float32)
    counts = [thresholds(labels, given, [20]).n_ignored for given in (scores, teacher)]
    assert np.array_equal(*counts)


def test_the_baseline_of_a_control_is_the_student_that_ignores_nothing() -> None:
    control = Student(PROBE, "train", 3, "random", 2)
    assert control.baseline == Student(PROBE, "train", 3, "mask", 0)
    assert control.seeded_network.train.seed == 3


def test_a_masked_batch_ignores_what_equation_2_says(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    scores = cross_fit(workspace, TEACHER, TWO_FOLDS, engine=LocalEngine(1))
    labels = readable_clips(workspace, open_store(workspace), "train").labels
    medians = np.median(scores.logits, axis=0)
    mask = Mask(scores.folder / "logits.npy", scores.digest, medians)
    masked = Masked(labels, np.arange(len(labels)), (mask,))
    rows = np.array([7, 2, 11])
    told = masked.targets(rows)
    target, weight = told.target[0].numpy(), told.weight[0].numpy()
    states = labels.states(rows)
    assert np.array_equal(target, states > 0)
    assert np.array_equal(weight == 0, ignored(states, scores.logits[rows], medians))
    assert (weight[states != 0] == 1).all()
