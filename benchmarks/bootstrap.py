"""Bootstrap intervals: do they cover what they promise, and what do they cost?

    python benchmarks/bootstrap.py                 # coverage on simulated data, about 3 minutes
    python benchmarks/bootstrap.py --timing        # 18 students, 20,371 x 527, 1,000 resamples

Coverage is how often a 90 % interval holds the population's number, which is measured on 200,000
clips. The rival is the percentile interval on the same resamples. Timing runs the very code of a
sweep on a made-up workspace, in two processes, and traces the memory of all of them together; it
goes by the processors' seconds, and holds them against one plain evaluation of the same scores.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from earmark.audio import write_store
from earmark.datasets import Workspace, write_dataset
from earmark.experiments import Basis, Student, mark_students, students_of_sweep
from earmark.labels import LabelSet, Ontology
from earmark.metrics import (
    BOOTSTRAP_METRICS,
    Draws,
    bootstrap,
    evaluate,
    resample_weights,
    with_seeds,
)
from earmark.runs import LocalEngine, NetworkParams, SweepParams, read_json, write_json
from earmark.scores import ScoreFolder, logits_of, write_score_folder

GOAL_CPU_SECONDS, GOAL_MB = 120.0, 1_000.0
"""The goal is 60 s on two cores."""

N_CLASSES = 6


@dataclass(frozen=True)
class Coverage:
    """How often intervals of one kind held the truth, beside the percentile interval's."""

    metric: str
    n_clips: int
    positives_per_class: str
    what: str
    centred: float
    percentile: float


@dataclass(frozen=True)
class SeedCoverage:
    """How often intervals of a mean over seeds held the truth, beside intervals over clips only."""

    n_seeds: int
    sd_between_seeds: float
    clips_and_seeds: float
    clips_only: float


@dataclass(frozen=True)
class Timing:
    """What the bootstrap of a sweep cost."""

    n_clips: int
    n_classes: int
    n_resamples: int
    n_students: int
    n_processes: int
    wall_seconds: float
    cpu_seconds: float
    peak_mb: float
    bootstrap_cpu_seconds: float
    """Of one student's scores, without reading them and without the controls."""
    evaluation_cpu_seconds: float
    """Of the same scores, once and without resamples."""


def simulate(
    n_clips: int, random: np.random.Generator, priors: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float64], NDArray[np.float64]]:
    """Return states, and scores of a baseline and of a student that separates a little better."""
    shape = (n_clips, len(priors))
    is_positive = random.random(shape) < priors
    states = np.where(is_positive, 1, np.where(random.random(shape) < 0.2, -1, 0))
    shared, own = random.normal(size=shape), random.normal(size=shape)
    separation = np.linspace(1.0, 2.0, len(priors))
    better = 0.9 * shared + 0.44 * own + (separation + 0.2) * is_positive
    return states.astype(np.int8), shared + separation * is_positive, better


def measure_coverage(n_clips: int, n_samples: int, n_resamples: int) -> list[Coverage]:
    """Draw samples of clips, and count how often their intervals hold the population's numbers."""
    priors = np.geomspace(0.05, 0.3, N_CLASSES)
    states, *both = simulate(200_000, np.random.default_rng(0), priors)
    truth = [evaluate(states, scores).overall for scores in both]
    hits: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for seed in range(n_samples):
        states, *both = simulate(n_clips, np.random.default_rng(1_000 + seed), priors)
        weights = resample_weights(n_clips, n_resamples, seed)
        overall = [evaluate(states, scores).overall for scores in both]
        resamples = [bootstrap(states, scores, weights) for scores in both]
        for metric in BOOTSTRAP_METRICS:
            base, better = (Draws(overall[i][metric], resamples[i][metric]) for i in (0, 1))
            gain = truth[1][metric] - truth[0][metric]
            hits.setdefault((metric, "value"), []).append(_hits(base, truth[0][metric]))
            hits.setdefault((metric, "paired gain"), []).append(_hits(better - base, gain))
    positives = f"{n_clips * priors[0]:.0f}-{n_clips * priors[-1]:.0f}"
    return [
        Coverage(metric, n_clips, positives, what, *map(float, np.mean(found, axis=0)))
        for (metric, what), found in hits.items()
    ]


