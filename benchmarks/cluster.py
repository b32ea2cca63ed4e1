"""Features of 2,000 clips on a Ray cluster against processes on the same cores.

    python benchmarks/cluster.py                  # needs: pip install 'earmark[cluster]'

The cluster is two nodes of one core each on this machine, so both engines have the same two cores;
its start is timed apart. Turns alternate, every turn makes the store anew, and the ratio is taken
turn by turn. Times are by the clock: the machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import ray
from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

from earmark.datasets import extract_frames
from earmark.runs import Engine, LocalEngine, RayEngine, connect, write_json
from front_end import write_flacs

GOAL_AGAINST_LOCAL = 1.5
N_NODES = 2
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}


def start_cluster() -> Cluster:
    # Ray's workers give way to other processes; the local engine's do not.
    head = {**NODE, "_system_config": {"worker_niceness": 0}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(N_NODES - 1):
        cluster.add_node(**NODE)
    connect(cluster.address)
    return cluster


def seconds_of(function: Any, *arguments: Any) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - begun, result


def extract_anew(root: Path, n_clips: int, engine: Engine) -> bytes:
    """Extract frames where there are none; return the first shard's bytes."""
    shutil.rmtree(root / "frames", ignore_errors=True)
    store = extract_frames(write_flacs(root, n_clips), engine=engine)
    assert len(store.clip_ids) == n_clips
    return (store.folder / "shard-00000.npy").read_bytes()


def measure(root: Path, n_clips: int, n_turns: int) -> dict[str, Any]:
    engines: dict[str, Engine] = {"local": LocalEngine(N_NODES), "ray": RayEngine()}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    made = set()
    for _ in range(n_turns):
        for name, engine in engines.items():
            each, shard = seconds_of(extract_anew, root, n_clips, engine)
            seconds[name].append(each)
            made.add(shard)
    assert len(made) == 1, "the engines do not agree on the frames"
    ratios = np.array(seconds["ray"]) / np.array(seconds["local"])
    return {
        "clips": n_clips,
        "seconds": seconds,
        "ray_against_local": ratios.tolist(),
        "median_ratio": float(np.median(ratios)),
    }


def show(results: dict[str, Any]) -> None:
    title = f"Features of {results['clips']:,} clips of 10 s on {N_NODES} cores"
    table = Table("engine", "seconds, turn by turn", "against local", "goal", title=title)
    told = {
        name: ", ".join(f"{each:.1f}" for each in turns)
        for name, turns in results["seconds"].items()
    }
    table.add_row("local", told["local"], "", "")
    table.add_row("ray", told["ray"], f"{results['median_ratio']:.2f} x", f"{GOAL_AGAINST_LOCAL} x")
    table.add_row("start of the cluster", f"{results['start_seconds']:.1f}", "", "")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    start_seconds, cluster = seconds_of(start_cluster)
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), options.clips, options.turns)
    ray.shutdown()
    cluster.shutdown()
    results["start_seconds"] = start_seconds
    show(results)
    path = Path(__file__).parent / "results" / "cluster.json"
    write_json(path, results)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
