"""How every stage grows with the number of clips: CPU seconds and memory at three sizes.

    python benchmarks/growth.py                     # 500, 2,000 and 8,000 clips
    python benchmarks/growth.py --yamnet FILE       # also listening with YAMNet's published weights

Stages are the functions behind the verbs, in one process per size, one after another: a folder of
sounds of a second is imported and made into frames; a dataset of made-up embeddings (10 frames of
128 a clip, 50 classes, two labels a clip) goes through all the rest. Sound is slow to make and to
listen to, so there are an eighth as many sounds. Labels and scores alone are looked at in 25 times
as many clips, three times, of which the quickest counts. The exponent is the slope between the two
larger sizes, where 1 is linear; it is lower where a stage's own start, imports included, still
counts. Memory is the most that the process owned.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from earmark import stages
from earmark.audio import write_store
from earmark.datasets import Workspace, import_sounds, write_dataset
from earmark.flags import count_missing, flag
from earmark.labels import LabelSet, Ontology
from earmark.metrics import bootstrap, resample_weights
from earmark.runs import SILENT, PretrainedParams, Recipe, ReviewParams, write_json

SIZES = (500, 2_000, 8_000)
N_CLASSES, N_FRAMES, N_FEATURES = 50, 10, 128
SOUNDS_SHARE, LABELS_TIMES, N_RESAMPLES = 8, 25, 200
N_TURNS = 3
RATE_HZ = 16_000
PROBE = {"architecture": "linear_probe"}
TRAIN = {"epochs": 3, "batch_patches": 128}
RECIPE = Recipe.model_validate(
    {
        "name": "growth",
        "teacher": {"name": "teacher", "model": PROBE, "train": TRAIN},
        "students": [{"name": "student", "model": PROBE, "train": TRAIN}],
        "cross_fit": {"n_folds": 3},
        "sweep": {
            "discard_percents": [0, 1, 5],
            "random_control_percents": [],
            "n_resamples": N_RESAMPLES,
        },
        "report": {"listen_flags": 0},
    }
)
Stage = tuple[str, int, Callable[[], object]]


def write_sounds(folder: Path, n_clips: int) -> None:
    """Write sounds of a second, in folders that are named after their class."""
    noise = np.random.default_rng(0).integers(-3_000, 3_000, RATE_HZ).astype("<i2").tobytes()
    for number in range(n_clips):
        path = folder / f"class{number % 10}" / f"sound{number:06}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, RATE_HZ, RATE_HZ, "NONE", ""))
            file.writeframes(noise)


def make_states(n_clips: int, seed: int = 0) -> tuple[NDArray[np.bool_], NDArray[np.int8]]:
    """Return what is present, two classes a clip, and labels of which every third is missing."""
    random = np.random.default_rng(seed)
    is_present = random.random((n_clips, N_CLASSES), np.float32) < 2 / N_CLASSES
    is_asked = random.random(is_present.shape, np.float32) < np.where(is_present, 0.67, 0.05)
    states = np.where(is_asked, np.where(is_present, 1, -1), 0).astype(np.int8)
    return is_present, states


def make_embeddings(root: Path, n_clips: int) -> Workspace:
    """Write a dataset whose frames say what is present, well enough for a linear probe."""
    random = np.random.default_rng(1)
    is_present, states = make_states(n_clips)
    directions = random.normal(0, 1, (N_CLASSES, N_FEATURES)).astype(np.float32)
    clip_ids = [f"clip{number:07}" for number in range(n_clips)]
    shape = (N_FRAMES, N_FEATURES)
    frames = (
        (clip_id, (random.standard_normal(shape, np.float32) + row @ directions).astype(np.float16))
        for clip_id, row in zip(clip_ids, is_present.astype(np.float32), strict=True)
    )
    write_store(root / "frames", frames, patch_frames=1, patch_hop_frames=1)
    nothing = pl.Series([None] * n_clips, dtype=pl.String)
    splits = [("train", "train", "train", "tune", "eval")[number % 5] for number in range(n_clips)]
    clips = pl.DataFrame({"clip_id": clip_ids, "audio": nothing, "split": splits}).with_columns(
        start_seconds=pl.lit(None, pl.Float64),
        end_seconds=pl.lit(None, pl.Float64),
        source=pl.col("clip_id"),
    )
    class_ids = tuple(f"class{column}" for column in range(N_CLASSES))
    labels = LabelSet.from_dense(states, clip_ids, class_ids)
    return write_dataset(root, clips, Ontology(class_ids), labels)


def sound_stages(folder: Path, n_clips: int, yamnet: Path | None) -> Iterator[Stage]:
    """Yield the stages that go through sound."""
    write_sounds(folder / "sounds", n_clips)
    work = folder / "sound-work"
    yield "import", n_clips, lambda: import_sounds(folder / "sounds", None, work)
    yield "features", n_clips, lambda: stages.make_features(work, Recipe(), progress=SILENT)
    if yamnet is not None:
        from earmark.pretrained import listen  # loads torch

        params = PretrainedParams(network=str(yamnet))
        yield "listening with YAMNet", n_clips, lambda: listen(Workspace.open(work), params)


def embedding_stages(folder: Path, n_clips: int) -> Iterator[Stage]:
    """Yield the stages from embeddings to corrected labels."""
    work = folder / "work"
    make_embeddings(work, n_clips)
    yield "score: fit and say", n_clips, lambda: stages.score(work, RECIPE, progress=SILENT)
    yield "flag", n_clips, lambda: stages.write_flags(work, RECIPE)
    yield "sweep of 3 probes", n_clips, lambda: stages.sweep(work, RECIPE, progress=SILENT)
    yield "report", n_clips, lambda: stages.make_report(work, RECIPE)
    params = ReviewParams(aim="measure", n_items=1_000)
    drawn = []
    yield (
        "queue",
        n_clips,
        lambda: drawn.append(stages.draw_queue(work, RECIPE, params=params, progress=SILENT)),
    )
    items = drawn[0].queue.items
    answers = items.select("clip_id", "class_id", answer=pl.lit("present")).unique()
    answers.write_csv(folder / "answers.csv")
    stages.import_judgements(work, folder / "answers.csv")
    yield "relabel", n_clips, lambda: stages.correct_labels(work)
    yield "export", n_clips, lambda: stages.export_labels(work, folder / "out.csv", RECIPE)


def label_stages(n_clips: int) -> Iterator[Stage]:
    """Yield what looks at labels and scores alone."""
    is_present, states = make_states(n_clips)
    noise = np.random.default_rng(2).standard_normal(states.shape, np.float32)
    logits = noise + np.float32(2.5) * is_present - 2
    labels = LabelSet.from_dense(states)
    yield "flag, labels and scores", n_clips, lambda: flag(labels, logits)
    yield "count, labels and scores", n_clips, lambda: count_missing(labels, logits)
    some = slice(0, n_clips // 5)
    weights = resample_weights(n_clips // 5, N_RESAMPLES, 0)
    yield "bootstrap", n_clips // 5, lambda: bootstrap(states[some], logits[some], weights)


def measure(size: int, yamnet: Path | None) -> list[dict[str, Any]]:
    """Go through all stages at one size."""
    found = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        groups = (
            sound_stages(folder, size // SOUNDS_SHARE, yamnet),
            embedding_stages(folder, size),
            label_stages(size * LABELS_TIMES),
        )
        for stage, n_clips, work in (one for group in groups for one in group):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            n_turns = N_TURNS if n_clips > size else 1  # other stages find their work again
            cpu = min(_cpu_seconds(work) for _ in range(n_turns))
            row = {"stage": stage, "n_clips": n_clips, "cpu_seconds": cpu, "most_mb": _most_mb()}
            print(f"{size:,}: {row}", file=sys.stderr)
            found.append(row)
    return found


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _most_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each stage's sizes, times and memory, and how it grows."""
    found = []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        own = [row for row in rows if row["stage"] == stage]
        sizes, times, most = (
            [row[name] for row in own] for name in ("n_clips", "cpu_seconds", "most_mb")
        )
        (n, more), (before, after) = sizes[-2:], times[-2:]
        found.append(
            {
                "stage": stage,
                "n_clips": sizes,
                "cpu_seconds": times,
                "most_mb": most,
                "exponent": math.log(after / before) / math.log(more / n),
                "cpu_ms_of_one_clip_more": 1e3 * (after - before) / (more - n),
            }
        )
    return found


