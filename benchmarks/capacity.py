"""Hours, cents and disk for a dataset of any size: the cost model of docs/scaling.md.

    python benchmarks/capacity.py --mobilenet 20000 --resnet 5000   # your GPU's patches/s

The cost of a clip is measured: of decoding in results/front_end.json, of YAMNet's embeddings in
embedding.json, of probes and their scores in growth.json, of flags and counts in scan.json, of
thresholds in thresholds_2467357.json. Machines, their prices and a GPU's speed are assumed: all
of them are in MACHINES and the options, so put your own there (`earmark train` prints clips/s).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
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
SIZES = (1_000, 500_000, 2_500_000, 100_000_000)


@dataclass(frozen=True)
class Machine:
    """What something runs on, and what an hour of it is assumed to cost."""

    name: str
    n_cores: int
    n_gpus: int
    cents_an_hour: float


MACHINES = (
    Machine("laptop", 8, 0, 1.5),  # electricity: 45 W at 33 cents a kWh
    Machine("one GPU machine", 8, 1, 100.0),
    Machine("Ray cluster of 8 nodes", 128, 16, 2_000.0),
)


def finding_seconds(machine: Machine) -> dict[str, float]:
    """Return what a clip of 10 s takes of the clock, stage by stage, from sound to flags.

    Where there is a GPU it computes YAMNet, and decoding decides, on all cores. A fold of the probe
    has one core; flags and counts go through their scores on one core, or as shards on a cluster.
    """
    front_end, growth = read_json(RESULTS / "front_end.json"), read_json(RESULTS / "growth.json")
    heard = read_json(RESULTS / "embedding.json")["speed"]
    decoded = front_end["extraction"]["clips_per_second_1_core"]
    spoken = heard["clips of 10 s a second and core, file to embedding"]
    ms = {row["stage"]: row["cpu_ms_of_one_clip_more"] for row in growth["stages"]}
    n_shards = machine.n_cores if machine.n_gpus > 1 else 1
    return {
        "listening": 1 / (decoded if machine.n_gpus else spoken) / machine.n_cores,
        "probe": ms["score: fit and say"] / 1e3 / min(N_FOLDS, machine.n_cores),
        "flags and counts": scan_seconds() / n_shards,
    }


def scan_seconds() -> float:
    """Return what a clip more takes of a scan of AudioSet's classes, between its larger sizes."""
    sizes = read_json(RESULTS / "scan.json")["sizes"].items()
    (fewer, before), (more, after) = list(sizes)[-2:]
    grown = after["scan_cpu_seconds"] - before["scan_cpu_seconds"]
    return float(grown / (int(more) - int(fewer)))


def print_finding(console: Console) -> None:
    """Print hours and cents from sound to flags, for every size and machine."""
    table = Table("clips", *(f"{one.name}: hours, cents" for one in MACHINES))
    for n_clips in SIZES:
        hours = [sum(finding_seconds(one).values()) * n_clips / 3600 for one in MACHINES]
        pairs = zip(MACHINES, hours, strict=True)
        cells = (f"{each:,.3g} h, {each * one.cents_an_hour:,.2f}" for one, each in pairs)
        table.add_row(f"{n_clips:,}", *cells)
    console.print(table)
    for one in MACHINES:
        shares = finding_seconds(one)
        told = ", ".join(f"{name} {1e3 * each:.3g} ms" for name, each in shares.items())
        console.print(f"a clip on {one.name}: {told}")


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
    console = Console(width=110)
    console.print(table)
    print_finding(console)


if __name__ == "__main__":
    main()
