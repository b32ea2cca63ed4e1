"""Metrics against what people use today: time, memory and agreement, in one run.

    python benchmarks/metrics.py                    # 47,132 clips x 527 classes
    python benchmarks/metrics.py --bootstrap        # also 1,000 resamples of 20,371 clips

The rivals are the official DCASE 2019 way to compute lwlrap (clip by clip, written plainly) and
scikit-learn's ``roc_auc_score`` and ``average_precision_score`` class by class. Times are the best
of a few repeats in CPU seconds of one thread, so that a busy machine does not tilt the ratio;
memory is the peak beside the inputs, traced in a run of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.metrics import average_precision_score, roc_auc_score

from earmark import metrics
from earmark.metrics import evaluation, intervals
from earmark.runs import write_json
from machine import processor_name

Metric = Callable[[], NDArray[np.float64]]
TOLERANCE = 1e-9
GOALS = {"lwlrap": 10.0, "AUC, explicit": 5.0, "AUC, all": 5.0, "AP, all": 5.0}


@dataclass(frozen=True)
class Comparison:
    """One metric, ours and a rival's, on the same arrays."""

    metric: str
    rival: str
    seconds: float
    rival_seconds: float
    ratio: float
    goal: float
    peak_mb: float
    rival_peak_mb: float
    largest_difference: float


@dataclass(frozen=True)
class BootstrapTiming:
    """The bootstrap of all metrics."""

    n_clips: int
    n_classes: int
    n_resamples: int
    n_students: int
    wall_seconds: float
    wall_seconds_for_18_students: float
    peak_process_mb: float


