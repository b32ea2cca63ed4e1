from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.config import ModelParams, NetworkParams, TrainParams
from earmark.datasets import Workspace
from earmark.experiments import (
    BASELINE,
    Student,
    combine,
    parse_strategy,
    student_scores,
    train_students,
)
from earmark.models import load_network, read_card
from earmark.scores import ScoreFolder
from earmark.storage import read_table
from earmark.training import Batch, Loaded, Loader
from scenes import ONE, PROBE, scored_workspace

CNN = NetworkParams(
    name="cnn",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=3, batch_patches=40, learning_rate=1e-2, average_share=0.5),
)
PATIENT = NetworkParams(
    name="patient",
    model=CNN.model,
    train=TrainParams(epochs=6, batch_patches=40, learning_rate=3e-2, patience=1),
)
WHOLE = {"train": 1.0}


def listed(network: NetworkParams, *names: str) -> list[Student]:
    strategies = [parse_strategy(name, [10]) for name in names]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    return combine([network], WHOLE, [0], [(BASELINE, 0.0), *points])


@pytest.mark.parametrize("network", [CNN, PATIENT], ids=["averaged", "patient"])
def test_networks_of_a_stack_are_those_that_they_would_be_alone_and_batches_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: NetworkParams
) -> None:
    wanted = listed(network, "mask", "soft", "consistency")
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
        assert n_loaded["stack"] == 6  # two a pass
        assert n_loaded["alone"] == len(wanted) * 6
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
    train_students(workspace, listed(CNN, "mask"), WHOLE, scores, engine=ONE)
    folders = {path.name: path for path in (tmp_path / "models").glob("cnn-*")}
    assert len(folders) == 3
    (stack,) = folders.keys() - {"cnn-train-seed0-mask0", "cnn-train-seed0-mask10"}
    assert [path.name for path in folders[stack].iterdir()] == ["tensorboard"]


def test_students_that_are_trained_but_not_scored_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, scores = scored_workspace(tmp_path)
    wanted = listed(CNN, "mask")
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    before = [np.array(student_scores(workspace, student).logits) for student in wanted]
    shutil.rmtree(workspace.sweep_folder / "scores")
    monkeypatch.setattr(Loader, "load_all", None)  # nobody trains
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    after = [student_scores(workspace, student).logits for student in wanted]
    assert np.array_equal(before, after)


def test_probes_stay_in_their_stack_and_its_card_names_them(tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    wanted = listed(PROBE, "mask", "soft")
    train_students(workspace, wanted, WHOLE, scores, engine=ONE)
    made_by = [made_by_of(student_scores(workspace, student)) for student in wanted]
    assert len({network for network, _ in made_by}) == 1
    card = read_card(workspace.model_folder(made_by[0][0]))
    assert [card.students[place].name for _, place in made_by] == [one.name for one in wanted]
    assert len(read_table(workspace.model_folder(made_by[0][0]) / "history_by_student.csv")) == 6


def made_by_of(scores: ScoreFolder) -> tuple[str, int]:
    assert scores.made_by is not None
    return scores.made_by.network, scores.made_by.student
