"""Imports of AudioSet at full size: seconds, rows a second, peak memory.

    python benchmarks/imports.py                                   # a made-up list of segments
    python benchmarks/imports.py --segments unbalanced_train_segments.csv --root AUDIOSET
    python benchmarks/imports.py --features AUDIOSET/features.tar.gz

The unbalanced training list has 2,041,789 segments with 4,020,212 labels of 527 classes; without
``--segments`` a list of the same shape is drawn. ``--root`` is a folder with the official
class_labels_indices.csv and ontology.json; without it the classes are made up. Each import runs in
a process of its own, by the clock; memory is that process's highest resident set, libraries
included. Sound is looked for among empty files with the names of cut clips.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from earmark.audio import duration_seconds
from earmark.datasets import import_audioset, import_audioset_features
from earmark.labels import CLASSES_FILE, ONTOLOGY_FILE
from earmark.runs import write_json
from machine import processor_name

GOAL_SECONDS, GOAL_GB = 60, 2.0
N_SEGMENTS, LABELS_PER_SEGMENT, N_CLASSES = 2_041_789, 1.97, 527
LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", "S1")


def draw_segments(path: Path, class_ids: list[str], n_segments: int, seed: int = 0) -> None:
    """Write a list of segments whose classes have priors that fall like Zipf's law."""
    random = np.random.default_rng(seed)
    ids = random.choice(LETTERS, (n_segments, 11)).view("S11")[:, 0].astype(str)
    starts = random.integers(0, 60, n_segments) * 10
    priors = 1 / np.arange(1, len(class_ids) + 1)
    n_labels = 1 + random.poisson(LABELS_PER_SEGMENT - 1, n_segments)
    drawn = random.choice(class_ids, n_labels.sum(), p=priors / priors.sum())
    lists = np.split(drawn, np.cumsum(n_labels)[:-1])
    with open(path, "w", encoding="utf-8") as file:
        file.write("# Segments csv\n# drawn\n# YTID, start_seconds, end_seconds, positive_labels\n")
        for video, start, labels in zip(ids, starts, lists, strict=True):
            file.write(f'{video}, {start}.000, {start + 10}.000, "{",".join(labels)}"\n')


def prepare(root: Path, segments: Path | None, official: Path | None) -> Path:
    """Put the label files, given or drawn, into one folder."""
    root.mkdir()
    if official is None:
        rows = "".join(f'{i},/m/{i:05d},"Class {i}"\n' for i in range(N_CLASSES))
        (root / CLASSES_FILE).write_text("index,mid,display_name\n" + rows)
    else:
        for name in (CLASSES_FILE, ONTOLOGY_FILE):
            (root / name).symlink_to((official / name).resolve())
    listed = root / "unbalanced_train_segments.csv"
    if segments is None:
        class_ids = pl.read_csv(root / CLASSES_FILE)["mid"].to_list()
        draw_segments(listed, class_ids, N_SEGMENTS)
    else:
        listed.symlink_to(segments.resolve())
    return root


def write_names(root: Path, work: Path, n_files: int) -> Path:
    """Make empty files named like the first clips of a workspace, 1,000 to a folder."""
    clips = pl.read_parquet(work / "clips.parquet")["clip_id"].head(n_files).to_list()
    for number, clip_id in enumerate(clips):
        path = root / f"{number // 1_000:04d}" / f"{clip_id}.wav"
        if number % 1_000 == 0:
            path.parent.mkdir(parents=True)
        path.touch()
    return root


def run_child(what: str, *arguments: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", what, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def child(what: str, root: Path, work: Path, audio: Path | None = None) -> None:
    start, cpu_start = time.perf_counter(), time.process_time()
    if what == "features":
        summary = import_audioset_features(root, work)
    else:
        summary = import_audioset(root, work, audio=audio)
    result = {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu_start,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "n_listed": summary.n_listed,
        "n_found": summary.n_found,
        "n_labels": len(pl.read_parquet(work / "labels.parquet")),
        "notes": [note for note in summary.notes if str(root) not in note],
    }
    result["clips_per_second"] = summary.n_listed / float(str(result["seconds"]))
    print(json.dumps(result))


def files_opened_per_second(folder: Path, n_files: int = 500) -> float:
    """Measure what telling a cut clip from a whole video costs."""
    import soundfile  # only this part needs it

    paths = [folder / f"{number}.flac" for number in range(n_files)]
    for path in paths:
        soundfile.write(path, np.zeros(160_000), 16_000)
    start = time.perf_counter()
    for path in paths:
        duration_seconds(path)
    return n_files / (time.perf_counter() - start)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    root = prepare(folder / "root", options.segments, options.root)
    results: dict[str, Any] = {"labels": run_child("labels", root, folder / "labels")}
    audio = write_names(folder / "audio", folder / "labels", options.files)
    results["audio"] = run_child("audio", root, folder / "with_audio", audio)
    results["durations_per_second"] = files_opened_per_second(folder)
    results["features"] = None
    if options.features is not None:
        results["features"] = run_child("features", options.features, folder / "features")
    return results


def show(results: dict[str, Any]) -> None:
    table = Table("import", "clips", "seconds", "clips/s", "peak GB", title="Imports of AudioSet")
    names = {
        "labels": f"labels alone (goal {GOAL_SECONDS} s, {GOAL_GB:g} GB)",
        "audio": "labels and named files",
        "features": "VGGish features",
    }
    for key, name in names.items():
        if row := results[key]:
            table.add_row(
                f"{name}: {row['n_found']:,} found",
                f"{row['n_listed']:,}",
                f"{row['seconds']:.1f}",
                f"{row['clips_per_second']:,.0f}",
                f"{row['peak_gb']:.2f}",
            )
    Console().print(table)
    print(f"files opened to learn their length: {results['durations_per_second']:,.0f}/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=Path, help="the official unbalanced_train_segments.csv")
    parser.add_argument("--root", type=Path, help="folder of the official classes and ontology")
    parser.add_argument("--features", type=Path, help="the official features.tar.gz")
    parser.add_argument("--files", type=int, default=100_000, help="sound files to look for")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], *map(Path, options.child[1:]))
        return
    with tempfile.TemporaryDirectory() as folder:
        results = {
            "machine": {"processor": processor_name(), "polars": pl.__version__},
            "is_official_list": options.segments is not None,
            **measure(options, Path(folder)),
        }
    show(results)
    path = Path(__file__).parent / "results" / "imports.json"
    write_json(path, results)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
