"""Whoever follows docs/dataset-owner.md word by word ends at the promised page and labels."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from documents import ROOT, blocks
from earmark import pipeline
from earmark.config import (
    CrossFitParams,
    ModelParams,
    NetworkParams,
    Recipe,
    TrainParams,
    keep_recipe,
)
from made_up import Page
from verbs import Outcome, run_verb

DOCUMENT = ROOT / "docs" / "dataset-owner.md"
TONES_HZ = {"hum": 220, "siren": 900, "whistle": 2500}
SMALL = Recipe(
    teacher=NetworkParams(
        name="teacher",
        model=ModelParams(width=0.125),
        train=TrainParams(epochs=20, batch_patches=16, learning_rate=3e-3),
    ),
    cross_fit=CrossFitParams(n_folds=2),
)
"""A teacher that is trained in seconds, in place of the default."""


def commands(chapter: str) -> Iterator[list[str]]:
    """Yield the words of every command in the blocks of a chapter, in order."""
    text = DOCUMENT.read_text()
    start = text[: text.index(f"## {chapter}")].count("\n") + 1
    end = start + text[text.index(f"## {chapter}") + 3 :].split("\n## ")[0].count("\n")
    for block in blocks(DOCUMENT):
        if start <= block.line <= end and block.text.startswith("earmark "):
            yield from (shlex.split(line)[1:] for line in block.text.splitlines())


@pytest.fixture
def truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Write the files that the document asks for; return which class is in which clip."""
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # tasks run in this process
    rng = np.random.default_rng(0)
    names = [f"clip{i:03}" for i in range(120)]
    is_present = rng.random((len(names), 3)) < 0.4
    is_present[~is_present.any(axis=1), 0] = True
    is_labelled = is_present & (rng.random(is_present.shape) < 0.65)
    is_labelled[~is_labelled.any(axis=1)] = is_present[~is_labelled.any(axis=1)]
    Path("sounds").mkdir()
    time = np.arange(16_000) / 16_000
    for name, row in zip(names, is_present, strict=True):
        own = [hz for hz, is_on in zip(TONES_HZ.values(), row, strict=True) if is_on]
        tones = np.sin(2 * np.pi * np.outer(own, time)).sum(axis=0)
        sound = 0.1 * tones + 0.003 * rng.standard_normal(len(time))
        soundfile.write(f"sounds/{name}.wav", sound, 16_000)
    scores = rng.normal(4.0 * is_present - 3, 1)
    columns = dict(zip(TONES_HZ, scores.T, strict=True))
    pl.DataFrame({"clip_id": names, **columns}).write_csv("scores.csv")
    pairs = [(names[i], [*TONES_HZ][c]) for i, c in np.argwhere(is_labelled)]
    pl.DataFrame(pairs, ["clip_id", "class_id"], orient="row").write_csv("labels.csv")
    files = [(f"{name}.wav", class_id) for name, class_id in pairs]
    pl.DataFrame(files, ["filename", "label"], orient="row").write_csv("sounds.csv")
    return {(names[i], [*TONES_HZ][c]) for i, c in np.argwhere(is_present)}


def follow(words: list[str], truth: set[tuple[str, str]]) -> Outcome | None:
    """Run a command; where the reader listens, answer by the truth."""
    if words[0] == "review":
        items = pipeline.draw_ahead(words[1]).queue.items.select("clip_id", "class_id").unique()
        answers = ["present" if pair in truth else "not_present" for pair in items.rows()]
        items.with_columns(answer=pl.Series(answers)).write_csv("answers.csv")
        pipeline.import_judgements(words[1], "answers.csv")
        return None
    done = run_verb(words)
    assert done.code == 0, (words, done.stderr)
    assert all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout
    return done


def check_page(path: Path) -> None:
    page = Page(path.read_text())
    assert page.tags.count("audio") >= 10
    assert "Flagged: " in page.text


def check_labels(path: Path, truth: set[tuple[str, str]]) -> None:
    """More labels than were given, and what is said to be present is."""
    labels = pl.read_csv(path)
    present = set(labels.filter(state="present").select("clip_id", "class_id").iter_rows())
    assert len(present) > len(pl.read_csv("labels.csv")) + 5
    assert present <= truth


def test_with_scores_of_ones_own(truth: set[tuple[str, str]], tmp_path: Path) -> None:
    lines = list(commands("With scores of your own"))
    assert [words[0] for words in lines] == [
        "scan", "review", "answers", "relabel", "flag", "export",
    ]  # fmt: skip
    follow(lines[0], truth)
    check_page(tmp_path / "found" / "index.html")
    for words in lines[1:]:
        follow(words, truth)
    check_labels(tmp_path / "better.csv", truth)


def test_with_recordings_alone(truth: set[tuple[str, str]], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    truth = {(f"{name}.wav", class_id) for name, class_id in truth}
    lines = list(commands("With recordings alone"))
    assert [words[0] for words in lines[:5]] == ["import", "features", "score", "flag", "report"]
    for words in lines:
        follow(words, truth)
        if words[0] == "import":
            keep_recipe(tmp_path / "work", SMALL)
        if words[0] == "report":
            check_page(tmp_path / "work" / "report" / "index.html")
    check_labels(tmp_path / "better.csv", truth)
