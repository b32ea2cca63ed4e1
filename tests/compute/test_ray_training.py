from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster
from safetensors.numpy import load_file

from earmark.compute import (
    Meter,
    RayEngine,
    Task,
    train_together,
)
from earmark.config import (
    ModelParams,
    NetworkParams,
    TrainParams,
)
from earmark.datasets import Workspace, readable_clips
from earmark.errors import EarmarkError
from earmark.training import TargetProvider, TrainingSet, train, training_task
from scenes import band_workspace, open_store
from tasks import Counter

# Ray Train warns of options of Ray Data, which nobody here has set.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.* is deprecated"),
]

NETWORK = NetworkParams(
    name="net",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=3, batch_patches=16, checkpoint_seconds=0),
)


def killed_once(deed: Path, meter: Meter, **given: object) -> None:
    """Train, and end the second process in the middle of the second epoch."""
    from earmark.training import is_first_process

    if not is_first_process() and not deed.exists():
        meter = _Killer(deed)
    train(**given, meter=meter)


class _Killer:
    def __init__(self, deed: Path) -> None:
        self._deed, self._n_seen = deed, 0

    def advance(self, n_done: int, note: str = "") -> None:
        self._n_seen += n_done > 0
        if self._n_seen == 8:  # of 5 steps in each of 3 epochs
            self._deed.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def refuse(folder: Path, meter: Meter) -> None:
    (folder / f"attempt {len(list(folder.iterdir()))}").touch()
    raise EarmarkError("no clips to train on")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path / "work")


def task_of(workspace: Workspace, folder: Path, function=train, **given: object) -> Task:
    store = open_store(workspace)
    clips = readable_clips(workspace, store, "train")
    data = TrainingSet(store.folder, clips.store_rows, TargetProvider(clips.labels))
    return training_task("net", function, NETWORK, data, store, folder=folder, **given)


def test_a_killed_process_leads_to_the_weights_of_an_uninterrupted_run(
    cluster: Cluster, workspace: Workspace, tmp_path: Path
) -> None:
    counter, engine = Counter(), RayEngine()
    whole = task_of(workspace, tmp_path / "whole")
    train_together(engine, whole, 2, tmp_path / "scratch", counter)
    assert counter.done == {"net": whole.n_units}
    hurt = task_of(workspace, tmp_path / "hurt", killed_once, deed=tmp_path / "deed")
    train_together(engine, hurt, 2, tmp_path / "scratch")
    assert (tmp_path / "deed").exists()
    weights = [load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "hurt")]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    assert not (tmp_path / "scratch").exists()


def test_a_users_mistake_is_told_as_it_is_and_made_once(cluster: Cluster, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    task = Task("net", refuse, {"folder": attempts})
    with pytest.raises(EarmarkError, match=r"^no clips to train on$"):
        train_together(RayEngine(), task, 1, tmp_path / "scratch")
    assert len(list(attempts.iterdir())) == 1
