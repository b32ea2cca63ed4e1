"""A scan from two files to a page: CPU seconds by part, peak memory, and growth with the clips.

Makes scores [clip, class] at random as float32 ``.npy``, with labels, clips and classes as CSV. At
each size, in turn and each in a process of its own, it reads the file from the page cache into one
buffer and runs ``earmark scan`` as its users do; then once more with a watch on its parts. CPU
seconds are those of all threads. Prints a table and writes ``results/scan.json``; with a share of
all labels to flag, of which there are millions, ``results/scan_discarding.json``.

    python benchmarks/scan.py [--sizes 200000 506721 2467357] [--classes 527] [--repeats 3]
                              [--discard-percent 1]
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from machine import processor_name
from thresholds import BUFFER_BYTES, make_scores, run_aside

PARTS = {
    "labels read and matched": ["earmark.stages.scanning.scan:read_inputs"],
    "passes over the scores": ["earmark.scores.matrix:ScoreMatrix.map"],
    "fits": ["earmark.flags.chances.by_score:_by_belief", "earmark.flags.counts:_count"],
    "tables and page": ["earmark.stages.scanning.scan:write_findings"],
}
"""Which functions' time is counted as what; time inside another part is that part's."""

START_UP = (
    "import gc, os; gc.set_threshold(100_000); "
    "os.environ.setdefault('OPENBLAS_THREAD_TIMEOUT', '4'); "
    "import earmark.cli.app, earmark.stages.scanning.scan, jinja2, pydantic"
)
"""What ``earmark scan`` loads, as it does so, in a process that does nothing else."""

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
"""Those who installed a package have its bytecode."""


def make_files(folder: Path, n_clips: int, n_classes: int) -> None:
    """Write scores, labels, clips and classes."""
    make_scores(folder, n_clips, n_classes)
    clips = pl.int_range(n_clips, eager=True).cast(pl.String).str.zfill(7).alias("clip_id")
    classes = pl.Series("class_id", [f"/m/{column:05d}" for column in range(n_classes)])
    rows, columns = np.divmod(np.load(folder / "positives.npy"), n_classes)
    named = pl.DataFrame({"clip_id": clips.gather(rows), "class_id": classes.gather(columns)})
    named.write_csv(folder / "labels.csv")
    clips.to_frame().write_csv(folder / "clips.csv")
    classes.to_frame().write_csv(folder / "classes.csv")


def read_through(folder: Path) -> None:
    buffer = bytearray(BUFFER_BYTES)
    with (folder / "logits.npy").open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def scan_arguments(folder: Path, discard_percent: float | None) -> list[Any]:
    names = {"labels": "labels.csv", "scores": "logits.npy", "clips": "clips.csv"}
    given = names | {"classes": "classes.csv", "out": "out"}
    return [
        "scan",
        *(part for name, file in given.items() for part in (f"--{name}", folder / file)),
        *([] if discard_percent is None else ["--discard-percent", discard_percent]),
    ]


def measured(command: list[Any]) -> dict[str, float]:
    """Run a command; return its CPU seconds and its peak memory."""
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command}: exit status {status}")
    return {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_gb": used.ru_maxrss * 1024 / 1e9}


def watch_parts() -> dict[str, float]:
    """Have the functions of PARTS add their own CPU seconds to a table, which is returned."""
    seconds = dict.fromkeys(PARTS, 0.0)
    inside: list[str] = []
    since = [time.process_time()]

    def turn(to: Callable[[], None]) -> None:
        now = time.process_time()
        if inside:
            seconds[inside[-1]] += now - since[0]
        since[0] = now
        to()

    def watched(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*given: Any, **options: Any) -> Any:
            turn(lambda: inside.append(part))
            try:
                return function(*given, **options)
            finally:
                turn(lambda: inside.pop() and None)

        return call

    for part, places in PARTS.items():
        for place in places:
            module, _, path = place.partition(":")
            *owners, name = path.split(".")
            importlib.import_module(module)
            owner = functools.reduce(getattr, owners, sys.modules[module])
            setattr(owner, name, watched(part, getattr(owner, name)))
    return seconds


def scan_watched(folder: Path, discard_percent: float | None) -> dict[str, float]:
    """Scan in this process; return the CPU seconds of its parts."""
    from earmark.cli.app import app

    seconds = watch_parts()
    started = time.process_time()
    app([str(one) for one in scan_arguments(folder, discard_percent)], standalone_mode=False)
    ended = time.process_time()
    rest = ended - started - sum(seconds.values())
    return {**seconds, "the rest": rest}


def measure(folder: Path, n_repeats: int, discard_percent: float | None) -> dict[str, Any]:
    """Read and scan in turn; return the least of each, the ratio of medians, and the parts."""
    parts = measured_here("parts", folder, discard_percent)  # which also leaves the bytecode behind
    reads, scans, starts = [], [], []
    scan = [sys.executable, "-m", "earmark", *scan_arguments(folder, discard_percent)]
    for _ in range(n_repeats):
        starts.append(measured([sys.executable, "-c", START_UP])["cpu_seconds"])
        reads.append(measured_here("read", folder)["cpu_seconds"])
        scans.append(measured(scan))
    cpu = [one["cpu_seconds"] for one in scans]
    out = folder / "out"
    return {
        "read_cpu_seconds": min(reads),
        "scan_cpu_seconds": min(cpu),
        "times_the_read": float(np.median(cpu) / np.median(reads)),
        "peak_gb": max(one["peak_gb"] for one in scans),
        "page_bytes": (out / "index.html").stat().st_size,
        "n_flags": pl.scan_parquet(out / "flags.parquet").select(pl.len()).collect().item(),
        "start_up_cpu_seconds": min(starts),
        "parts": parts,
    }


def measured_here(
    task: str, folder: Path, discard_percent: float | None = None
) -> dict[str, float]:
    """Run a task of this file in a process of its own."""
    command = [sys.executable, __file__, "--task", task, "--folder", str(folder)]
    if discard_percent is not None:
        command += ["--discard-percent", str(discard_percent)]
    output = subprocess.run(
        command, check=True, capture_output=True, text=True, env=ENVIRONMENT
    ).stdout
    return dict(json.loads(output.splitlines()[-1]))


def run_task(task: str, folder: Path, discard_percent: float | None) -> dict[str, float]:
    if task == "parts":
        return scan_watched(folder, discard_percent)
    read_through(folder)
    start = time.process_time()
    read_through(folder)
    return {"cpu_seconds": time.process_time() - start}


@contextmanager
def folders(given: Path | None) -> Iterator[Path]:
    """Yield a folder for the files, and remove what was made there."""
    with tempfile.TemporaryDirectory(dir=given) as name:
        yield Path(name)


def growth(sizes: list[int], seconds: list[float]) -> list[float]:
    """Return the exponents of growth from each size to the next."""
    pairs = zip(sizes, sizes[1:], seconds, seconds[1:], strict=False)
    return [math.log(b / a) / math.log(m / n) for n, m, a, b in pairs]


def report(results: dict[int, dict[str, Any]]) -> None:
    titles = ("clips", "read s", "scan s", "x read", "peak GB", "start")
    print("".join(f"{title:>9}" for title in titles) + "  parts")
    for n_clips, one in results.items():
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in one["parts"].items())
        print(
            f"{n_clips:9,}{one['read_cpu_seconds']:9.3f}{one['scan_cpu_seconds']:9.2f}"
            f"{one['times_the_read']:9.1f}{one['peak_gb']:9.2f}"
            f"{one['start_up_cpu_seconds']:9.2f}  {parts}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 506_721, 2_467_357])
    parser.add_argument("--classes", type=int, default=527)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--discard-percent", type=float, help="flag this share of all labels")
    parser.add_argument("--room", type=Path, help="where files are made: up to 7 GB")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(run_task(options.task, options.folder, options.discard_percent)))
        return
    results: dict[int, dict[str, Any]] = {}
    with folders(options.room) as room:
        for n_clips in options.sizes:
            folder = room / str(n_clips)
            folder.mkdir()
            run_aside(make_files, folder, n_clips, options.classes)
            results[n_clips] = measure(folder, options.repeats, options.discard_percent)
            report({n_clips: results[n_clips]})
    seconds = [one["scan_cpu_seconds"] for one in results.values()]
    exponents = growth(options.sizes, seconds)
    report(results)
    print(f"growth exponents: {', '.join(f'{one:.2f}' for one in exponents)}")
    name = "scan" if options.discard_percent is None else "scan_discarding"
    path = Path(__file__).parent / "results" / f"{name}.json"
    facts = {
        "processor": processor_name(),
        "n_classes": options.classes,
        "discard_percent": options.discard_percent,
        "load_average": os.getloadavg()[0],
    }
    sizes = {str(n_clips): one for n_clips, one in results.items()}
    path.write_text(json.dumps({**facts, "growth": exponents, "sizes": sizes}, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
