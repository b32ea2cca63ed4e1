from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import soundfile
import typer

from earmark.cli import app
from earmark.cli.app import MOVED, PANELS
from earmark.cli.app import app as cli_app
from earmark.datasets import Workspace, read_quarantine
from earmark.errors import EarmarkWarning
from earmark.scores import write_score_folder
from earmark.storage import artefacts
from scenes import band_workspace
from verbs import Outcome, run_verb

RECIPE = """
name = "small"
[scenes]
n_train = 40
n_tune = 16
n_eval = 16
clip_seconds = 1.5
[teacher]
name = "teacher"
model = { width = 0.125 }
train = { epochs = 1, batch_patches = 32 }
[[students]]
name = "student"
model = { width = 0.125 }
train = { epochs = 1, batch_patches = 32 }
[cross_fit]
n_folds = 2
[sweep]
discard_percents = [0, 5]
n_resamples = 100
"""


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands run in this process, which is afterwards as it was."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def earmark(*arguments: object, folder: Path, code: int = 0) -> Outcome:
    """Run a command as from a shell that stands in a folder."""
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore", EarmarkWarning)
        done = run_verb([str(argument) for argument in arguments])
    assert done.code == code, done.stderr
    return done


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return path


def test_every_verb_prints_the_next_one(tmp_path: Path, recipe: Path) -> None:
    pytest.importorskip("torch")
    told = earmark("import", "scenes", "w", "--recipe", recipe, folder=tmp_path).stdout
    seen = []
    while "next: earmark" in told:
        verb = told.split("next: ")[1].splitlines()[0].split()
        seen.append(verb[1])
        told = earmark(*verb[1:], folder=tmp_path).stdout
    assert seen == ["features", "score", "flag", "report"]
    assert "<audio" in (tmp_path / "w" / "report" / "index.html").read_text()
    assert "in a browser" in told
    told = earmark("sweep", "w", folder=tmp_path).stdout
    assert "next: earmark report w" in told
    earmark("report", "w", folder=tmp_path)
    assert "Baseline and operating point" in (tmp_path / "w" / "report" / "index.html").read_text()

    done = earmark("flag", "w", "--discard-percent", "5", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["flags"] > 0
    earmark("export", "w", "labels.csv", "--discard-percent", "5", folder=tmp_path)
    exported = pl.read_csv(tmp_path / "labels.csv")
    assert set(exported["state"]) == {"present", "not_present", "ignored"}
    scores = "w/sweep/scores/student-train-seed0-mask0"
    measured = json.loads(
        earmark("evaluate", "w/labels.parquet", scores, "--json", folder=tmp_path).stdout
    )
    assert 0 < measured["lwlrap"] <= 1
    linted = earmark("check", "w", "--details", folder=tmp_path).stdout
    assert "No problems in " in linted
    assert "implicit labels are implied by a child that is present" in linted


@pytest.mark.parametrize("name", MOVED)
def test_an_old_name_says_what_replaces_it(tmp_path: Path, name: str) -> None:
    done = earmark(name, "W", "--some", "option", folder=tmp_path, code=2)
    assert done.stdout == ""
    assert " ".join(done.stderr.split()) == f"earmark {name} is now: {MOVED[name]}"


def test_there_are_the_commands_that_help_groups() -> None:
    there: Any = typer.main.get_command(cli_app)
    listed = there.list_commands(typer.Context(there))
    assert set(listed) == set(there.commands)
    assert len(listed) == sum(map(len, PANELS.values())) == 21


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("features", "nowhere"), "not a workspace"),
        (("run", "scene"), "did you mean 'scenes'"),
        (("run", "bad.toml"), "epochs"),
    ],
)
def test_a_users_mistake_exits_2_with_one_message(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "bad.toml").write_text("[teacher]\nname='t'\ntrain={epoch=1}\n")
    done = earmark(*arguments, folder=tmp_path, code=2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["features", "score", "sweep"])
def test_a_mistyped_workspace_is_not_made(tmp_path: Path, verb: str) -> None:
    earmark(verb, "typo", "--recipe", "scenes", folder=tmp_path, code=2)
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_state_from_which_the_command_goes_on(
    tmp_path: Path, recipe: Path, number: int, code: int
) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "earmark", "run", str(recipe), "--work", "w", "--workers", "2"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "w" / "frames").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code, told
    assert "Traceback" not in told
    assert "same command again" in told
    assert not (tmp_path / "w" / "report" / "index.html").exists()
    earmark("run", recipe, "--work", "w", folder=tmp_path)
    assert (tmp_path / "w" / "report" / "index.html").exists()


