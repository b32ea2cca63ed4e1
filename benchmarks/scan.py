"""A scan from two files to a page: CPU seconds, peak memory, growth, and cleanlab's filter.

Makes scores [clip, class] at random as float32 ``.npy``, with labels, clips and classes as CSV. At
each size it runs, in turn and each in a process of its own: reading the file from the page cache
into one buffer; Earmark's ``survey``, which finds the thresholds at 18 operating points and the
flags at 1 %; and ``earmark scan`` as its users do. cleanlab's multi-label filter runs with one job
at smaller sizes, and a straight line through these gives its time at the size of ``tr_small``. CPU
seconds are those of all threads. Prints a table and the limits, and writes ``results/scan.json``;
with a share of all labels to flag, of which there are millions, ``results/scan_discarding.json``.

    python benchmarks/scan.py [--sizes 200000 506721 2467357] [--classes 527] [--repeats 3]
                              [--rival-clips 10000 20000] [--discard-percent 1] [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from earmark.labels import LabelSet
from machine import RESULTS, write_results

COMPARED_CLIPS = 506_721
LEAST_TIMES_CLEANLAB, MOST_GB = 50, 1.0
POSITIVES_PER_CLIP, MISSING_SHARE = 2.5, 0.3
BUFFER_BYTES = 16 << 20

Measured = dict[str, float]


def make_files(folder: Path, n_clips: int, n_classes: int) -> None:
    """Write scores, labels, clips and classes, of classes with a long tail."""
    rng = np.random.default_rng(0)
    priors = 1 / np.arange(3, n_classes + 3) ** 1.1
    priors *= POSITIVES_PER_CLIP / priors.sum()
    shape = (n_clips, n_classes)
    logits = np.lib.format.open_memmap(folder / "logits.npy", "w+", np.float32, shape)
    positives = []
    for start in range(0, n_clips, 8192):
        block = rng.standard_normal(logits[start : start + 8192].shape, dtype=np.float32)
        is_true = rng.random(block.shape, dtype=np.float32) < priors.astype(np.float32)
        logits[start : start + 8192] = 2 * block + 6 * is_true + np.log(priors).astype(np.float32)
        is_labelled = is_true & (rng.random(block.shape, dtype=np.float32) > MISSING_SHARE)
        positives.append(np.flatnonzero(is_labelled) + start * n_classes)
    logits.flush()
    np.save(folder / "positives.npy", np.concatenate(positives))
    clips = pl.int_range(n_clips, eager=True).cast(pl.String).str.zfill(7).alias("clip_id")
    classes = pl.Series("class_id", [f"/m/{column:05d}" for column in range(n_classes)])
    rows, columns = np.divmod(np.concatenate(positives), n_classes)
    pairs = pl.DataFrame({"clip_id": clips.gather(rows), "class_id": classes.gather(columns)})
    pairs.write_csv(folder / "labels.csv")
    clips.to_frame().write_csv(folder / "clips.csv")
    classes.to_frame().write_csv(folder / "classes.csv")


def read_labels(folder: Path) -> LabelSet:
    """Build the label set without ever holding a dense matrix."""
    n_clips, n_classes = np.load(folder / "logits.npy", mmap_mode="r").shape
    rows, columns = np.divmod(np.load(folder / "positives.npy"), n_classes)
    starts = np.searchsorted(rows, np.arange(n_clips + 1))
    clip_ids = pl.Series("clip_id", np.arange(n_clips)).cast(pl.String)
    class_ids = tuple(f"/m/{column:05d}" for column in range(n_classes))
    return LabelSet(clip_ids, class_ids, starts, columns.astype(np.int32), np.ones(len(rows), bool))


def make_files_aside(folder: Path, n_clips: int, n_classes: int) -> None:
    """Make files in another process: the peak memory of a child begins at its parent's."""
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=make_files, args=(folder, n_clips, n_classes))
    process.start()
    process.join()


# Tasks, each in a process of its own


def timed(task: Callable[[], object]) -> Measured:
    """Return the seconds that a task takes, by the clock and of the processor."""
    start, cpu_start = time.perf_counter(), time.process_time()
    task()
    cpu_seconds = time.process_time() - cpu_start
    return {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds}


def time_read(folder: Path) -> Measured:
    buffer = bytearray(BUFFER_BYTES)

    def read() -> None:
        with (folder / "logits.npy").open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    read()
    return timed(read)


def time_survey(folder: Path) -> Measured:
    from earmark.flags import survey

    labels = read_labels(folder)
    return timed(lambda: survey(labels, folder / "logits.npy", with_chance=False))


def time_cleanlab(folder: Path) -> Measured:
    from cleanlab.multilabel_classification.filter import find_label_issues
    from scipy.special import expit

    labels = read_labels(folder)
    given = [part.tolist() for part in np.split(labels.columns, labels.starts[1:-1])]
    probabilities = expit(np.load(folder / "logits.npy"))
    return timed(lambda: find_label_issues(given, probabilities, n_jobs=1))


TASKS = {"read": time_read, "survey": time_survey, "cleanlab": time_cleanlab}


