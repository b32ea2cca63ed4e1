"""Thresholds at 18 points and flags at 1 % from scores on disk: time and memory.

Makes scores [clip, class] as float32 ``.npy`` in a temporary folder, then measures, in processes
of their own and in turn, so that whatever else the machine does befalls all alike: reading the file
from the page cache into one buffer, ``numpy.load``, Earmark's ``survey`` (thresholds and flags
together), with chances, and of a file in Fortran order; and cleanlab's multi-label filter with one
job at smaller sizes, from which its time at the full size is extrapolated by a straight line. The
first survey in a process loads what it needs and is told apart (``first_seconds``). Prints a
table and writes ``results/thresholds_<clips>.json``.

    python benchmarks/thresholds.py [--clips 506721] [--classes 527] [--rival-clips 10000 20000]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import expit

from earmark.labels import LabelSet
from machine import processor_name

POSITIVES_PER_CLIP = 2.5
MISSING_SHARE = 0.3
BUFFER_BYTES = 16 << 20


def make_scores(folder: Path, n_clips: int, n_classes: int, seed: int = 0) -> None:
    """Write ``logits.npy`` and the places of explicit positives, in classes of a long tail."""
    rng = np.random.default_rng(seed)
    priors = 1 / np.arange(3, n_classes + 3) ** 1.1
    priors *= POSITIVES_PER_CLIP / priors.sum()
    shape = (n_clips, n_classes)
    logits = np.lib.format.open_memmap(folder / "logits.npy", "w+", np.float32, shape)
    places = []
    for start in range(0, n_clips, 8192):
        chunk = rng.standard_normal(logits[start : start + 8192].shape, dtype=np.float32)
        is_true = rng.random(chunk.shape, dtype=np.float32) < priors.astype(np.float32)
        logits[start : start + 8192] = 2 * chunk + 6 * is_true + np.log(priors).astype(np.float32)
        is_known = is_true & (rng.random(chunk.shape, dtype=np.float32) > MISSING_SHARE)
        places.append(np.flatnonzero(is_known) + start * n_classes)
    logits.flush()
    np.save(folder / "positives.npy", np.concatenate(places))


def run_aside(function: Callable[..., None], *arguments: object) -> None:
    """Run a function in a process of its own: a child's peak memory starts at its parent's."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()


def read_through(folder: Path) -> dict[str, float]:
    buffer = bytearray(BUFFER_BYTES)
    start, cpu_start = time.perf_counter(), time.process_time()
    with (folder / "logits.npy").open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    cpu_seconds = time.process_time() - cpu_start
    return {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds}


