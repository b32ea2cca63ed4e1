from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from earmark.compute import SILENT, Meter
from earmark.config import ModelParams, NetworkParams, SpecAugmentParams, TrainParams, read_recipe
from earmark.datasets import Workspace, readable_clips
from earmark.errors import Stopped
from earmark.storage import read_table
from earmark.training import TargetProvider, TrainingSet, join_processes, train, tune_set
from meters import CountingMeter
from scenes import band_workspace, open_store

FEW_THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
METER = SILENT.job("", 0, "")

# 80 patches or 40 clips: the last batch has 2 or 1, so that a third process has nothing to do.
EXACT = TrainParams(epochs=2, batch_patches=39, learning_rate=3e-3, number_type="float64")
EVERYTHING = {"mixup": 0.5, "balanced_sampling": True, "average_share": 0.5, "patience": 3}
STRIPES = SpecAugmentParams(n_time_masks=1, n_band_masks=1)
NETWORKS = [
    NetworkParams(
        name="mobilenet",
        model=ModelParams(width=0.125),
        train=EXACT.model_copy(
            update={"loss": "mean_kept", "specaugment": STRIPES, **EVERYTHING},
        ),
    ),
    NetworkParams(
        name="resnet",
        model=ModelParams(architecture="resnet50", width=0.03),
        train=EXACT.model_copy(update={"epochs": 1}),
    ),
    NetworkParams(
        name="probe",
        model=ModelParams(architecture="attention_probe", n_hidden=8, dropout=0.3),
        train=EXACT.model_copy(update=EVERYTHING),
    ),
]


def learn(
    work: Path, models: Path, networks: list[NetworkParams] = NETWORKS, meter: Meter = METER
) -> None:
    """Train networks on the same clips."""
    workspace = Workspace.open(work)
    store = open_store(workspace)
    clips = readable_clips(workspace, store, "train")
    for network in networks:
        validation = tune_set(workspace, store, network.model)
        data = TrainingSet(store.folder, clips.store_rows, TargetProvider(clips.labels), validation)
        train(network, data, models / network.name, meter)


def learn_as(rank: int, n_processes: int, port: int, work: Path, models: Path) -> None:
    """Train as one of several processes, told what torchrun would tell it."""
    told = {
        "RANK": rank,
        "WORLD_SIZE": n_processes,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in told.items()})
    with join_processes():
        learn(work, models)


def learn_together(n_processes: int, work: Path, models: Path) -> None:
    """Train in processes that are copies of one, so that torch is loaded once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = [(rank, n_processes, port, work, models) for rank in range(n_processes)]
    processes = [context.Process(target=learn_as, args=one) for one in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * n_processes


def assert_alike(folder: Path, other: Path) -> None:
    history, other_history = (read_table(f / "history.csv") for f in (folder, other))
    for name in ("loss", "tune_lwlrap", "tune_loss"):
        assert other_history[name].to_list() == pytest.approx(history[name].to_list(), rel=1e-5)
    weights, other_weights = (load_file(f / "weights.safetensors") for f in (folder, other))
    for name, values in weights.items():
        assert torch.allclose(other_weights[name], values, rtol=1e-4, atol=1e-6), name


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace, and networks that one process trained on it."""
    root = tmp_path_factory.mktemp("alone")
    band_workspace(root / "work")
    learn(root / "work", root)
    return root


def test_several_processes_learn_what_one_does(alone: Path, tmp_path: Path) -> None:
    learn_together(3, alone / "work", tmp_path)
    for network in NETWORKS:
        assert_alike(alone / network.name, tmp_path / network.name)


def begun(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start a training, and return once it is under way."""
    n_before = len(list(folder.glob("tensorboard/*")))
    started = subprocess.Popen(
        command,
        env={**os.environ, **FEW_THREADS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(list(folder.glob("tensorboard/*"))) == n_before and time.monotonic() < deadline:
        time.sleep(0.01)
    return started


def children_of(process: subprocess.Popen[str]) -> list[int]:
    command = ["pgrep", "-P", str(process.pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(line) for line in listed.stdout.split()]


def test_a_run_stopped_by_sigterm_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    work, recipe = tmp_path / "work", tmp_path / "recipe.toml"
    band_workspace(work)
    recipe.write_text(
        '[teacher]\nname = "teacher"\nmodel = { width = 0.125 }\ntrain = { epochs = 8, '
        'batch_patches = 40, number_type = "float64", checkpoint_seconds = 1e6 }\n'
    )
    folder = work / "models" / "teacher"
    verb = ["-m", "earmark", "train", str(work), "--recipe", str(recipe)]
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    teacher = read_recipe(recipe).teacher

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        learn(
            work,
            work / "models",
            [teacher],
            CountingMeter(1, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        )
    started = begun([sys.executable, *together, *verb], folder)
    for pid in children_of(started):
        os.kill(pid, signal.SIGTERM)
    out, told = started.communicate(timeout=120)
    assert started.returncode == 1, told  # torchrun's, as that of every process is 143
    assert "wrote" not in out
    assert "run the same command again to go on" in told
    assert list(folder.glob("checkpoint-*.pt"))
    resumed = CountingMeter()
    learn(work, work / "models", [teacher], resumed)
    assert "resumed" in resumed.notes
    learn(work, tmp_path / "whole", [teacher])
    assert_alike(tmp_path / "whole" / "teacher", folder)