def measure_task(task: str, folder: Path) -> Measured:
    """Run a task of this file; return its seconds and its peak memory."""
    command = [sys.executable, __file__, "--task", task, "--folder", str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def measure_scan(folder: Path, discard_percent: float | None) -> Measured:
    """Run ``earmark scan``; return its CPU seconds and its peak memory."""
    files = {"labels": "labels.csv", "scores": "logits.npy", "clips": "clips.csv"}
    files |= {"classes": "classes.csv", "out": "out"}
    command = [sys.executable, "-m", "earmark", "scan"]
    command += [part for name, file in files.items() for part in (f"--{name}", str(folder / file))]
    command += [] if discard_percent is None else ["--discard-percent", str(discard_percent)]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command}: exit status {status}")
    return {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_gb": used.ru_maxrss * 1024 / 1e9}


def measure_size(folder: Path, n_repeats: int, discard_percent: float | None) -> dict[str, Any]:
    """Measure reading, surveying and scanning in turn; return medians and the most memory."""
    runs: dict[str, list[Measured]] = {"read": [], "survey": [], "scan": []}
    for _ in range(n_repeats):
        for task in ("read", "survey"):
            runs[task].append(measure_task(task, folder))
        runs["scan"].append(measure_scan(folder, discard_percent))
    flags = pl.scan_parquet(folder / "out" / "flags.parquet")
    found: dict[str, Any] = {"n_flags": flags.select(pl.len()).collect().item()}
    for task, repeats in runs.items():
        found[f"{task}_cpu_seconds"] = float(np.median([run["cpu_seconds"] for run in repeats]))
        found[f"{task}_peak_gb"] = max(run["peak_gb"] for run in repeats)
    return found


def measure_cleanlab(sizes: list[int], n_classes: int) -> Measured:
    """Extrapolate cleanlab's CPU time to the compared size by a line through smaller sizes."""
    seconds = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            make_files_aside(Path(name), size, n_classes)
            seconds.append(measure_task("cleanlab", Path(name))["cpu_seconds"])
    line = np.polyfit(sizes, seconds, 1)
    at_sizes = {str(size): taken for size, taken in zip(sizes, seconds, strict=True)}
    return {**at_sizes, "extrapolated": float(np.polyval(line, COMPARED_CLIPS))}


def growth(sizes: list[int], seconds: list[float]) -> list[float]:
    """Return the exponents of growth from each size to the next."""
    pairs = zip(sizes, sizes[1:], seconds, seconds[1:], strict=False)
    return [math.log(b / a) / math.log(m / n) for n, m, a, b in pairs]


def show(n_clips: int, found: dict[str, Any]) -> None:
    """Print a row."""
    parts = (
        f"{task} {found[f'{task}_cpu_seconds']:8.3f} s {found[f'{task}_peak_gb']:5.2f} GB"
        for task in ("read", "survey", "scan")
    )
    print(f"{n_clips:9,} clips: ", ", ".join(parts), f", {found['n_flags']:,} flags", flush=True)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 506_721, 2_467_357])
    parser.add_argument("--rival-clips", type=int, nargs="*", default=[10_000, 20_000])
    parser.add_argument("--classes", type=int, default=527)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--discard-percent", type=float, help="flag this share of all labels")
    parser.add_argument("--scratch", type=Path, help="where files are made: up to 7 GB")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        found = TASKS[options.task](options.folder)
        peak = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({**found, "peak_gb": peak.ru_maxrss * 1024 / 1e9}))
        return
    if options.quick:
        options.sizes, options.rival_clips, options.repeats = [5_000, 20_000], [500, 1_000], 1
    sizes: dict[int, dict[str, Any]] = {}
    for n_clips in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.scratch) as name:
            make_files_aside(Path(name), n_clips, options.classes)
            sizes[n_clips] = measure_size(Path(name), options.repeats, options.discard_percent)
        show(n_clips, sizes[n_clips])
    exponents = growth(options.sizes, [found["scan_cpu_seconds"] for found in sizes.values()])
    peak_gb = max(found["scan_peak_gb"] for found in sizes.values())
    print(f"growth exponents {[round(one, 2) for one in exponents]} (linear is 1)")
    print(f"peak memory {peak_gb:.2f} GB (limit {MOST_GB})")
    rival: Measured = {}
    if options.rival_clips and importlib.util.find_spec("cleanlab") is None:
        print("cleanlab is not installed and was not measured: pip install 'earmark[bench]'")
    elif options.rival_clips:
        rival = measure_cleanlab(options.rival_clips, options.classes)
        nearest = min(sizes, key=lambda n: abs(n - COMPARED_CLIPS))
        ratio = rival["extrapolated"] / sizes[nearest]["scan_cpu_seconds"]
        print("cleanlab's filter:", {size: round(taken, 1) for size, taken in rival.items()})
        if not options.quick:  # a line through such small sizes says nothing of large ones
            print(f"{ratio:.0f} times the scan of {nearest:,} (limit {LEAST_TIMES_CLEANLAB})")
    if not options.quick:
        name = "scan" if options.discard_percent is None else "scan_discarding"
        facts = {"n_classes": options.classes, "discard_percent": options.discard_percent}
        by_size = {str(n_clips): found for n_clips, found in sizes.items()}
        results = {**facts, "growth": exponents, "sizes": by_size, "cleanlab": rival}
        write_results(RESULTS / f"{name}.json", results)


if __name__ == "__main__":
    main()
