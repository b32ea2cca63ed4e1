"""A Ray cluster of several nodes on this machine, and ways to hurt it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import ray
from ray.cluster_utils import Cluster

from earmark.compute import SILENT, Meter, Progress, RayEngine, Task, connect

NODE = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 100_000_000}

HEAD = {
    **NODE,
    "include_dashboard": False,
    "_system_config": {
        # A dead node is missed after three seconds instead of fifteen.
        "health_check_period_ms": 1_000,
        "health_check_failure_threshold": 3,
        "worker_niceness": 0,  # or tests starve on a busy machine
    },
}

Victim = Literal["worker", "node"]


@contextmanager
def small_cluster() -> Iterator[Cluster]:
    """Start a head of one core, and connect this process to it."""
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        connect(cluster.address)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def restore(cluster: Cluster, n_nodes: int = 2) -> None:
    """Add nodes of one core until there are so many alive."""
    while _n_alive() < n_nodes:
        cluster.add_node(**NODE)
    wait_until(lambda: ray.cluster_resources().get("CPU") == n_nodes)


def _n_alive() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def wait_until(is_true: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


@dataclass(frozen=True)
class SabotagedEngine:
    """A cluster on which a worker or a node is killed in mid-task, once in each stage."""

    cluster: Cluster
    victim: Victim
    folder: Path

    @property
    def n_workers(self) -> int:
        return RayEngine().n_workers

    def map(self, tasks: Sequence[Task], progress: Progress = SILENT) -> list[Any]:
        if tasks[0].stage is None:
            return RayEngine().map(tasks, progress)
        restore(self.cluster)
        self.folder.mkdir(exist_ok=True)
        deed = self.folder / f"{len(list(self.folder.iterdir()))}.done"
        given = {"victim": self.victim, "deed": deed}
        doomed = [replace(t, function=_sabotaged, arguments={"task": t, **given}) for t in tasks]
        results = RayEngine().map(doomed, progress)
        if self.victim == "node":  # whose death is noticed later than that of its tasks
            wait_until(lambda: _n_alive() == 1)
        return results


def _sabotaged(task: Task, victim: Victim, deed: Path, meter: Meter) -> Any:
    if victim == "node" and _is_head() and not deed.exists():
        wait_until(deed.exists)  # until the other node has taken a task, and died of it
    saboteur = _Saboteur(meter, victim, deed, task.n_units)
    return task.function(**task.arguments, meter=saboteur)


def _is_head() -> bool:
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return "node:__internal_head__" in node["Resources"]


class _Saboteur:
    """Kills when half of a task is done, unless the deed is done."""

    def __init__(self, meter: Meter, victim: Victim, deed: Path, n_units: int) -> None:
        self._meter, self._victim, self._deed = meter, victim, deed
        self._n_units, self._n_done = n_units, 0

    def advance(self, n_done: int, note: str = "") -> None:
        self._meter.advance(n_done, note)
        self._n_done += n_done
        if 2 * self._n_done >= self._n_units and not self._deed.exists():
            self._deed.touch()
            if self._victim == "node":
                _kill_node()
            os.kill(os.getpid(), signal.SIGKILL)


def _kill_node() -> None:
    """Kill the raylet whose child this worker is, and all its other children: a power cut."""
    raylet = os.getppid()
    listings = Path(f"/proc/{raylet}/task").glob("*/children")
    children = " ".join(listing.read_text() for listing in listings)
    os.kill(raylet, signal.SIGKILL)
    for child in map(int, children.split()):
        if child != os.getpid():
            os.kill(child, signal.SIGKILL)