def test_a_table_of_ones_own_is_imported_and_bad_audio_quarantined(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        soundfile.write(tmp_path / f"{name}.wav", rng.normal(0, 0.1, 16_000), 16_000)
    (tmp_path / "broken.wav").write_bytes(b"this is not sound")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 16_000)
    soundfile.write(tmp_path / "nan.wav", np.full(16_000, np.nan), 16_000, subtype="FLOAT")
    names = ["a", "b", "c", "broken", "empty", "nan", "gone"]
    splits = ["train", "tune", "eval", "train", "train", "train", "train"]
    audio = [f"{name}.wav" for name in names]
    pl.DataFrame({"clip_id": names, "audio": audio, "split": splits}).write_csv(
        tmp_path / "clips.csv"
    )
    labels = {"clip_id": ["a", "b"], "class_id": ["hiss", "hiss"], "present": [True, False]}
    pl.DataFrame(labels).write_csv(tmp_path / "labels.csv")
    earmark("import", "table", "labels.csv", "--clips", "clips.csv", "--work", "w", folder=tmp_path)
    done = earmark("features", "w", "--json", folder=tmp_path)
    assert "7/7 clips" not in done.stderr  # a program that reads JSON is shown no progress
    told = json.loads(done.stdout)
    assert (told["clips"], told["read"], told["quarantined"]) == (7, 3, 4)
    quarantine = read_quarantine(Workspace(tmp_path / "w"))
    assert set(quarantine["clip_id"]) == {"broken", "empty", "nan", "gone"}
    assert all(len(reason) > 10 for reason in quarantine["reason"])
    assert any("'gone'" in reason for reason in told["reasons"])
    for line in ("x no audio file given: 'gone'", "quarantine.parquet", "quarantined: 4"):
        assert line in earmark("features", "w", folder=tmp_path).stdout


def test_importing_earmark_is_instant_and_without_torch(tmp_path: Path) -> None:
    script = "import sys, earmark; print([n for n in sys.argv[1:] if n in sys.modules])"
    slow_to_load = ["torch", "polars", "scipy", "numpy", "matplotlib", "pydantic"]
    command = [sys.executable, "-c", script, *slow_to_load]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_scan_needs_labels_and_scores_only(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states = (rng.random((400, 3)) < 0.2).astype(np.int8)
    np.save(tmp_path / "labels.npy", states)
    np.save(tmp_path / "scores.npy", rng.normal(2 * states - 3, 1).astype(np.float32))
    command = ["scan", "--labels", "labels.npy", "--scores", "scores.npy", "--out", "found"]
    told = json.loads(earmark(*command, "--json", folder=tmp_path).stdout)
    assert told["flags"] > 0
    for name in ("index.html", "flags.csv", "classes.csv", "thresholds.parquet"):
        assert (tmp_path / "found" / name).exists()
    fewer = [*command, "--policy", "budget", "--n-flags", "2", "--json"]
    assert json.loads(earmark(*fewer, folder=tmp_path).stdout)["flags"] == 2
    earmark(*command, "--scale", "decibels", folder=tmp_path, code=2)


def test_features_of_a_workspace_with_embeddings_leaves_them_alone(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w")
    told = json.loads(earmark("features", "w", "--json", folder=tmp_path).stdout)
    assert (told["read"], told["quarantined"]) == (len(workspace.clips), 0)


def test_lint_lists_every_bad_line_of_a_file(tmp_path: Path) -> None:
    rows = "clip_id,class_id,present\na,hiss,true\nb,hiss,false\na,hiss,false\nz,hiss,1\n"
    (tmp_path / "labels.csv").write_text(rows)
    (tmp_path / "clips.csv").write_text("clip_id,audio\na,a.wav\nb,b.wav\n")
    done = earmark("check", "labels.csv", "--clips", "clips.csv", folder=tmp_path, code=1)
    assert "line 4: contradicts line 2" in done.stdout
    assert "line 5: clip 'z' is not in the list" in done.stdout
    found = earmark("check", "labels.csv", "--json", folder=tmp_path, code=1)
    assert [finding["line"] for finding in json.loads(found.stdout)["findings"]] == [4]


def test_lint_reads_tables_as_people_write_them(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("clip_id;class_id;present\n007;dog;yes\n\n08;dog;no\n")
    (tmp_path / "clips.tsv").write_text("clip_id\tn\n007\t1\n")
    done = earmark("check", "labels.csv", "--clips", "clips.tsv", folder=tmp_path, code=1)
    assert done.stdout.startswith("1 finding in labels.csv\nerror: line 4: clip '08' is not in the")


def test_a_full_disk_loses_nothing_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    workspace = band_workspace(tmp_path / "w")
    monkeypatch.setattr(sys, "argv", ["earmark", "export", str(workspace.root), "x.csv"])
    logits = np.zeros((len(workspace.rows("train")), 3), np.float32)
    write_score_folder(
        workspace.scores_folder("teacher"),
        workspace.clips["clip_id"].gather(workspace.rows("train")),
        workspace.ontology.class_ids,
        logits,
        np.zeros(logits.shape, np.uint16),
        out_of_fold=True,
        digest="",
    )
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(artefacts, "flush", full)
        with pytest.raises(SystemExit) as stopped:
            app.main()
    assert stopped.value.code == 2
    assert "make room and run the same command" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    with pytest.raises(SystemExit) as finished:
        app.main()
    assert finished.value.code == 0
    assert (tmp_path / "x.csv").exists()


def test_what_cannot_be_measured_is_said_in_words(tmp_path: Path) -> None:
    clip_ids, logits = pl.Series(["a", "b"]), np.zeros((2, 1), np.float32)
    write_score_folder(
        tmp_path / "s", clip_ids, ["x"], logits, None, out_of_fold=True, digest="made up"
    )
    labels = {"clip_id": ["a", "b"], "class_id": ["x", "x"], "present": [False, False]}
    pl.DataFrame(labels).write_csv(tmp_path / "labels.csv")
    told = earmark("evaluate", "labels.csv", "s", folder=tmp_path).stdout
    assert "nan" not in told
    assert "A dash: no class has both positives and negatives" in told
    known = json.loads(earmark("evaluate", "labels.csv", "s", "--json", folder=tmp_path).stdout)
    assert None in known.values()
