from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest
import ray
from ray.cluster_utils import Cluster

from clusters import SabotagedEngine, Victim, wait_until
from earmark.audio import part_path
from earmark.compute import (
    LocalEngine,
    Meter,
    RayEngine,
    Task,
)
from earmark.config import (
    ResourceParams,
    TaskResources,
)
from earmark.datasets import Workspace, extract_frames
from earmark.errors import EarmarkError
from earmark.pipeline import run
from noises import PARAMS, content, noisy_workspace
from small_recipe import SMALL
from tasks import Counter, fail, square

pytestmark = pytest.mark.cluster
ENGINE = RayEngine()


def raise_oddly(meter: Meter) -> None:
    meter.advance(0, "clip 7")
    raise ZeroDivisionError("by nothing")


def die(name: str, folder: Path, n_times: int, meter: Meter) -> int:
    """End the process the first times; return how often it was started."""
    n_before = len(list(folder.iterdir()))
    (folder / f"{n_before}").touch()
    meter.advance(0, name)
    if n_before < n_times:
        os.kill(os.getpid(), signal.SIGKILL)
    return n_before + 1


def meet(name: str, folder: Path, n_expected: int, meter: Meter) -> str:
    """Wait for the others, possible only if all run at once; return the node."""
    (folder / name).touch()
    wait_until(lambda: len(list(folder.iterdir())) == n_expected)
    return ray.get_runtime_context().get_node_id()


def meetings(folder: Path, n_expected: int, stage: Literal["train"] | None = None) -> list[Task]:
    folder.mkdir(exist_ok=True)
    given = {"folder": folder, "n_expected": n_expected}
    return [Task("meet", meet, {"name": str(i), **given}, stage=stage) for i in range(n_expected)]


def kill_reports(meter: Meter) -> None:
    """Kill the actor that this task reports to, and report."""
    ray.kill(meter._actor)
    for _ in range(3):
        time.sleep(0.6)
        meter.advance(1)


def test_results_come_in_order_and_progress_is_told(cluster: Cluster) -> None:
    tasks = [Task(f"task {i}", square, {"number": i}) for i in range(5)]
    counter = Counter()
    results = ENGINE.map(tasks, counter)
    assert results == [(i**2, "1") for i in range(5)]  # and each worker has one thread
    assert counter.done == {f"task {i}": 1 for i in range(5)}


def test_all_nodes_take_part(cluster: Cluster, tmp_path: Path) -> None:
    nodes = ENGINE.map(meetings(tmp_path, 2))
    assert len(set(nodes)) == ENGINE.n_workers == 2


def test_no_tasks_no_work(cluster: Cluster) -> None:
    assert ENGINE.map([]) == []


@pytest.mark.slow  # on a busy machine Ray once ended this very process over 200 tasks taken back
def test_a_users_mistake_is_told_as_it_is_and_stops_the_rest(
    cluster: Cluster, tmp_path: Path
) -> None:
    late = [Task("late", die, {"name": "", "folder": tmp_path, "n_times": 0})] * 200
    with pytest.raises(EarmarkError, match=r"^task 3 cannot go on$"):
        ENGINE.map([Task("bad", fail, {"number": 3}), *late])
    assert len(list(tmp_path.iterdir())) < 200


def test_another_error_keeps_its_type_and_names_the_task(cluster: Cluster) -> None:
    with pytest.raises(ZeroDivisionError, match="by nothing") as caught:
        ENGINE.map([Task("share out", raise_oddly)])
    assert "share out" in caught.value.__notes__[0]