def simulate(
    n_clips: int, n_classes: int, labels_per_clip: float, seed: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return states and logits [clip, class]: long-tailed classes, seven explicit negatives a clip.

    No two classes tie within a clip, because the official lwlrap breaks ties by class number.
    """
    random = np.random.default_rng(seed)
    priors = 1 / np.arange(1, n_classes + 1)
    priors = np.clip(priors * labels_per_clip / priors.sum(), 3 / n_clips, 0.9)
    is_positive = random.random((n_clips, n_classes), np.float32) < priors
    is_asked = random.random((n_clips, n_classes), np.float32) < 7 / n_classes
    states = np.where(is_positive, 1, np.where(is_asked, -1, 0)).astype(np.int8)
    logits = np.empty(states.shape, np.float32)
    redrawn = np.arange(n_clips)
    while len(redrawn):
        noise = random.standard_normal((len(redrawn), n_classes), np.float32)
        logits[redrawn] = noise + 2.5 * is_positive[redrawn]
        is_tied = (np.diff(np.sort(logits[redrawn], axis=1), axis=1) == 0).any(axis=1)
        redrawn = redrawn[is_tied]
    return states, logits


def official_lwlrap(
    is_positive: NDArray[np.bool_], scores: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Rank all classes of one clip after the other."""
    n_clips, n_classes = scores.shape
    sums, counts = np.zeros(n_classes), np.zeros(n_classes)
    for clip in range(n_clips):
        classes = np.flatnonzero(is_positive[clip])
        if len(classes) == 0:
            continue
        order = np.argsort(-scores[clip])
        ranks = np.empty(n_classes, int)
        ranks[order] = np.arange(n_classes)
        is_hit = np.zeros(n_classes, bool)
        is_hit[ranks[classes]] = True
        n_hits = np.cumsum(is_hit)
        sums[classes] += n_hits[ranks[classes]] / (1 + ranks[classes])
        counts[classes] += 1
    values = np.full(n_classes, np.nan)
    np.divide(sums, counts, out=values, where=counts > 0)
    return values


def sklearn_per_class(
    metric: Callable[..., float],
    states: NDArray[np.int8],
    scores: NDArray[np.float32],
    lowest: int,
) -> NDArray[np.float64]:
    """Apply one of scikit-learn's metrics to every class with both kinds of labels."""
    values = np.full(states.shape[1], np.nan)
    for c in range(states.shape[1]):
        column, column_scores = states[:, c], scores[:, c]
        if lowest < 0:
            is_explicit = column != 0
            column, column_scores = column[is_explicit], column_scores[is_explicit]
        if 0 < (column > 0).sum() < len(column):
            values[c] = metric(column > 0, column_scores)
    return values


def compare(metric: str, rival: str, ours: Metric, theirs: Metric, n_repeats: int) -> Comparison:
    """Time both, trace both, and hold their results together."""
    seconds, value = best_seconds(ours, n_repeats)
    rival_seconds, rival_value = best_seconds(theirs, n_repeats)
    if not np.array_equal(np.isnan(value), np.isnan(rival_value)):
        raise SystemExit(f"{metric}: the two leave out different classes")
    return Comparison(
        metric=metric,
        rival=rival,
        seconds=seconds,
        rival_seconds=rival_seconds,
        ratio=rival_seconds / seconds,
        goal=GOALS[metric],
        peak_mb=traced_peak_mb(ours),
        rival_peak_mb=traced_peak_mb(theirs),
        largest_difference=float(np.nanmax(np.abs(value - rival_value))),
    )


def best_seconds(function: Metric, n_repeats: int) -> tuple[float, NDArray[np.float64]]:
    seconds = []
    for _ in range(n_repeats):
        start = time.process_time()
        value = function()
        seconds.append(time.process_time() - start)
    return min(seconds), value


def traced_peak_mb(function: Metric) -> float:
    tracemalloc.start()
    function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def compare_all(
    states: NDArray[np.int8], scores: NDArray[np.float32], n_repeats: int
) -> list[Comparison]:
    is_positive = states > 0
    per_class = sklearn_per_class
    rivals: list[tuple[str, str, Metric, Metric]] = [
        (
            "lwlrap",
            "official, clip by clip",
            lambda: metrics.lwlrap_per_class(is_positive, scores),
            lambda: official_lwlrap(is_positive, scores),
        ),
        (
            "AUC, explicit",
            "sklearn roc_auc_score",
            lambda: metrics.auc_per_class(states, scores, "explicit"),
            lambda: per_class(roc_auc_score, states, scores, -1),
        ),
        (
            "AUC, all",
            "sklearn roc_auc_score",
            lambda: metrics.auc_per_class(states, scores, "all"),
            lambda: per_class(roc_auc_score, states, scores, 0),
        ),
        (
            "AP, all",
            "sklearn average_precision_score",
            lambda: metrics.average_precision_per_class(states, scores, "all"),
            lambda: per_class(average_precision_score, states, scores, 0),
        ),
    ]
    return [compare(*rival, n_repeats) for rival in rivals]


def time_bootstrap(arguments: argparse.Namespace) -> BootstrapTiming:
    """Bootstrap some students after one another in this process."""
    n_clips, n_students = arguments.bootstrap_clips, arguments.students
    states, scores = simulate(n_clips, arguments.classes, arguments.labels_per_clip, seed=1)
    weights = intervals.resample_weights(n_clips, arguments.resamples, seed=2)
    start = time.perf_counter()
    for _ in range(n_students):
        evaluation.bootstrap(states, scores, weights)
    seconds = time.perf_counter() - start
    return BootstrapTiming(
        n_clips=n_clips,
        n_classes=arguments.classes,
        n_resamples=arguments.resamples,
        n_students=n_students,
        wall_seconds=seconds,
        wall_seconds_for_18_students=18 * seconds / n_students,
        peak_process_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    )


def print_comparisons(comparisons: list[Comparison], console: Console) -> None:
    table = Table("metric", "rival", "s", "rival s", "ratio", "goal", "MB", "rival MB", "differ by")
    for c in comparisons:
        table.add_row(
            c.metric,
            c.rival,
            f"{c.seconds:.2f}",
            f"{c.rival_seconds:.2f}",
            f"{c.ratio:.1f}x",
            f"{c.goal:.0f}x",
            f"{c.peak_mb:.0f}",
            f"{c.rival_peak_mb:.0f}",
            f"{c.largest_difference:.0e}",
        )
    console.print(table)


def print_bootstrap(timing: BootstrapTiming, console: Console) -> None:
    console.print(
        f"bootstrap, {timing.n_resamples:,} resamples, {timing.n_clips:,} x {timing.n_classes}, "
        f"{timing.n_students} student(s): {timing.wall_seconds:.1f} s in one process; "
        f"18 students would take {timing.wall_seconds_for_18_students:.0f} s (extrapolated); "
        f"the process peaked at {timing.peak_process_mb:,.0f} MB"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clips", type=int, default=47_132)
    parser.add_argument("--classes", type=int, default=527)
    parser.add_argument("--labels-per-clip", type=float, default=2.5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bootstrap", action="store_true", help="time the bootstrap as well")
    parser.add_argument("--bootstrap-clips", type=int, default=20_371)
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--students", type=int, default=1)
    results = Path(__file__).parent / "results"
    parser.add_argument("--json", type=Path, default=results / "metrics.json")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    console = Console(width=100)
    # The bootstrap comes first, before larger matrices raise the process's peak.
    timing = time_bootstrap(arguments) if arguments.bootstrap else None
    states, scores = simulate(arguments.clips, arguments.classes, arguments.labels_per_clip, seed=0)
    comparisons = compare_all(states, scores, arguments.repeats)
    console.print(
        f"{arguments.clips:,} clips x {arguments.classes} classes, "
        f"{(states > 0).sum() / len(states):.2f} positives a clip, float32"
    )
    print_comparisons(comparisons, console)
    if timing:
        print_bootstrap(timing, console)
    write_json(
        arguments.json,
        {
            "machine": {"processor": processor_name(), "numpy": np.__version__},
            "n_clips": arguments.clips,
            "n_classes": arguments.classes,
            "n_positives": int((states > 0).sum()),
            "comparisons": [asdict(comparison) for comparison in comparisons],
            "bootstrap": asdict(timing) if timing else None,
        },
    )
    console.print(f"written to {arguments.json}")
    far = [c.metric for c in comparisons if c.largest_difference > TOLERANCE]
    if far:
        raise SystemExit(f"not equal to {TOLERANCE}: {', '.join(far)}")


if __name__ == "__main__":
    main()