def _hits(draws: Draws, truth: float) -> tuple[bool, bool]:
    """Tell whether the centred and the percentile interval hold the truth."""
    low, high = draws.interval()[1:]
    ends = np.quantile(draws.resamples, [0.05, 0.95])
    return bool(low <= truth <= high), bool(ends[0] <= truth <= ends[1])


def measure_seed_coverage(n_seeds: int, between: float, n_samples: int) -> SeedCoverage:
    """Draw runs with effects of seed, clip and both, and count how often 0 is held."""
    n_clips, hits = 200, []
    for sample in range(n_samples):
        random = np.random.default_rng(sample)
        effects = random.normal(0, between, n_seeds)
        clips = random.normal(0, 0.3, n_clips) + random.normal(0, 0.2, (n_seeds, n_clips))
        clips += effects[:, None]
        weights = resample_weights(n_clips, 300, sample) / n_clips
        runs = [Draws(float(own.mean()), weights @ own) for own in clips]
        both = with_seeds(runs, sample)
        only = Draws(both.value, np.mean([run.resamples for run in runs], axis=0))
        hits.append([_hits(draws, 0.0)[0] for draws in (both, only)])
    return SeedCoverage(n_seeds, between, *map(float, np.mean(hits, axis=0)))


def make_workspace(root: Path, n_clips: int, n_classes: int) -> tuple[Workspace, list[Student]]:
    """Write a workspace with the scores of 18 students, all of them files of one matrix."""
    random = np.random.default_rng(0)
    priors = np.clip(2.5 / np.arange(1, n_classes + 1) / 7, 3 / n_clips, 0.9)
    splits = ["eval"] * n_clips + ["tune"] * 500 + ["train"] * 500
    clip_ids = [f"clip{i}" for i in range(len(splits))]
    shape = (len(splits), n_classes)
    is_positive = random.random(shape, np.float32) < priors
    is_asked = random.random(shape, np.float32) < 7 / n_classes
    states = np.where(is_positive, 1, np.where(is_asked, -1, 0)).astype(np.int8)
    class_ids = [f"class{i}" for i in range(n_classes)]
    frame = np.zeros((1, 4), np.float16)
    frames = ((clip_id, frame) for clip_id in clip_ids)
    write_store(root / "frames", frames, patch_frames=1, patch_hop_frames=1)
    nothing = [None] * len(splits)
    clips = pl.DataFrame(
        {"clip_id": clip_ids, "audio": nothing, "start_seconds": nothing, "end_seconds": nothing,
         "split": splits, "source": clip_ids}
    )  # fmt: skip
    labels = LabelSet.from_dense(states, clip_ids, class_ids)
    workspace = write_dataset(root, clips, Ontology(tuple(class_ids)), labels)
    logits = random.standard_normal(shape, np.float32) + np.float32(2.5) * is_positive
    params = SweepParams(random_control_percents=())  # the paper's 18 points, and no more
    wanted = students_of_sweep([NetworkParams(name="student")], params)
    first = workspace.student_scores_folder(wanted[0].name)
    best = np.zeros(shape, np.uint16)
    write_score_folder(
        first, labels.clip_ids, class_ids, logits, best, out_of_fold=True, digest="x"
    )
    for student in wanted[1:]:
        (first.parent / student.name).symlink_to(first, target_is_directory=True)
    return workspace, wanted