def test_a_lost_task_is_started_again_and_the_log_says_so(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task("fragile", die, {"name": "clip 7", "folder": tmp_path, "n_times": 1})
    assert ENGINE.map([task]) == [2]
    (lost,) = [message for message in caplog.messages if "was lost" in message]
    assert "'fragile'" in lost
    assert lost.endswith("; started again (2 of 4)")


def test_a_task_that_always_dies_ends_in_one_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earmark.compute.ray.N_ATTEMPTS", 2)
    task = Task("shard 3", die, {"name": "clip 7", "folder": tmp_path, "n_times": 99})
    with pytest.raises(EarmarkError, match=r"'shard 3' was lost .* 2 times"):
        ENGINE.map([task])
    assert len(list(tmp_path.iterdir())) == 2


def test_the_work_goes_on_without_reports(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    counter = Counter()
    ENGINE.map([Task("quiet", kill_reports, n_units=3)], counter)
    assert counter.done == {"quiet": 3}
    assert any("the work goes on" in message for message in caplog.messages)


def test_parts_of_a_gpu_pack_tasks(cluster: Cluster, tmp_path: Path) -> None:
    quarter = ResourceParams(train=TaskResources(cpus=0.25, gpus=0.25, memory_gb=0.1))
    assert len(RayEngine(resources=quarter).map(meetings(tmp_path, 4, stage="train"))) == 4


def test_an_address_without_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("connection refused")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(EarmarkError, match=r"no Ray cluster.*at ray://there:1 \(connection"):
        RayEngine("ray://there:1").map([Task("never", square)])


def test_features_survive_the_death_of_a_node_in_mid_shard(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That of a worker, in every stage: below."""
    whole, hurt = noisy_workspace(tmp_path / "whole", 12), noisy_workspace(tmp_path / "hurt", 12)
    extract_frames(whole, PARAMS, clips_per_shard=3, engine=LocalEngine(1))
    engine = SabotagedEngine(cluster, "node", tmp_path / "deeds")
    extract_frames(hurt, PARAMS, clips_per_shard=3, engine=engine)
    assert content(hurt.frames_folder) == content(whole.frames_folder)
    assert any("'features, shard" in text for text in caplog.messages if "was lost" in text)


def test_relative_paths_mean_what_they_mean_to_the_driver(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy_workspace(tmp_path / "work", 2)
    monkeypatch.chdir(tmp_path)
    store = extract_frames(Workspace.open("work"), PARAMS, engine=ENGINE)
    assert len(store.clip_ids) == 2


DRIVER = """
import sys
from earmark.datasets.extraction import extract_frames
from earmark.compute.ray import RayEngine, connect
from earmark.datasets.workspace import Workspace
connect(sys.argv[2])
extract_frames(Workspace.open(sys.argv[1]), clips_per_shard=1, engine=RayEngine())
"""


@pytest.mark.slow  # a run that is killed on this machine: tests/benchmarks/test_torture.py
def test_a_killed_driver_finds_its_finished_shards(cluster: Cluster, tmp_path: Path) -> None:
    n_shards = 200  # seconds of work, of which a busy machine may miss the first
    workspace = noisy_workspace(tmp_path, n_shards)
    command = [sys.executable, "-c", DRIVER, str(tmp_path), cluster.address]
    with subprocess.Popen(command) as driver:
        wait_until(lambda: part_path(workspace.frames_folder, 2).exists())
        driver.kill()
    parts = [part_path(workspace.frames_folder, number) for number in range(n_shards)]
    finished = {path: path.stat().st_ino for path in parts if path.exists()}
    assert 0 < len(finished) < n_shards
    extract_frames(workspace, PARAMS, clips_per_shard=1, engine=ENGINE)
    assert {path: path.stat().st_ino for path in finished} == finished


@pytest.fixture(scope="module")
def locally(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("local")
    run(SMALL, root, engine=LocalEngine(1))
    return root


TABLES = (
    "flags/flags.parquet",
    "flags/thresholds.parquet",
    "sweep/results.parquet",
    "sweep/per_class.parquet",
)


def assert_same(root: Path, expected: Path) -> None:
    assert content(root / "frames") == content(expected / "frames")
    logits = "scores/teacher/logits.npy"
    np.testing.assert_array_equal(np.load(root / logits), np.load(expected / logits))
    for name in TABLES:
        assert pl.read_parquet(root / name).equals(pl.read_parquet(expected / name)), name


@pytest.mark.slow
def test_a_run_on_two_nodes_equals_one_on_this_machine(
    cluster: Cluster, tmp_path: Path, locally: Path
) -> None:
    """The next one does as well, and with deaths."""
    run(SMALL, tmp_path, engine=RayEngine())
    assert_same(tmp_path, locally)


@pytest.mark.parametrize("victim", ["worker", pytest.param("node", marks=pytest.mark.slow)])
def test_a_run_survives_a_death_in_every_stage(
    cluster: Cluster,
    tmp_path: Path,
    locally: Path,
    victim: Victim,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run(SMALL, tmp_path / "work", engine=SabotagedEngine(cluster, victim, tmp_path / "deeds"))
    assert_same(tmp_path / "work", locally)
    lost = [message for message in caplog.messages if " was lost (" in message]
    assert len(lost) >= 3
