from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.compute import SILENT, Engine, LocalEngine, Progress, Task
from earmark.config import ModelParams, NetworkParams, SweepParams, TrainParams
from earmark.datasets import Workspace, readable_clips
from earmark.errors import EarmarkError
from earmark.experiments import (
    Student,
    n_within,
    student_scores,
    students_of_sweep,
    train_students,
)
from earmark.experiments.stacks import stacks
from earmark.models import cost, load_network, read_card
from earmark.scores import ScoreFolder
from earmark.storage import read_table
from earmark.training import Batch, Loaded, Loader, TrainingSet, train
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


def test_students_of_one_network_and_seed_train_in_one_stack() -> None:
    params = SweepParams(discard_percents=(0, 1), seeds=(0, 1), random_control_percents=(1,))
    groups = stacks(students_of_sweep([PROBE, CNN], params), n_classes=3)
    assert [len(group) for group in groups] == [3, 3, 3, 3]
    assert all(group[0].point == 0 for group in groups)
    for group in groups:
        assert len({(one.network.name, one.seed) for one in group}) == 1


def test_students_of_one_loss_stand_together_in_a_stack() -> None:
    (stack,) = stacks(listed("splc", "mask", "em@0.1,0.2", "soft"), n_classes=3)
    assert [one.strategy.loss for one in stack] == ["bce", "bce", "em", "em", "splc"]


def test_a_stack_of_networks_keeps_within_its_memory_and_leaves_no_worker_idle() -> None:
    wanted = students_of_sweep(
        [PROBE, CNN], SweepParams(discard_percents=tuple(range(7)), random_control_percents=())
    )
    one_gb = 20 * cost(CNN.model, 3).n_parameters / 1e9
    for room, n_cuts, expected in [
        (7.5, 1, [7]),
        (3.5, 1, [2, 2, 3]),
        (0.5, 1, [1] * 7),  # a student that is alone needs what it needs
        (7.5, 2, [3, 4]),
        (3.5, 4, [1, 2, 2, 2]),
        (7.5, 99, [1] * 7),
    ]:
        groups = stacks(wanted, 3, stack_gb=room * one_gb, n_cuts=n_cuts)
        assert [len(group) for group in groups] == [7, *expected], (room, n_cuts)
        assert {one for group in groups for one in group} == set(wanted)


def test_the_papers_sweep_of_probes_is_two_stacks_for_two_cores() -> None:
    eighteen = SweepParams(discard_percents=tuple(range(18)), random_control_percents=(1,))
    assert [len(group) for group in stacks(students_of_sweep([PROBE], eighteen), 3)] == [9, 10]


