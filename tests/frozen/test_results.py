"""Thresholds, flags, scores, result tables, exports and printed lines are as they were.

Results that follow from fixed scores are compared to the bit. Results of a trained network are
compared within a tolerance, because other processors round differently; in a whole run no flag is
so close to its threshold that the tolerance could turn it. AdamW turns differences of rounding into
steps of full size, so that convolutional networks are compared before their first step, and of the
demo the figures alone, loosely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from called_verbs import earmark
from earmark.config import ModelParams
from earmark.models import build_model
from made_up_yamnet import install
from tone_folders import tone_folder

LOGIT, METRIC = 3e-5, 1e-4
CHANCE = 2e-4
"""Chances are written with four decimals."""
FITTED_CHANCE = 1e-2
"""Of scores that a fit left within about 1e-3 of its optimum."""
TRAINED = 3e-2
"""Of the demo's figures: processors differ by 2 of 105 flags, and 0.01 in a metric."""
NO_TOLERANCE = ("discard_percent", "point", "share", "span_start", "span_end")
TREE = {"animal": [], "dog": ["animal"], "siren": [], "rare": []}
RECIPE = """
name = "small"

[scenes]
n_train = 40
n_tune = 16
n_eval = 16
clip_seconds = 1.5

[teacher]
name = "teacher"
model = { architecture = "linear_probe" }
train = { epochs = 4, batch_patches = 8, learning_rate = 1e-2 }

[[students]]
name = "student"
model = { architecture = "linear_probe" }
train = { epochs = 4, batch_patches = 8, learning_rate = 1e-2 }

[cross_fit]
n_folds = 2

[sweep]
discard_percents = [0, 5]
random_control_percents = [5]
n_resamples = 100

[report]
flag_percent = 5
listen_flags = 2
"""


def read(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)


def printed(folder: Path, *words: object) -> str:
    """Return what a command prints, without folders and times."""
    text = earmark(*words).stdout.replace(str(folder), "FOLDER")
    return re.sub(r"\b[\d.]+ (s|seconds|minutes|min|GB)\b", "TIME", text)


def scores_table(folder: Path) -> pl.DataFrame:
    """Return the scores of a folder, a row per clip."""
    logits = np.load(folder / "logits.npy")
    clips = pl.read_parquet(folder / "clips.parquet")["clip_id"]
    columns = {f"class_{i}": logits[:, i] for i in range(logits.shape[1])}
    return pl.DataFrame({"clip_id": clips, **columns})


def within(table: pl.DataFrame, tolerance: float) -> dict[str, float]:
    """Give all columns of floats one tolerance."""
    return {
        name: tolerance
        for name, kind in table.schema.items()
        if kind.is_float() and name not in NO_TOLERANCE
    }


@pytest.fixture(scope="module")
def scan_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels, scores and classes; the missing labels of a class score like its positives."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("scan")
    # Uniform numbers and no transcendental function: the same bits on every processor.
    logits = (rng.random((1_000, 4), np.float32) * 4 - 6).astype(np.float32)
    states = np.zeros(logits.shape, np.int8)
    for column, n_positives in enumerate((100, 100, 100, 5)):
        chosen = rng.choice(len(states), n_positives + 20, replace=False)
        logits[chosen, column] += np.float32(3.5)
        states[chosen[:n_positives], column] = 1
    np.save(folder / "labels.npy", states)
    np.save(folder / "scores.npy", logits)
    (folder / "classes.txt").write_text("\n".join(TREE))
    nodes = [
        {"id": name, "name": name, "child_ids": [c for c in TREE if name in TREE[c]]}
        for name in TREE
    ]
    (folder / "ontology.json").write_text(json.dumps(nodes))
    return folder


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("scan", []),
        ("scan_percentile", ["--discard-percent", "1"]),
        ("scan_tree", ["--ontology", "{folder}/ontology.json", "--n-flags", "60"]),
    ],
)
def test_scan(frozen, scan_files: Path, name: str, options: list[str]) -> None:
    folder, out = scan_files, scan_files / name
    words = [word.format(folder=folder) for word in options]
    files = {"labels": "labels.npy", "scores": "scores.npy", "classes": "classes.txt"}
    for option, file in files.items():
        words += [f"--{option}", f"{folder / file}"]
    lines = printed(folder, "scan", *words, "--out", out)
    flags, classes = read(out / "flags.parquet"), read(out / "classes.parquet")
    # Chances of nearly the same size may change places: by class and rank nothing does.
    frozen.table(f"{name}_flags", flags.sort("class_id", "rank"), {"chance": CHANCE})
    frozen.table(f"{name}_classes", classes, {"auc": 1e-2})
    if name == "scan":  # the same whatever is flagged
        frozen.table("scan_thresholds", read(out / "thresholds.parquet"))
        frozen.table("scan_wrong_positives", read(out / "wrong_positives.csv"))
    frozen.text(name, lines)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a workspace in which a whole run is done, and what the run printed."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "small.toml").write_text(RECIPE)
    words = ("run", folder / "small.toml", "--work", folder / "work", "--workers", 1)
    return folder / "work", printed(folder, *words)


