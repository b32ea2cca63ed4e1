"""Scoring patches with MobileNetV1: ONNX Runtime against torch, on one thread each, in one run.

    python benchmarks/onnx_scoring.py               # needs onnxruntime: pip install 'earmark[onnx]'

Full width, 527 classes, batches of several sizes (scoring uses 32 on a CPU). The two take turns, so
a busy machine does not tilt the ratio; times are CPU seconds, the ratio is the median over turns.
What making the graph costs is measured too: it says from how many patches on the runtime pays off.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table

from earmark.networks import (
    CACHED_PATCHES,
    Forward,
    Network,
    build_model,
    runtime_forward,
    torch_forward,
)
from earmark.runs import ModelParams, write_json
from machine import processor_name

GOAL = 2.1
N_CLASSES = 527
NETWORKS = {"mobilenet_v1": 256, "resnet50": 32}  # patches scored in a turn
BATCHES = (16, 32, 64, 256)


def cpu_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(architecture: str, n_patches: int, n_turns: int) -> dict[str, Any]:
    network = build_model(ModelParams.model_validate({"architecture": architecture}), N_CLASSES)
    patches = torch.randn(n_patches, 96, 64) - 3
    settle(network, patches[:32])
    by_torch = torch_forward(network)
    runtime_forward(network, (96, 64))  # the first one loads the exporter
    start = time.process_time()
    by_runtime = runtime_forward(network, (96, 64))
    graph_seconds = time.process_time() - start
    difference = float(np.abs(by_torch(patches) - by_runtime(patches)).max())
    sizes = [compare(by_torch, by_runtime, patches, n, n_turns) for n in BATCHES if n <= n_patches]
    used = next(row for row in sizes if row["batch"] == CACHED_PATCHES)
    saved = 1 / used["torch_patches_per_second"] - 1 / used["runtime_patches_per_second"]
    best = [
        max(row[f"{name}_patches_per_second"] for row in sizes) for name in ("torch", "runtime")
    ]
    return {
        "network": architecture,
        "turns": n_turns,
        "batches": sizes,
        "ratio_best_batch_of_each": best[1] / best[0],
        "largest_difference": difference,
        "graph_seconds": graph_seconds,
        "pays_off_from_patches": graph_seconds / saved,
    }


@torch.no_grad()
def settle(network: Network, patches: torch.Tensor) -> None:
    """Give normalisation the statistics of some patches, as training would."""
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # take these statistics in full
    network.train()(patches)
    network.eval()


def compare(
    by_torch: Forward, by_runtime: Forward, patches: torch.Tensor, batch: int, n_turns: int
) -> dict[str, Any]:
    """Let both score the same patches in batches, in turns."""

    def score(forward: Forward) -> float:
        return cpu_seconds(lambda: [forward(part) for part in patches.split(batch)])

    turns = [(score(by_torch), score(by_runtime)) for _ in range(n_turns)]
    torch_seconds, runtime_seconds = (median(column) for column in zip(*turns, strict=True))
    ratios = [theirs / ours for theirs, ours in turns]
    return {
        "batch": batch,
        "torch_patches_per_second": len(patches) / torch_seconds,
        "runtime_patches_per_second": len(patches) / runtime_seconds,
        "ratio": median(ratios),
        "ratio_lowest": min(ratios),
        "ratio_highest": max(ratios),
    }


def show(results: list[dict[str, Any]]) -> None:
    table = Table("network", "batch", "torch, patches/s", "runtime", "ratio", "lowest to highest")
    for row in results:
        for size in row["batches"]:
            table.add_row(
                row["network"],
                str(size["batch"]),
                f"{size['torch_patches_per_second']:.0f}",
                f"{size['runtime_patches_per_second']:.0f}",
                f"{size['ratio']:.2f}",
                f"{size['ratio_lowest']:.2f} to {size['ratio_highest']:.2f}",
            )
    Console().print(table)
    for row in results:
        print(
            f"{row['network']}: {row['ratio_best_batch_of_each']:.2f} with the best batch of each"
            f"{f' (goal {GOAL})' if row['network'] == 'mobilenet_v1' else ''}; logits differ by "
            f"{row['largest_difference']:.0e}; the graph takes {row['graph_seconds']:.1f} s and "
            f"pays off from {row['pays_off_from_patches']:,.0f} patches"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(name, n_patches, options.turns) for name, n_patches in NETWORKS.items()]
    show(results)
    path = Path(__file__).parent / "results" / "onnx_scoring.json"
    machine = {
        "processor": processor_name(),
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    write_json(path, {"machine": machine, "networks": results})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