def test_a_networks_room_counts_what_its_training_keeps() -> None:
    paper = NetworkParams(name="x", model=ModelParams(architecture="resnet50"))
    n_bytes = 4 * cost(paper.model, 527).n_parameters
    for changes, n_copies in [({}, 4), ({"average_share": 0.5}, 5), ({"patience": 3}, 6)]:
        network = paper.model_copy(update={"train": TrainParams.model_validate(changes)})
        assert n_within(10.0, network, 527) == int(10e9 // (n_copies * n_bytes))
    assert n_within(4.0, paper, 527) == 10
    assert n_within(0.001, paper, 527) == 1


@dataclass(frozen=True)
class Elsewhere:
    """An engine that remembers what it was to do; told to be a cluster, or so many workers here."""

    labels: list[str] = field(default_factory=list)
    n_workers: int = 1

    def map(self, tasks: Sequence[Task], progress: Progress = SILENT) -> list[object]:
        self.labels.extend(task.label for task in tasks)
        return ONE.map(tasks, progress)


class Here(Elsewhere, LocalEngine):
    pass


@pytest.mark.parametrize(
    ("engine", "n_tasks"), [(Here(n_workers=1), 1), (Here(n_workers=2), 2), (Elsewhere(), 3)]
)
def test_students_are_stacked_as_far_as_no_worker_stands_idle(
    tmp_path: Path, engine: Engine, n_tasks: int
) -> None:
    workspace, scores = scored_workspace(tmp_path)
    wanted = students_of_sweep(
        [CNN, PROBE], SweepParams(discard_percents=(0, 5, 10), random_control_percents=())
    )
    train_students(workspace, wanted, WHOLE, scores, engine=engine)
    *networks, probes = engine.labels
    assert len(networks) == n_tasks
    assert all(name.startswith("cnn-train-seed0-") for name in networks)
    assert len(read_card(workspace.model_folder(probes)).students) == 3
    for student in wanted[:3]:
        assert read_card(workspace.model_folder(student.name)).n_students == 1


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


class StopAfter:
    """A meter that breaks off a training, as a killed process would."""

    def __init__(self, n_steps: int) -> None:
        self.n_left = n_steps

    def advance(self, n_done: int, note: str = "") -> None:
        self.n_left -= n_done > 0
        if self.n_left < 0:
            raise KeyboardInterrupt


def test_what_a_loss_remembers_survives_an_interrupt(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    store = open_store(workspace)
    often = PROBE.train.model_copy(update={"checkpoint_seconds": 0, "epochs": 3})
    network = PROBE.model_copy(update={"train": often})

    def data() -> TrainingSet:
        rows = readable_clips(workspace, store, "train").store_rows
        return TrainingSet(store.folder, rows, targets_of(workspace, scores, listed("consistency")))

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


@pytest.mark.parametrize("network", [CNN, PATIENT], ids=["averaged", "patient"])
def test_networks_of_a_stack_are_those_that_they_would_be_alone_and_batches_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: NetworkParams
) -> None:
    wanted = with_baseline("mask", "soft", "consistency", of=network)
    load, n_loaded = Loader.load, Counter[str]()

    def counted(self: Loader, batch: Batch) -> Loaded:
        n_loaded[name] += 1
        return load(self, batch)

    monkeypatch.setattr(Loader, "load", counted)
    workspaces = {}
    for name, groups in (("stack", [wanted]), ("alone", [[student] for student in wanted])):
        workspaces[name], scores = scored_workspace(tmp_path / name)
        n_loaded[name] = 0  # the teacher's do not count
        for group in groups:
            train_students(workspaces[name], group, WHOLE, scores, engine=ONE)
    if not network.train.patience:
        assert n_loaded["stack"] == 4  # two a pass
        assert n_loaded["alone"] == len(wanted) * 4
    for student in wanted:
        for left, right in zip(*(contents(w, student) for w in workspaces.values()), strict=True):
            assert left == right
    first, *others = (last_mean(workspaces["stack"], student) for student in wanted[:3])
    assert not any(torch.equal(first, mean) for mean in others)


def contents(workspace: Workspace, student: Student) -> list[object]:
    """Return a student's weights and scores, byte by byte, and the history but for its times."""
    scores = student_scores(workspace, student)
    folder = workspace.model_folder(student.name)
    files = (folder / "weights.safetensors", folder / "meta.json", folder / "params.json")
    arrays = (scores.folder / name for name in ("logits.npy", "best_patches.npy", "meta.json"))
    history = read_table(folder / "history.csv").drop("clips_per_second", "seconds")
    return [*(path.read_bytes() for path in (*files, *arrays)), history.rows(named=True)]


def last_mean(workspace: Workspace, student: Student) -> torch.Tensor:
    """Return what batch normalisation remembers before the head."""
    state = load_network(workspace.model_folder(student.name)).state_dict()
    return next(values for name, values in reversed(state.items()) if "running_mean" in name)


def test_a_stacks_folder_keeps_the_events_alone(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    train_students(workspace, with_baseline("mask", of=CNN), WHOLE, scores, engine=ONE)
    folders = {path.name: path for path in (tmp_path / "models").glob("cnn-*")}
    assert len(folders) == 3
    (stack,) = folders.keys() - {"cnn-train-seed0-mask0", "cnn-train-seed0-mask10"}
    assert [path.name for path in folders[stack].iterdir()] == ["tensorboard"]


def test_students_that_are_trained_but_not_scored_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, scores = scored_workspace(tmp_path)
    wanted = with_baseline("mask", of=CNN)
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    before = [np.array(student_scores(workspace, student).logits) for student in wanted]
    shutil.rmtree(workspace.sweep_folder / "scores")
    monkeypatch.setattr(Loader, "load_all", None)  # nobody trains
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
    assert len(read_table(workspace.model_folder(made_by[0][0]) / "history_by_student.csv")) == 6


def made_by_of(scores: ScoreFolder) -> tuple[str, int]:
    assert scores.made_by is not None
    return scores.made_by.network, scores.made_by.student
