"""The same answer twice: with other numbers of workers and threads, and on a lesser processor.

That a run on a Ray cluster equals one on this machine is in compute/test_ray.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.compute import (
    Engine,
    LocalEngine,
)
from earmark.config import (
    CrossFitParams,
    HidingParams,
    ModelParams,
    NetworkParams,
    SceneParams,
    TrainParams,
)
from earmark.datasets import extract_frames, write_scenes
from earmark.flags import flag, thresholds
from earmark.models import load_network
from earmark.training import cross_fit, fold_folders
from kept_processes import KeptProcesses
from noises import content
from processors import NO_AVX2, STAGES, TWO_THREADS, run_stages

SCENES = SceneParams(n_train=32, n_tune=4, n_eval=4, clip_seconds=1.5)
FOLDS = CrossFitParams(n_folds=2)
TEACHER = NetworkParams(
    name="teacher",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=1, batch_patches=16, mixup=0.5),
)
BY_KERNELS = {"a network's forward pass"}
"""What libraries compute by kernels of their choice."""


def answers(root: Path, engine: Engine) -> dict[str, object]:
    """Go from scenes to flags; return the bytes of all that was made on the way."""
    workspace = write_scenes(root, SCENES, HidingParams(), engine=engine)
    extract_frames(workspace, engine=engine)
    scores = cross_fit(workspace, TEACHER, FOLDS, engine=engine)
    networks = [load_network(folder) for folder in fold_folders(workspace, "teacher", FOLDS)]
    labels = workspace.labels.select(np.flatnonzero(workspace.clips["split"] == "train"))
    found = flag(labels, scores.logits, with_chance=False, discard_percent=5.0)
    return {
        "sound": content(root / "audio"),
        "frames": content(root / "frames"),
        "weights": [one.detach().numpy().tobytes() for net in networks for one in net.parameters()],
        "scores": scores.logits.tobytes(),
        "thresholds": thresholds(labels, scores.logits).values.tobytes(),
        "flags": found.write_json(),
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return answers(tmp_path_factory.mktemp("one"), LocalEngine(1))


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_two_threads_answer_as_one(tmp_path: Path, expected: dict[str, object]) -> None:
    found = answers(tmp_path, LocalEngine(1))
    assert [name for name in expected if found[name] != expected[name]] == []


def test_two_workers_answer_as_one(
    tmp_path: Path, expected: dict[str, object], two_processes: KeptProcesses
) -> None:
    found = answers(tmp_path, two_processes)
    assert [name for name in expected if found[name] != expected[name]] == []


def test_one_shard_that_is_left_is_as_the_others(tmp_path: Path) -> None:
    workspace = write_scenes(tmp_path, SCENES, HidingParams())
    extract_frames(workspace)
    whole = content(tmp_path / "frames")
    for name in ("meta.json", "shard-00001.npy"):
        (tmp_path / "frames" / name).unlink()
    extract_frames(workspace, engine=LocalEngine(2))
    assert content(tmp_path / "frames") == whole


@pytest.fixture(scope="module")
def stages_here() -> dict[str, str]:
    return {name: stage() for name, stage in STAGES.items()}


@pytest.mark.parametrize("processor", [NO_AVX2, TWO_THREADS])
def test_a_lesser_processor_makes_the_same_bytes(
    processor: str, stages_here: dict[str, str]
) -> None:
    found = run_stages(processor)
    assert {name for name in STAGES if found[name] != stages_here[name]} <= BY_KERNELS


LOADED_MEANWHILE = """
from earmark.compute.engine import HERE, Task

def learn(meter):
    import torch
    return torch.get_num_threads()

(within,) = HERE.map([Task("learn", learn)])
import torch
print(within, torch.get_num_threads())
"""


def test_a_library_that_is_loaded_meanwhile_keeps_its_threads_for_later() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    script = [sys.executable, "-c", LOADED_MEANWHILE]
    told = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["1", "2"]
