"""The commands that bring data in from other tools, and out to them, do what the documents say."""

from __future__ import annotations

import io
import shlex
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from called_verbs import earmark
from documents import ROOT, blocks
from earmark import pipeline
from earmark.config import Recipe, keep_recipe
from earmark.datasets import Workspace
from scenes import TEACHER, band_workspace
from sound_folders import wav

SOUND = pl.Struct({"bytes": pl.Binary, "path": pl.String})


def commands(document: str, chapter: str) -> Iterator[list[str]]:
    """Yield the words of every command in the blocks of a chapter, in order."""
    path = ROOT / "docs" / document
    text = path.read_text()
    start = text[: text.index(f"## {chapter}")].count("\n") + 1
    end = start + text[text.index(f"## {chapter}") + 3 :].split("\n## ")[0].count("\n")
    for block in blocks(path):
        if start <= block.line <= end and block.text.startswith("earmark "):
            yield from (shlex.split(line, comments=True)[1:] for line in block.text.splitlines())


def follow(words: list[str]) -> str:
    """Run a command; hold what it prints to fifteen lines of eighty signs."""
    told = earmark(*words).stdout
    assert len(told.splitlines()) <= 15, told
    assert max(map(len, told.splitlines())) <= 80, told
    return told


def test_import_hf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("birds/data").mkdir(parents=True)
    sound = pl.Series([{"bytes": wav(0.1), "path": f"{i}.wav"} for i in range(2)], dtype=SOUND)
    rows = pl.DataFrame(
        {
            "audio": sound,
            "filepath": ["0.wav", "1.wav"],
            "labels": [[0], [1]],
            "ebird_code_multilabel": [[1], [0, 1]],
        }
    )
    rows.write_parquet("birds/data/train-00000-of-00001.parquet")
    Path("birds.txt").write_text("tit\nowl\n")
    given = [*commands("importing.md", "Hugging Face: `earmark import hf PATH --work W`")]
    assert len(given) == 3
    for words in given:
        assert "2 found" in follow(words)
    work = Workspace.open("W")
    assert work.clips["clip_id"].to_list() == ["0.wav", "1.wav"]
    assert work.labels.states().tolist() == [[0, 1], [1, 1]]
    assert Workspace.open("W2").ontology.class_ids == ("tit", "owl")


def test_import_webdataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shards").mkdir()
    Path("classes.txt").write_text("tit\nowl\n")
    for number in range(10):
        for path in (f"shards-{number:03}.tar", f"shards/{number}.tar"):
            with tarfile.open(path, "w") as tar:
                for name, content in ((".wav", wav(0.1)), (".cls", b"%d" % (number % 2))):
                    member = tarfile.TarInfo(f"{number:03}{name}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    given = [*commands("importing.md", "WebDataset: `earmark import webdataset SHARDS --work W`")]
    assert len(given) == 2
    for words in given:  # a pattern is expanded by the shell
        words = [path for word in words for path in sorted(glob(word)) or [word]]
        assert "10 clips listed = 10 found" in follow(words)
    work = Workspace.open("W2")
    assert work.clips["clip_id"][7] == "007"
    assert work.ontology.class_ids == ("tit", "owl")
    assert Workspace.open("W").ontology.class_ids == ("0", "1")


def test_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    is_present = rng.random((120, 3)) < 0.4
    names = [f"{i:03}" for i in range(len(is_present))]
    Path("sounds").mkdir()
    for name in names:
        Path(f"sounds/{name}.wav").write_bytes(wav(0.1))
    classes = ["hum", "siren", "whistle"]
    scores = dict(zip(classes, rng.normal(4.0 * is_present - 3, 1).T, strict=True))
    pl.DataFrame({"clip_id": names, **scores}).write_csv("scores.csv")
    shown = is_present & (rng.random(is_present.shape) < 0.7)
    pairs = [(names[i], classes[c]) for i, c in np.argwhere(shown)]
    pl.DataFrame(pairs, ["clip_id", "class_id"], orient="row").write_csv("labels.csv")
    pipeline.scan("labels.csv", "scores.csv", sounds="sounds", out="found")
    given = [*commands("dataset-owner.md", "For other tools")]
    assert [words[-1] for words in given] == ["better.csv", "hf"]
    for words in given:
        follow(words)
    follow(shlex.split("import hf hub --work W"))
    clips = Workspace.open("W").clips
    assert len(clips) == 120
    assert clips["audio"].null_count() == 0


def test_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    given = [b.text for b in blocks(ROOT / "docs" / "model-trainer.md") if "open_run" in b.text]
    Path("my_tracker.py").write_text(next(text for text in given if "wandb.init" in text))
    shown: list[str] = []

    @contextmanager
    def init(project: str, name: str, config: dict[str, object]) -> Iterator[SimpleNamespace]:
        assert (project, name, config["train.epochs"]) == ("earmark-W", "teacher", 1)
        yield SimpleNamespace(log=lambda values, step: shown.extend(values))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EARMARK_TRACKER", "my_tracker:open_run")
    workspace = band_workspace(Path("W"), n_clips=12)
    tiny = TEACHER.model_copy(update={"train": TEACHER.train.model_copy(update={"epochs": 1})})
    keep_recipe(workspace.root, Recipe(teacher=tiny))
    follow(["train", "W"])
    assert {"train/loss", "epoch/loss"} <= set(shown)