class MemoryWatch(threading.Thread):
    """Adds up the resident memory of this process and its children, twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_mb, self.is_over = 0.0, threading.Event()

    def run(self) -> None:
        """Watch until it is over."""
        while not self.is_over.wait(0.5):
            self.peak_mb = max(self.peak_mb, _resident_mb(os.getpid()))


def _resident_mb(process: int) -> float:
    """Return the proportional memory of a process and its descendants (shared pages once)."""
    total = 0.0
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return total
    return total + sum(_resident_mb(int(child)) for child in children)


def time_sweep(n_clips: int, n_classes: int, n_resamples: int, n_processes: int) -> Timing:
    with tempfile.TemporaryDirectory() as folder:
        workspace, wanted = make_workspace(Path(folder), n_clips, n_classes)
        watch = MemoryWatch()
        watch.start()
        start, cpu = time.perf_counter(), _cpu_seconds()
        basis = Basis("eval", "given", n_resamples)
        mark_students(workspace, wanted, [basis], engine=LocalEngine(n_processes))
        took = time.perf_counter() - start, _cpu_seconds() - cpu
        watch.is_over.set()
        watch.join()
        alone = _time_one(workspace, wanted[0], n_resamples)
    sizes = (n_clips, n_classes, n_resamples, len(wanted), n_processes)
    return Timing(*sizes, *took, watch.peak_mb, *alone)


def _time_one(workspace: Workspace, student: Student, n_resamples: int) -> tuple[float, float]:
    """Return the CPU seconds of one student's bootstrap and of its plain evaluation."""
    is_eval = (workspace.clips["split"] == "eval").to_numpy()
    states = workspace.labels.states(np.flatnonzero(is_eval))
    folder = ScoreFolder.open(workspace.student_scores_folder(student.name))
    logits = logits_of(folder, workspace.clips["clip_id"].filter(pl.Series(is_eval)))
    weights = resample_weights(len(states), n_resamples, 0)
    marks = [time.process_time()]
    for work in (lambda: bootstrap(states, logits, weights), lambda: evaluate(states, logits)):
        work()
        marks.append(time.process_time())
    return marks[1] - marks[0], marks[2] - marks[1]


def _cpu_seconds() -> float:
    """Return what processes that have ended beneath this one took; it waits, and watches memory."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--timing", action="store_true", help="time 18 students instead")
    parser.add_argument("--clips", type=int, default=20_371)
    parser.add_argument("--classes", type=int, default=527)
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=2)
    results = Path(__file__).parent / "results"
    parser.add_argument("--json", type=Path, default=results / "bootstrap.json")
    arguments = parser.parse_args()
    console = Console(width=100)
    found = read_json(arguments.json) if arguments.json.exists() else {}
    if arguments.timing:
        timing = time_sweep(
            arguments.clips, arguments.classes, arguments.resamples, arguments.processes
        )
        print_timing(timing, console)
        found["timing"] = asdict(timing)
    else:
        found |= cover(arguments.samples, console)
    write_json(arguments.json, found)
    console.print(f"written to {arguments.json}")


def cover(n_samples: int, console: Console) -> dict[str, Any]:
    """Measure and print the coverage of all intervals."""
    covered = [one for n in (300, 1_000) for one in measure_coverage(n, n_samples, 300)]
    print_coverage(covered, console)
    by_seeds = [
        measure_seed_coverage(n_seeds, between, 600)
        for n_seeds in (1, 2, 3, 5)
        for between in (0.0, 0.02, 0.2)
    ]
    print_seed_coverage(by_seeds, console)
    return {
        "level": 0.9,
        "n_samples": n_samples,
        "coverage": [asdict(one) for one in covered],
        "coverage_over_seeds": [asdict(one) for one in by_seeds],
    }


def print_timing(timing: Timing, console: Console) -> None:
    times = timing.bootstrap_cpu_seconds / timing.evaluation_cpu_seconds
    console.print(
        f"all metrics, {timing.n_resamples:,} resamples, {timing.n_clips:,} x "
        f"{timing.n_classes}, {timing.n_students} students, {timing.n_processes} processes: "
        f"{timing.cpu_seconds:.0f} CPU seconds (goal {GOAL_CPU_SECONDS:.0f}), "
        f"{timing.wall_seconds:.0f} s by the clock, {timing.peak_mb:,.0f} MB in "
        f"all (goal {GOAL_MB:,.0f}). The {timing.n_resamples:,} resamples of one student take "
        f"{times:.1f} times one evaluation without any."
    )


def print_coverage(covered: list[Coverage], console: Console) -> None:
    table = Table("metric", "of", "clips", "positives a class", "centred (ours)", "percentile")
    for one in covered:
        table.add_row(
            one.metric, one.what, f"{one.n_clips:,}", one.positives_per_class,
            f"{one.centred:.3f}", f"{one.percentile:.3f}",
        )  # fmt: skip
    console.print(table)


def print_seed_coverage(covered: list[SeedCoverage], console: Console) -> None:
    table = Table("seeds", "sd between seeds", "clips and seeds (ours)", "clips only")
    for one in covered:
        table.add_row(
            str(one.n_seeds), f"{one.sd_between_seeds:g}", f"{one.clips_and_seeds:.3f}",
            f"{one.clips_only:.3f}",
        )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()
