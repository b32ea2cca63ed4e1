from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from earmark.artefacts import read_table
from earmark.errors import EarmarkError
from earmark.losses import Targets
from earmark.metrics import auc_per_class
from earmark.params import ModelParams, NetworkParams, TrainParams
from earmark.progress import SILENT
from earmark.scoring import readable_clips
from earmark.train import (
    AsLabelled,
    TrainingSet,
    epoch_order,
    learning_rate,
    load_network,
    n_examples_in_all,
    train,
)
from earmark.workspace import Workspace
from scenes import CLASS_IDS, band_workspace, open_store

TINY = NetworkParams(
    name="tiny",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=2, batch_patches=16, learning_rate=3e-3, checkpoint_seconds=0),
)
LONGER = TINY.model_copy(update={"train": TINY.train.model_copy(update={"epochs": 10})})
METER = SILENT.job("", 0, "")


def training_set(workspace: Workspace) -> TrainingSet:
    store = open_store(workspace)
    clips = readable_clips(workspace, store, "train")
    return TrainingSet(store.folder, clips.store_rows, AsLabelled(clips.labels))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path / "work")


class CrashError(Exception):
    pass


class CrashingMeter:
    """Stops the run after some patches, as a kill would."""

    def __init__(self, n_patches: int) -> None:
        self.n_left = n_patches

    def advance(self, n_done: int, note: str = "") -> None:
        self.n_left -= n_done
        if self.n_left < 0:
            raise CrashError


def same_weights(first: Path, second: Path) -> bool:
    one, two = (load_file(folder / "weights.safetensors") for folder in (first, second))
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_training_learns_the_bands(workspace: Workspace, tmp_path: Path) -> None:
    params = TINY.train.model_copy(
        update={"epochs": 16, "batch_patches": 8, "checkpoint_seconds": 60.0}
    )
    network = TINY.model_copy(update={"train": params})
    trained = train(network, training_set(workspace), tmp_path / "model", METER)
    history = read_table(tmp_path / "model" / "history.csv")
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    store = open_store(workspace)
    patches = torch.from_numpy(store.patches(np.arange(60), np.zeros(60, int))).float()
    assert workspace.truth is not None
    with torch.inference_mode():
        auc = auc_per_class(workspace.truth.states(), trained(patches).numpy())
    assert auc.mean() > 0.75


def test_the_same_seed_gives_the_same_weights(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("first", "second"):
        train(TINY, training_set(workspace), tmp_path / name, METER)
    assert same_weights(tmp_path / "first", tmp_path / "second")


@pytest.mark.parametrize("n_patches_before", [20, 90])
def test_an_interrupted_run_ends_in_the_same_weights(
    workspace: Workspace, tmp_path: Path, n_patches_before: int
) -> None:
    data = training_set(workspace)
    train(TINY, data, tmp_path / "whole", METER)
    with pytest.raises(CrashError):
        train(TINY, data, tmp_path / "broken", CrashingMeter(n_patches_before))
    assert (tmp_path / "broken" / "checkpoint.pt").exists()
    train(TINY, data, tmp_path / "broken", METER)
    assert same_weights(tmp_path / "whole", tmp_path / "broken")
    assert (tmp_path / "whole" / "history.csv").read_text() == (
        tmp_path / "broken" / "history.csv"
    ).read_text()
    assert not (tmp_path / "broken" / "checkpoint.pt").exists()


def test_a_killed_process_resumes_to_the_same_weights(workspace: Workspace, tmp_path: Path) -> None:
    script = (
        "import sys, test_train as t; from pathlib import Path; from earmark.workspace import *\n"
        "data = t.training_set(Workspace.open(sys.argv[1]))\n"
        "t.train(t.LONGER, data, Path(sys.argv[2]), t.METER)"
    )
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", script, str(workspace.root), str(folder)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent)
    deadline = time.monotonic() + 60
    while not (folder / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "weights.safetensors").exists()
    subprocess.run(command, cwd=Path(__file__).parent, check=True)
    subprocess.run([*command[:-1], str(tmp_path / "whole")], cwd=Path(__file__).parent, check=True)
    assert same_weights(tmp_path / "whole", folder)


def test_a_finished_run_is_found_again(workspace: Workspace, tmp_path: Path) -> None:
    data = training_set(workspace)
    train(TINY, data, tmp_path / "model", METER)
    written = (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns
    train(TINY, data, tmp_path / "model", METER)
    assert (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns == written
    other = TINY.model_copy(update={"train": TINY.train.model_copy(update={"seed": 5})})
    train(other, data, tmp_path / "model", METER)
    assert (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns > written


def test_a_loaded_network_is_the_trained_one(workspace: Workspace, tmp_path: Path) -> None:
    trained = train(TINY, training_set(workspace), tmp_path / "model", METER)
    patches = torch.randn(2, 96, 64)
    with torch.inference_mode():
        assert torch.equal(trained(patches), load_network(tmp_path / "model")(patches))


def test_a_network_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="earmark train"):
        load_network(tmp_path / "nothing")


def test_a_loss_that_explodes_names_the_clips(workspace: Workspace, tmp_path: Path) -> None:
    class Poisoned(AsLabelled):
        def targets(self, rows: np.ndarray) -> Targets:
            told = super().targets(rows)
            return replace(told, weight=told.weight * float("nan"))

    data = training_set(workspace)
    poisoned = TrainingSet(data.frames_folder, data.store_rows, Poisoned(data.supervision.labels))
    with pytest.raises(EarmarkError, match=r"nan at epoch 1, step 1.*clip0"):
        train(TINY, poisoned, tmp_path / "model", METER)


def test_an_epoch_takes_every_patch_once() -> None:
    n_patches = np.array([3, 1, 4])
    clips, patches = epoch_order(n_patches, TrainParams(), epoch=0)
    expected = [(clip, patch) for clip, n in enumerate(n_patches) for patch in range(n)]
    assert sorted(zip(clips.tolist(), patches.tolist(), strict=True)) == expected


def test_patches_per_clip_never_repeat_and_change_with_the_epoch() -> None:
    n_patches = np.array([7, 1, 5, 2] * 5)
    params = TrainParams(patches_per_clip=3)
    epochs = [set(zip(*map(tuple, epoch_order(n_patches, params, e)), strict=True)) for e in (0, 1)]
    for drawn in epochs:
        assert len(drawn) == int(np.minimum(n_patches, 3).sum())
        assert all(0 <= patch < n_patches[clip] for clip, patch in drawn)
    assert epochs[0] != epochs[1]
    assert n_examples_in_all(n_patches, params) == params.epochs * len(epochs[0])


def test_order_depends_on_seed_and_epoch_alone() -> None:
    n_patches = np.full(50, 4)
    first, again = (epoch_order(n_patches, TrainParams(seed=1), 3) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, epoch_order(n_patches, TrainParams(seed=2), 3))


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    params = TrainParams(learning_rate=1.0)
    rates = [learning_rate(params, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[4] == max(rates) == 1.0
    assert rates[-1] < 0.001
    assert np.all(np.diff(rates[4:]) <= 0)
    assert learning_rate(TrainParams(schedule="constant", learning_rate=1e-5), 99, 100) == 1e-5


def test_classes_are_remembered(workspace: Workspace, tmp_path: Path) -> None:
    train(TINY, training_set(workspace), tmp_path / "model", METER)
    assert f'"{CLASS_IDS[0]}"' in (tmp_path / "model" / "meta.json").read_text()
