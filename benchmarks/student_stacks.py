"""A stack of MobileNetV1 students against the same students one by one: time and memory.

    python benchmarks/student_stacks.py

Students that ignore labels at the paper's operating points train for some steps through the public
loop. In a stack they share every batch that is read, and go through it one after another; the
rival beside it holds all their activations at once and goes backwards through them together. Each
way has a process of its own and is repeated in turn; memory is the most that the process owned.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
from rich.console import Console
from rich.table import Table

from earmark.audio import FrameStore
from earmark.networks import n_students
from earmark.runs import ModelParams, NetworkParams, TrainParams, write_json
from earmark.training import Loader, TrainingSet
from earmark.training import loop as loop
from training import METER
from training_steps import make_labels, make_masks, make_patches

N_CLIPS = 64
WAYS = ("one by one", "in a stack", "all at once")
"""The last is the rival: a stack that keeps the activations of all students."""


def measure(folder: Path, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train the students in a process of its own."""
    sizes = {name: getattr(options, name) for name in ("students", "steps", "batch")}
    given = {"way": way, "folder": folder, **sizes}
    command = [sys.executable, __file__, *(f"--{name}={value}" for name, value in given.items())]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {"way": way, **json.loads(told)}


def run(way: str, options: argparse.Namespace) -> None:
    """Train the students in one way, and print what it took."""
    store = FrameStore.open(options.folder / "frames")
    treated = make_masks(options.folder, make_labels(N_CLIPS))
    treated = treated.of(treated.told[: options.students])
    n_read = _counted_batches()
    if way == "all at once":
        loop.parts_of = lambda network: [(slice(0, n_students(network)), network)]
    groups = [treated.of([one]) for one in treated.told] if way == "one by one" else [treated]
    params = TrainParams(steps=options.steps, batch_patches=options.batch, checkpoint_seconds=1e9)
    network = NetworkParams(name="student", model=ModelParams(), train=params)
    cpu, wall = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as models:
        for number, group in enumerate(groups):
            data = TrainingSet(store.folder, np.arange(N_CLIPS), group)
            loop.train(network, data, Path(models) / str(number), METER)
    took = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    print(json.dumps({**took, "most_mb": _most_mb(), "batches_read": len(n_read)}))


def _counted_batches() -> list[int]:
    """Return a list that grows by one with every batch that is read from now on."""
    load, counted = Loader.load, []

    def load_and_count(self: Loader, batch: Any) -> Any:
        counted.append(batch.step)
        return load(self, batch)

    Loader.load = load_and_count
    return counted


def _most_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each way's medians, and its ratios to one by one in the same round."""
    found = []
    for way in WAYS:
        own, base = ([row for row in rows if row["way"] == name] for name in (way, WAYS[0]))
        pairs = list(zip(own, base, strict=True))
        ratios = [one["cpu_seconds"] / other["cpu_seconds"] for one, other in pairs]
        found.append(
            {
                "way": way,
                "cpu_seconds": float(np.median([row["cpu_seconds"] for row in own])),
                "cpu_ratio": float(np.median(ratios)),
                "cpu_ratio_range": [min(ratios), max(ratios)],
                "most_mb": float(np.median([row["most_mb"] for row in own])),
                "batches_read": own[0]["batches_read"],
            }
        )
    return found


def show(found: list[dict[str, Any]], title: str) -> None:
    table = Table("way", "CPU seconds", "of one by one", "most memory", "batches read", title=title)
    for row in found:
        low, high = row["cpu_ratio_range"]
        table.add_row(
            row["way"],
            f"{row['cpu_seconds']:.1f}",
            f"{row['cpu_ratio']:.2f} ({low:.2f} to {high:.2f})",
            f"{row['most_mb']:,.0f} MB",
            str(row["batches_read"]),
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=6)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        run(options.way, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_patches(Path(folder) / "frames", N_CLIPS)
        rounds = itertools.product(range(options.repeats), WAYS)
        rows = [measure(Path(folder), way, options) for _, way in rounds]
    found = summary(rows)
    title = f"{options.students} MobileNetV1, {options.steps} steps of {options.batch} patches"
    show(found, title)
    path = Path(__file__).parent / "results" / "student_stacks.json"
    write_json(path, {"title": title, "n_repeats": options.repeats, "ways": found})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