def show(found: list[dict[str, Any]]) -> None:
    table = Table("stage", "clips", "CPU seconds", "exponent", "ms a clip", "most MB")
    for row in found:
        table.add_row(
            row["stage"],
            " / ".join(f"{n:,}" for n in row["n_clips"]),
            " / ".join(f"{seconds:.2f}" for seconds in row["cpu_seconds"]),
            f"{row['exponent']:.2f}",
            f"{row['cpu_ms_of_one_clip_more']:.3f}",
            " / ".join(f"{mb:,.0f}" for mb in row["most_mb"]),
        )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs=3, default=SIZES, help="each as many times the last"
    )
    parser.add_argument("--yamnet", type=Path, help="the published TFLite file")
    results = Path(__file__).parent / "results" / "growth.json"
    parser.add_argument("--json", type=Path, default=results)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.size:
        print(json.dumps(measure(options.size, options.yamnet)))
        return
    rows = []
    for size in options.sizes:
        command = [sys.executable, __file__, f"--size={size}"]
        command += [f"--yamnet={options.yamnet}"] if options.yamnet else []
        told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        rows += json.loads(told.strip().splitlines()[-1])
    found = summary(rows)
    show(found)
    write_json(options.json, {"n_classes": N_CLASSES, "n_resamples": N_RESAMPLES, "stages": found})
    print(f"written to {options.json}")


if __name__ == "__main__":
    main()
