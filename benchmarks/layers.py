"""A training step with the layers for a CPU against the same network by torch's own layers.

    python benchmarks/layers.py

1. Steps of the networks, loader included, one thread, taken in turn: CPU seconds, the median of the
   pairs' ratios with its quartiles.
2. MobileNetV1 on two cores: two processes of one thread each against one process of two threads,
   patches a second by the clock, which needs the machine for itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console
from rich.table import Table

from earmark.audio import FrameStore
from earmark.networks.layers import on_cpu
from earmark.runs import ModelParams, TrainParams, write_json
from earmark.training import AsLabelled
from machine import processor_name
from training_steps import Learner, make_labels, make_patches, paired, stepper

GOAL = 1.5
N_CLIPS = 200
CASES = {
    "MobileNetV1": (ModelParams(), 64),
    "MobileNetV1, width 0.25": (ModelParams(width=0.25), 64),
    "MobileNetV1, width 0.25, 16 patches": (ModelParams(width=0.25), 16),
    "ResNet-50, width 0.125": (ModelParams(architecture="resnet50", width=0.125), 32),
}


def step_of(store: FrameStore, model: ModelParams, size: int) -> Callable[[int], float]:
    params = TrainParams(epochs=1, batch_patches=size)
    step = stepper(Learner.new(model, store), AsLabelled(make_labels(N_CLIPS)), params)
    return lambda number: step(number).whole


def by_torch(step: Callable[[int], float]) -> Callable[[int], float]:
    """Return a step that passes over the layers for a CPU."""

    def plain(number: int) -> float:
        chosen, on_cpu.is_for = on_cpu.is_for, lambda _: False
        try:
            return step(number)
        finally:
            on_cpu.is_for = chosen

    return plain


def compare_layers(store: FrameStore, n_pairs: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    results = {}
    for name, (model, size) in CASES.items():
        ours, theirs = (step_of(store, model, size) for _ in range(2))
        results[name] = {"batch_patches": size, **paired(by_torch(theirs), ours, n_pairs)}
    return results


def seconds_of(folder: Path, n_threads: int, n_steps: int) -> float:
    """Take steps of MobileNetV1 and return how long they took by the clock."""
    torch.set_num_threads(n_threads)
    step = step_of(FrameStore.open(folder), *CASES["MobileNetV1"])
    step(0)
    start = time.perf_counter()
    for number in range(1, n_steps + 1):
        step(number)
    return time.perf_counter() - start


def compare_cores(folder: Path, n_steps: int) -> dict[str, float]:
    """Return patches a second on two cores, in two processes and in one of two threads."""
    n_patches = n_steps * CASES["MobileNetV1"][1]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        each = pool.starmap(seconds_of, [(folder, 1, n_steps)] * 2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        together = pool.apply(seconds_of, (folder, 2, n_steps))
    return {
        "two_processes": sum(n_patches / one for one in each),
        "two_threads": n_patches / together,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15, help="pairs of steps")
    parser.add_argument("--steps", type=int, default=10, help="steps on two cores")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        store = make_patches(Path(name) / "patches", N_CLIPS)
        results = {
            "machine": {"processor": processor_name(), "torch": torch.__version__},
            "layers": compare_layers(store, options.pairs),
            "two_cores": compare_cores(store.folder, options.steps),
        }
    table = Table("network", "times as fast as by torch's layers", "goal", title="Training steps")
    for name, own in results["layers"].items():
        low, high = own["ratio_quartiles"]
        goal = f"{GOAL}" if name == "MobileNetV1" else ""
        table.add_row(name, f"{own['ratio']:.2f} ({low:.2f} to {high:.2f})", goal)
    Console().print(table)
    cores = results["two_cores"]
    ratio = cores["two_processes"] / cores["two_threads"]
    print(f"two processes against two threads: {ratio:.2f} times the patches a second")
    path = Path(__file__).parent / "results" / "layers.json"
    write_json(path, results)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
