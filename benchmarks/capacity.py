"""Hours and disk for a train set of any size: the capacity model of docs/scaling.md.

    python benchmarks/capacity.py --mobilenet 20000 --resnet 5000   # your GPU's patches/s

Extraction speed and bytes per clip come from benchmarks/results/front_end.json, the time of
thresholds from thresholds_2467357.json. The speed of a GPU is not measured here: it is an
assumption to be replaced by your own (`earmark train` prints clips/s).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from earmark.runs import PAPER_DISCARD_PERCENTS, read_json

RESULTS = Path(__file__).parent / "results"
TRAIN_SETS = {"tr_small": 506_721, "tr_large": 2_467_357, "100 million": 100_000_000}
N_GPUS = (1, 8, 64)
CORES_PER_GPU = 8
PATCHES_PER_CLIP = 20
N_CLASSES = 527
SCORE_BYTES = N_CLASSES * (4 + 2)
"""A clip's logits in float32 and its best patches in uint16."""
N_FOLDS = 3


def training_hours(n_clips: int, epochs: int, patches_per_second: float) -> float:
    return n_clips * PATCHES_PER_CLIP * epochs / patches_per_second / 3600


def capacity(n_clips: int, speeds: dict[str, float], epochs: int) -> dict[str, float]:
    """Return core-hours, GPU-hours and gigabytes of one train set, for all networks."""
    front_end = read_json(RESULTS / "front_end.json")
    survey = read_json(RESULTS / "thresholds_2467357.json")["survey"]
    per_core = front_end["extraction"]["clips_per_second_1_core"]
    student = {name: training_hours(n_clips, epochs, speed) for name, speed in speeds.items()}
    return {
        "features, core-hours": n_clips / per_core / 3600,
        "thresholds, minutes": survey["seconds"] / 60 * n_clips / TRAIN_SETS["tr_large"],
        **{f"one {name} student, GPU-hours": hours for name, hours in student.items()},
        # Each of the folds is trained on all clips but its own.
        "teachers, GPU-hours": sum(student.values()) * (N_FOLDS - 1),
        "all students, GPU-hours": sum(student.values()) * len(PAPER_DISCARD_PERCENTS),
        "frames, GB": n_clips * front_end["patches"]["bytes_per_10_s_clip"] / 1e9,
        "scores, GB": n_clips * SCORE_BYTES * len(speeds) / 1e9,
    }


def wall_hours(needs: dict[str, float], n_gpus: int) -> float:
    """Return hours by the clock: features on the GPUs' cores, then teachers, then students.

    A student or a fold of a teacher has one GPU, so the longest of them is the least there is.
    """
    longest = needs["one ResNet-50 student, GPU-hours"]
    fold = longest * (N_FOLDS - 1) / N_FOLDS
    return (
        needs["features, core-hours"] / (n_gpus * CORES_PER_GPU)
        + max(needs["teachers, GPU-hours"] / n_gpus, fold)
        + max(needs["all students, GPU-hours"] / n_gpus, longest)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mobilenet", type=float, default=20_000, help="trained patches/s")
    parser.add_argument("--resnet", type=float, default=5_000, help="trained patches/s")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    speeds = {"MobileNetV1": options.mobilenet, "ResNet-50": options.resnet}
    needs = {name: capacity(n, speeds, options.epochs) for name, n in TRAIN_SETS.items()}
    table = Table("", *TRAIN_SETS, title=f"{options.epochs} epochs, {speeds} patches/s")
    for row in next(iter(needs.values())):
        table.add_row(row, *(f"{each[row]:,.1f}" for each in needs.values()))
    for n_gpus in N_GPUS:
        hours = (f"{wall_hours(each, n_gpus):,.1f}" for each in needs.values())
        table.add_row(f"all of it on {n_gpus} GPUs, hours", *hours)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