def load_whole(folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    np.load(folder / "logits.npy")
    return {"seconds": time.perf_counter() - start}


def survey_scores(folder: Path, name: str = "logits.npy", **options: bool) -> dict[str, float]:
    from earmark.flags import survey

    labels, seconds, cpu_seconds = read_labels(folder), [], []
    for _ in range(2):
        start, cpu_start = time.perf_counter(), time.process_time()
        survey(labels, folder / name, **options)
        cpu_seconds.append(time.process_time() - cpu_start)
        seconds.append(time.perf_counter() - start)
    first = {"first_seconds": seconds[0], "first_cpu_seconds": cpu_seconds[0]}
    return {"seconds": seconds[1], "cpu_seconds": cpu_seconds[1], **first}


def write_by_columns(folder: Path) -> None:
    """Write the scores once more, in Fortran order."""
    scores = np.load(folder / "logits.npy", mmap_mode="r")
    header = {"descr": "<f4", "fortran_order": True, "shape": scores.shape}
    with (folder / "columns.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, scores.shape[1], 32):
            columns = np.load(folder / "logits.npy", mmap_mode="r")[:, start : start + 32]
            file.write(np.ascontiguousarray(columns.T).data)


def read_labels(folder: Path) -> LabelSet:
    """Build the label set without ever holding a dense matrix."""
    n_clips, n_classes = np.load(folder / "logits.npy", mmap_mode="r").shape
    rows, columns = np.divmod(np.load(folder / "positives.npy"), n_classes)
    starts = np.searchsorted(rows, np.arange(n_clips + 1))
    clip_ids = pl.Series("clip_id", np.arange(n_clips)).cast(pl.String)
    class_ids = tuple(f"/m/{column:05d}" for column in range(n_classes))
    return LabelSet(clip_ids, class_ids, starts, columns.astype(np.int32), np.ones(len(rows), bool))


def filter_with_cleanlab(folder: Path) -> dict[str, float]:
    from cleanlab.multilabel_classification.filter import find_label_issues

    labels = read_labels(folder)
    given = [part.tolist() for part in np.split(labels.columns, labels.starts[1:-1])]
    probabilities = expit(np.load(folder / "logits.npy"))
    start = time.perf_counter()
    find_label_issues(given, probabilities, n_jobs=1)
    return {"seconds": time.perf_counter() - start}


TASKS: dict[str, Callable[[Path], dict[str, float]]] = {
    "read": read_through,
    "numpy.load": load_whole,
    "survey": lambda folder: survey_scores(folder, with_chance=False),
    "survey with chances": survey_scores,
    "survey, Fortran order": lambda folder: survey_scores(folder, "columns.npy", with_chance=False),
    "cleanlab": filter_with_cleanlab,
}


def measure(task: str, folder: Path) -> dict[str, float]:
    """Run a task in a fresh process; return what it measured, and its peak memory."""
    command = [sys.executable, __file__, "--task", task, "--folder", str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def measure_in_turn(tasks: list[str], folder: Path, n_repeats: int) -> dict[str, dict[str, float]]:
    """Run tasks one after the other, several times; return the least times and the most memory."""
    runs: dict[str, list[dict[str, float]]] = {task: [] for task in tasks}
    for _ in range(n_repeats):
        for task in tasks:
            runs[task].append(measure(task, folder))
    best = {}
    for task, results in runs.items():
        keys = results[0].keys()
        best[task] = {
            key: (max if key == "peak_gb" else min)(result[key] for result in results)
            for key in keys
        }
        for key in ("seconds", "cpu_seconds"):
            if key in keys:
                best[task][f"median_{key}"] = float(np.median([one[key] for one in results]))
    return best


def measure_rival(sizes: list[int], n_classes: int, n_clips: int) -> dict[str, float]:
    """Extrapolate cleanlab's time and memory by a straight line through smaller sizes."""
    runs = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            run_aside(make_scores, Path(name), size, n_classes)
            runs.append(measure("cleanlab", Path(name)))
            print(f"cleanlab at {size:,} clips: {runs[-1]['seconds']:.1f} s", flush=True)
    return {
        key: float(np.polyval(np.polyfit(sizes, [run[key] for run in runs], 1), n_clips))
        for key in ("seconds", "peak_gb")
    }


def report(results: dict[str, dict[str, float]]) -> None:
    read, survey = results["read"], results["survey"]
    print(f"{'':24}{'seconds':>10}{'x read':>10}{'x survey':>10}{'peak GB':>10}{'first s':>10}")
    for name, result in results.items():
        seconds = result["seconds"]
        print(
            f"{name:24}{seconds:10.2f}{seconds / read['seconds']:10.1f}"
            f"{seconds / survey['seconds']:10.1f}{result['peak_gb']:10.2f}"
            f"{result.get('first_seconds', seconds):10.2f}"
        )
    ratio = survey["median_seconds"] / read["median_seconds"]
    cpu_ratio = survey["median_cpu_seconds"] / read["median_cpu_seconds"]
    print(f"survey against read, medians: {ratio:.1f} by the clock, {cpu_ratio:.1f} in CPU seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=506_721)
    parser.add_argument("--classes", type=int, default=527)
    parser.add_argument("--rival-clips", type=int, nargs="*", default=[10_000, 20_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        found = TASKS[arguments.task](arguments.folder)
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(json.dumps({**found, "peak_gb": peak_gb}))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_aside(make_scores, folder, arguments.clips, arguments.classes)
        run_aside(write_by_columns, folder)
        names = [task for task in TASKS if task != "cleanlab"]
        results = measure_in_turn(names, folder, arguments.repeats)
    if arguments.rival_clips:
        rival = measure_rival(arguments.rival_clips, arguments.classes, arguments.clips)
        results["cleanlab (extrapolated)"] = rival
    report(results)
    path = Path(__file__).parent / "results" / f"thresholds_{arguments.clips}.json"
    path.parent.mkdir(exist_ok=True)
    facts = {"processor": processor_name(), "n_classes": arguments.classes}
    path.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
