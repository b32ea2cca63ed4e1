"""The loader's memory with 1,000, 10,000 and 100,000 clips.

    python benchmarks/loader_memory.py

Each size in a process of its own, which reads 300 batches of 256 clips (10 frames of 128, 8 bits,
527 classes) as training does. Memory is what the process owns: pages of the store are mapped, the
operating system's cache, which it takes back at will.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from earmark.audio import FrameStore
from earmark.runs import TrainParams, write_json
from earmark.training import AsLabelled
from training_steps import BATCH_CLIPS, PROBE, loader_of, make_labels, make_store

SIZES = (1_000, 10_000, 100_000)


def measure(folder: Path, n_clips: int) -> dict[str, Any]:
    make_store(folder, n_clips)
    command = [sys.executable, __file__, "--store", str(folder)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    early, late, order = map(float, told)
    return {
        "n_clips": n_clips,
        "own_mb_after_20_batches": early,
        "own_mb_after_300_batches": late,
        "order_of_an_epoch_mb": order,
    }


def tell(folder: Path) -> None:
    """Print this process's megabytes after 20 and after 300 batches, and the order's."""
    store = FrameStore.open(folder)
    params = TrainParams(steps=300, batch_patches=BATCH_CLIPS)
    labels = make_labels(len(store.clip_ids))
    loader, plan = loader_of(PROBE, store, AsLabelled(labels), params)
    sizes = [
        own_mb() for epoch in range(plan.n_epochs) for _ in loader.load_all(plan.batches(epoch))
    ]
    print(sizes[19], sizes[299], 8 * plan.examples_per_epoch / 1e6)


def own_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon"))


def show(rows: list[dict[str, Any]]) -> None:
    table = Table("clips", "after 20 batches", "after 300", "of it the order of an epoch")
    for row in rows:
        table.add_row(
            f"{row['n_clips']:,}",
            f"{row['own_mb_after_20_batches']:.0f} MB",
            f"{row['own_mb_after_300_batches']:.0f} MB",
            f"{row['order_of_an_epoch_mb']:.2f} MB",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.store:
        tell(options.store)
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(Path(folder) / str(n_clips), n_clips) for n_clips in SIZES]
    show(rows)
    path = Path(__file__).parent / "results" / "loader_memory.json"
    write_json(path, rows)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
