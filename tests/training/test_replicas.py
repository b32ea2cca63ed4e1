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
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from earmark.datasets.clip_sets import readable_clips
from earmark.datasets.workspace import Workspace
from earmark.errors import Stopped
from earmark.runs.artefacts import read_table
from earmark.runs.parameters import ModelParams, NetworkParams, SpecAugmentParams, TrainParams
from earmark.runs.progress import SILENT, Meter
from earmark.runs.recipe import read_recipe
from earmark.training import replicas
from earmark.training.lessons import AsLabelled, TrainingSet
from earmark.training.loop import train
from earmark.training.teacher import tune_set
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


class Notes:
    """A meter that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def advance(self, n_done: int, note: str = "") -> None:
        self.notes.append(note)


class Terminated:
    """A meter that a scheduler tells to stop after the first step."""

    def advance(self, n_done: int, note: str = "") -> None:
        if n_done:
            os.kill(os.getpid(), signal.SIGTERM)


def learn(
    work: Path, models: Path, networks: list[NetworkParams] = NETWORKS, meter: Meter = METER
) -> None:
    """Train networks on the same clips."""
    workspace = Workspace.open(work)
    store = open_store(workspace)
    clips = readable_clips(workspace, store, "train")
    for network in networks:
        exam = tune_set(workspace, store, network.model)
        data = TrainingSet(store.folder, clips.store_rows, AsLabelled(clips.labels), exam)
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
    with replicas.joined():
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
        'batch_patches = 40, number_type = "float64", checkpoint_seconds = 1e9 }\n'
    )
    folder = work / "models" / "teacher"
    verb = ["-m", "earmark", "train", str(work), "--recipe", str(recipe)]
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    teacher = read_recipe(recipe).teacher
    with pytest.raises(Stopped):
        learn(work, work / "models", [teacher], Terminated())
    started = begun([sys.executable, *together, *verb], folder)
    for pid in children_of(started):
        os.kill(pid, signal.SIGTERM)
    out, told = started.communicate(timeout=120)
    assert started.returncode == 0, told  # torchrun's is 0 if that of every process is
    assert "wrote" not in out
    assert "run the same command again to go on" in told
    assert (folder / "checkpoint.pt").exists()
    resumed = Notes()
    learn(work, work / "models", [teacher], resumed)
    assert "resumed" in resumed.notes
    learn(work, tmp_path / "whole", [teacher])
    assert_alike(tmp_path / "whole" / "teacher", folder)


def test_a_process_alone_has_the_whole_batch() -> None:
    assert (replicas.n_processes(), replicas.rank(), replicas.is_first()) == (1, 0, True)
    assert replicas.share(7) == slice(0, 7)
    assert replicas.first_says("me") == "me"
    values = torch.ones(3)
    assert replicas.summed(values) is values
    network = nn.Sequential(nn.BatchNorm2d(3))
    replicas.shared_statistics(network)
    assert type(network[0]) is nn.BatchNorm2d


@given(n_examples=st.integers(0, 50), n_processes=st.integers(1, 9))
def test_shares_are_even_and_cover_the_batch(n_examples: int, n_processes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "n_processes", lambda: n_processes)
        shares = []
        for rank in range(n_processes):
            patch.setattr(replicas, "rank", lambda rank=rank: rank)
            shares.append(range(n_examples)[replicas.share(n_examples)])
    assert [place for share in shares for place in share] == list(range(n_examples))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_shared_batch_normalisation_alone_is_torchs() -> None:
    torch.manual_seed(0)
    plain = nn.BatchNorm2d(4).double()
    with torch.no_grad():
        plain.weight.copy_(torch.rand(4))
    shared = replicas.SharedBatchNorm2d.like(nn.BatchNorm2d(4).double())
    shared.load_state_dict(plain.state_dict())
    images = [torch.randn(5, 4, 3, 2, dtype=torch.float64) * 3 + 7 for _ in range(3)]
    for image in images:
        first, second = image.clone().requires_grad_(), image.clone().requires_grad_()
        one, two = plain(first), shared(second)
        assert torch.allclose(one, two)
        (one**3).sum().backward()
        (two**3).sum().backward()
        assert torch.allclose(first.grad, second.grad)
    for name, values in plain.state_dict().items():
        assert torch.allclose(values, shared.state_dict()[name]), name
    plain.eval(), shared.eval()
    assert torch.allclose(plain(images[0]), shared(images[0]))
