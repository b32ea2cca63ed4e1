from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.config import ModelParams, NetworkParams, SweepParams, TrainParams
from earmark.datasets import readable_clips
from earmark.errors import EarmarkError
from earmark.experiments import Student, student_scores, students_of_sweep, train_students
from earmark.experiments.stacks import stacks
from earmark.models import read_card
from earmark.scores import ScoreFolder
from earmark.training import TrainingSet, train
from meters import CountingMeter
from scenes import ONE, PROBE, open_store, scored_workspace
from students import WHOLE, listed, targets_of, with_baseline

CNN = NetworkParams(
    name="cnn",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=2, batch_patches=40, learning_rate=1e-2, average_share=0.5),
)
PATIENT = NetworkParams(
    name="patient",
    model=CNN.model,
    train=TrainParams(epochs=4, batch_patches=40, learning_rate=3e-2, patience=1),
)


def test_probes_of_one_network_and_seed_train_in_one_stack_and_other_networks_apart() -> None:
    params = SweepParams(discard_percents=(0, 1), seeds=(0, 1), random_control_percents=(1,))
    groups = stacks(students_of_sweep([PROBE, CNN], params))
    assert [len(group) for group in groups] == [3, 3, *[1] * 6]
    for group in groups:
        assert len({(one.network.name, one.seed) for one in group}) == 1


def test_the_papers_sweep_of_probes_is_two_stacks_for_two_cores() -> None:
    eighteen = SweepParams(discard_percents=tuple(range(18)), random_control_percents=(1,))
    assert [len(group) for group in stacks(students_of_sweep([PROBE], eighteen))] == [9, 10]


def test_a_student_in_a_stack_is_the_student_that_it_would_be_alone(tmp_path: Path) -> None:
    wanted = [Student(PROBE, "train", 0), *listed("mask", "random", "soft", "flip", "consistency")]
    wanted += listed("splc", "weight", "precision/mask@0.1", "oracle/mask", "truth")
    logits = {}
    for name, groups in (("stack", [wanted]), ("alone", [[student] for student in wanted])):
        workspace, scores = scored_workspace(tmp_path / name)
        for group in groups:
            train_students(workspace, group, WHOLE, scores, engine=ONE)
        logits[name] = [student_scores(workspace, student).logits for student in wanted]
    for together, alone in zip(logits["stack"], logits["alone"], strict=True):
        assert np.allclose(together, alone, atol=1e-4)
    baseline = logits["stack"][0]
    assert not any(np.allclose(own, baseline, atol=1e-3) for own in logits["stack"][1:])


def test_students_are_found_again_whatever_stack_they_come_in(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    first = listed("mask", "soft")
    train_students(workspace, first, WHOLE, scores, engine=ONE)
    path = student_scores(workspace, first[0]).folder / "logits.npy"
    written = path.stat().st_mtime_ns
    train_students(workspace, [*first, *listed("flip", "mask+adjust")], WHOLE, scores, engine=ONE)
    assert path.stat().st_mtime_ns == written
    assert student_scores(workspace, listed("flip")[0]).logits.shape[1] == 3


def test_what_a_loss_remembers_survives_an_interrupt(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    store = open_store(workspace)
    often = PROBE.train.model_copy(update={"checkpoint_seconds": 0, "epochs": 3})
    network = PROBE.model_copy(update={"train": often})

    def data() -> TrainingSet:
        rows = readable_clips(workspace, store, "train").store_rows
        return TrainingSet(store.folder, rows, targets_of(workspace, scores, listed("consistency")))

    def interrupt() -> None:
        raise KeyboardInterrupt

    in_the_last_of_three_epochs = CountingMeter(2 * 40 + 32, interrupt)
    whole = train(network, data(), tmp_path / "whole", CountingMeter())
    with pytest.raises(KeyboardInterrupt):
        train(network, data(), tmp_path / "broken", in_the_last_of_three_epochs)
    resumed = train(network, data(), tmp_path / "broken", CountingMeter())
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
    workspace, scores = scored_workspace(tmp_path)
    wanted = [*listed("mask"), *listed("random", seeds=(0, 1))]
    targets = targets_of(workspace, scores, wanted)
    weights = targets.targets(np.arange(len(targets.labels))).weight.numpy()
    n_ignored = (weights == 0).sum(axis=1)  # [student, class]
    assert n_ignored.sum() > 0
    assert (n_ignored == n_ignored[0]).all()
    assert not np.array_equal(weights[1], weights[2])
    assert not np.array_equal(weights[0], weights[1])


def test_the_random_control_leaves_classes_alone_that_the_teacher_did_not_score(
    tmp_path: Path,
) -> None:
    workspace, scores = scored_workspace(tmp_path)
    logits = np.array(scores.logits)
    logits[:, 1] = np.nan
    np.save(scores.folder / "logits.npy", logits)
    targets = targets_of(workspace, scores, listed("random"))
    weight = targets.targets(np.arange(len(targets.labels))).weight.numpy()[0]
    is_ignored = (weight == 0).any(axis=0)
    assert not is_ignored[1]
    assert is_ignored[[0, 2]].all()


def test_the_baseline_is_the_student_that_takes_labels_as_they_are() -> None:
    control = listed("random", seeds=(3,))[0]
    assert control.baseline == Student(PROBE, "train", 3)
    assert control.seeded_network.train.seed == 3
    assert control.baseline.keys["discard_percent"] == 0


def test_scores_of_other_clips_are_refused(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    shorter = ScoreFolder(
        scores.folder, scores.clip_ids[1:], scores.class_ids, scores.logits[1:],
        scores.best_patches[1:], scores.out_of_fold, scores.digest,
    )  # fmt: skip
    clips = r"scored 39 clips \w{16}, and not the 40 clips \w{16} of the train split.*earmark score"
    with pytest.raises(EarmarkError, match=clips):
        train_students(workspace, listed("mask"), WHOLE, shorter, engine=ONE)
    others = replace(scores, class_ids=scores.class_ids[::-1])
    classes = r"scored 3 classes \w{16}, and not the 3 classes \w{16}.*earmark score"
    with pytest.raises(EarmarkError, match=classes):
        train_students(workspace, listed("mask"), WHOLE, others, engine=ONE)


def test_training_on_corrected_labels_needs_judgements(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    with pytest.raises(EarmarkError, match="earmark relabel"):
        train_students(workspace, listed("corrected"), WHOLE, scores, engine=ONE)


def test_students_that_are_trained_but_not_scored_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, scores = scored_workspace(tmp_path)
    wanted = with_baseline("mask", of=CNN)
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    before = [np.array(student_scores(workspace, student).logits) for student in wanted]
    shutil.rmtree(workspace.sweep_folder / "scores")
    monkeypatch.setattr("earmark.training.loop.made_ahead", None)  # nobody trains
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    after = [student_scores(workspace, student).logits for student in wanted]
    assert np.array_equal(before, after)


def test_probes_stay_in_their_stack_and_its_card_names_them(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    wanted = with_baseline("mask", "soft", of=PROBE)
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    made_by = [made_by_of(student_scores(workspace, student)) for student in wanted]
    assert len({network for network, _ in made_by}) == 1
    card = read_card(workspace.model_folder(made_by[0][0]))
    assert [card.students[place].name for _, place in made_by] == [one.name for one in wanted]


def made_by_of(scores: ScoreFolder) -> tuple[str, int]:
    assert scores.made_by is not None
    return scores.made_by.network, scores.made_by.student