def test_a_whole_run(frozen, whole: tuple[Path, str]) -> None:
    work, lines = whole
    for name in ("teacher", "teacher-held-out"):
        scores = scores_table(work / "scores" / name)
        frozen.table(f"run_scores_{name}", scores, within(scores, LOGIT))
    flags = read(work / "flags" / "flags.parquet").sort("class_id", "rank")
    assert_no_near_ties(scores_table(work / "scores" / "teacher-whole"), flags)
    frozen.table("run_flags", flags, within(flags, CHANCE))
    points = read(work / "flags" / "thresholds.parquet")
    frozen.table("run_thresholds", points, {"threshold": LOGIT})
    for name in ("results", "per_class"):
        table = read(work / "sweep" / f"{name}.parquet")
        frozen.table(f"run_{name}", table, within(table, METRIC))
    frozen.text("run", lines)


def assert_no_near_ties(scores: pl.DataFrame, flags: pl.DataFrame) -> None:
    """Assert that every flag of a class is well above or well below the clip next to it."""
    logits = scores.drop("clip_id").to_numpy()
    for logit in flags.group_by("class_id").agg(pl.col("logit").min())["logit"]:
        distances = np.abs(logits - logit)
        column = distances.min(axis=0).argmin()
        assert np.partition(distances[:, column], 1)[1] > 2 * LOGIT, (logit, column)


def test_what_commands_print_after_a_whole_run(frozen, whole: tuple[Path, str]) -> None:
    work, _ = whole
    lines = printed(work, "export", work, work / "out.csv")
    frozen.fingerprint("run_export", work / "out.csv")
    lines += printed(work, "export", work, work / "five.csv", "--discard-percent", 5)
    frozen.fingerprint("run_export_five", work / "five.csv")
    for words in (["sweep"], ["flag", "--discard-percent", 5], ["check"], ["report"]):
        lines += printed(work, words[0], work, *words[1:])
    frozen.text("after_run", lines)


@pytest.mark.parametrize("architecture", ["mobilenet_v1", "resnet50"])
def test_an_untrained_network(frozen, architecture: str) -> None:
    patches = torch.from_numpy(np.random.default_rng(0).random((4, 96, 64), np.float32))
    network = build_model(ModelParams(architecture=architecture, width=0.125), n_classes=5, seed=0)
    with torch.no_grad():
        logits = {"train": network.train()(patches), "eval": network.eval()(patches)}
    rows = [
        {"mode": mode, "clip": clip, "class": column, "logit": value}
        for mode, values in logits.items()
        for (clip, column), value in np.ndenumerate(values.numpy().astype(float))
    ]
    frozen.table(f"network_{architecture}", pl.DataFrame(rows), {"logit": METRIC})


def test_find(
    frozen, tmp_path: Path, knowing_yamnet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "cache", knowing_yamnet)
    tones, work = tone_folder(tmp_path, 220), tmp_path / "work"
    words = ("find", tones.sounds, tones.labels, "--work", work, "--no-review", "--workers", 1)
    lines = printed(tmp_path, *words)
    flags = read(work / "flags" / "flags.parquet").sort("class_id", "clip_id").drop("rank")
    frozen.table("find_flags", flags, within(flags, FITTED_CHANCE))
    points = read(work / "flags" / "thresholds.parquet")
    frozen.table("find_thresholds", points, {"threshold": FITTED_CHANCE})
    lines += printed(tmp_path, "export", work, tmp_path / "out.csv")
    frozen.fingerprint("find_export", tmp_path / "out.csv")
    lines += printed(tmp_path, "flag", work)
    frozen.text("find", lines, has_numbers=False)


def test_demo(frozen, tmp_path: Path) -> None:
    work = tmp_path / "work"
    words = ("--work", work, "--scenes", 400, "--draws", 2, "--workers", 1)
    lines = printed(tmp_path, "demo", *words)
    facts = json.loads(next(work.rglob("demo.json")).read_text())
    rows = [{"fact": name, "value": value} for name, value in _numbers(facts)]
    frozen.table("demo_facts", pl.DataFrame(rows), {"value": TRAINED})
    frozen.text("demo", lines, has_numbers=False)


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _numbers(part, f"{name}.{key}".strip("."))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _numbers(part, f"{name}[{place}]")
    elif isinstance(value, int | float):
        yield name, float(value)
