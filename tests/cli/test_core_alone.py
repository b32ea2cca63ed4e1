"""Every verb either works with the core alone, or says in one line which extra it needs.

The optional libraries are hidden from a Python of its own, so that this runs everywhere; where
they are really missing (``make test-core``), there is nothing to hide.
"""

from __future__ import annotations

import json
import re
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer

from audioset_files import BALANCED, EVAL, sequence_example, tfrecord, write_official
from called_verbs import assert_fits
from earmark.cli.app import app
from earmark.datasets import Workspace, stamp_path, stamped
from earmark.scores import write_score_folder
from earmark.storage import write_sealed
from extras import LIBRARIES, OPTIONAL, TESTS, is_installed, run_without
from made_up import make_choices
from verbs import Outcome

CLASS_IDS = ("bark", "meow", "rain")
SMALL = """\
name = "small"
scenes = {n_train = 8, n_tune = 4, n_eval = 4, clip_seconds = 1.5}
"""

PREPARATION = [
    "import table labels.csv --clips clips.csv --embeddings vectors.npy --work W --deal-splits",
    "import table sounds/sounds.csv --audio sounds --work SOUNDS",
]
COMMANDS = {
    "import table": "labels.csv --clips clips.csv --embeddings vectors.npy --work OTHER",
    "import sounds": "sounds sounds/sounds.csv --work HEARD",
    "import mixtures": "sounds sounds/sounds.csv --work MIXED --clips 2 --groups 3 --workers 1",
    "import audioset": "AUDIOSET --work OFFICIAL",
    "import audioset-features": "AUDIOSET --work VECTORS",
    "import hf": "sounds/sounds.parquet --work HUB",
    "import webdataset": "sounds/sounds.tar --work TARS",
    "import fsd50k": "FSD50K --work FREESOUND",
    "import workspace": "W --work HIDDEN --assume-complete --recall 0.3,0.95 --train-share 0.5",
    "import scenes": "SCENES --recipe small.toml --workers 1",
    "scan": "--labels labels.csv --scores scores.npy --clips clips.csv --classes classes.txt",
    "find": "sounds sounds/sounds.csv --work FOUND --no-review --workers 1",
    "teachers add": "labels.csv",
    "teachers get": "yamnet",
    "features": "SOUNDS --workers 1",
    "train": "W",
    "score": "W --workers 1",
    "flag": "W",
    "export": "W enhanced.csv",
    "export --to onnx": "W teacher.onnx --model teacher",
    "evaluate": "W/labels.parquet W/scores/teacher",
    "review --write-only": "W --aim measure --flags-per-block 2 --blocks-per-class 1",
    "answers --import": "answers.csv W",
    "answers --export": "judged.csv W",
    "answers": "W",
    "relabel": "W",
    "review": "W --no-open --port 0",
    "sweep": "W --workers 1",
    "compare": "W --workers 1",
    "check --clips": "clips.csv labels.csv",
    "check": "W --quick",
    "diff": "given corrected --work W --out changes.csv",
    "report --card": "CARD.md W",
    "report": "W",
    "tag": "sounds/clip0.wav --model W/models/teacher",
    "run": "small.toml --work RUN --workers 1",
    "demo": "--work DEMO --workers 1 --scenes 400 --draws 2",
}
"""Commands of each verb, in an order in which each finds what it needs."""

NEEDS = {
    "import mixtures": {"audio"},
    "find": {"find"},
    "features": {"audio"},
    "train": {"train"},
    "score": {"train"},
    "review": {"review"},
    "sweep": {"train"},
    "compare": {"train"},
    "report": {"train", "report"},
    "export --to onnx": {"train", "onnx"},
    "tag": {"audio", "train", "report"},
    "run": {"audio", "train", "report"},
}
"""The extras of the verbs that cannot do without; all others work with the core alone."""

REFUSED = {
    "teachers add": "labels.csv: not weights that are known here",
    "teachers get": "yamnet could not be downloaded",
}
"""Verbs that work with the core alone, but not with what there is in a test, and what they say."""

ONLY_WITH_SOUND = ["find", "features", "tag", "run"]


def write_tables(folder: Path) -> None:
    """Write an owner's tables: labels, clips, scores, and vectors in place of sound."""
    rng = np.random.default_rng(0)
    is_present = rng.random((240, 3)) < 0.3
    scores = rng.normal(2.0 * is_present, 1).astype(np.float32)
    rows = [
        f"clip{i},{class_id},{int(is_present[i, c])}"
        for i in range(240)
        for c, class_id in enumerate(CLASS_IDS)
        if rng.random() < 0.5
    ]
    (folder / "labels.csv").write_text("\n".join(["clip_id,class_id,present", *rows]))
    (folder / "clips.csv").write_text("\n".join(["clip_id", *(f"clip{i}" for i in range(240))]))
    (folder / "classes.txt").write_text("\n".join(CLASS_IDS))
    (folder / "small.toml").write_text(SMALL)
    np.save(folder / "scores.npy", scores)
    np.save(folder / "vectors.npy", rng.normal(size=(240, 8)).astype(np.float32))


def fill_workspace(folder: Path) -> None:
    """Give a workspace scores and a comparison, and write answers to its flags."""
    workspace = Workspace.open(folder / "W")
    rows = workspace.rows("train")
    clip_ids = workspace.clips["clip_id"][rows]
    logits = np.load(folder / "scores.npy")[rows]
    write_score_folder(
        workspace.scores_folder("teacher"),
        clip_ids,
        workspace.ontology.class_ids,
        logits,
        np.zeros(logits.shape, np.uint16),
        out_of_fold=True,
        digest="made up",
    )
    choices = make_choices({"baseline": 0.0, "mask": 0.02}, {"mask": 0.01})
    path = workspace.compare_table_path("choices")
    write_sealed(stamp_path(path), {path.name: choices}, stamped(workspace))
    answers = [f"{clip_id},{class_id},yes" for clip_id in clip_ids for class_id in CLASS_IDS]
    (folder / "answers.csv").write_text("\n".join(["clip_id,class_id,answer", *answers]))


def write_sounds(folder: Path) -> None:
    """Write three sound files and their labels, with no library but Python's own."""
    folder.mkdir()
    for i in range(3):
        with wave.open(str(folder / f"clip{i}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(bytes(2 * 16_000))
    rows = [f"clip{i}.wav,bark" for i in range(3)]
    (folder / "sounds.csv").write_text("\n".join(["filename,label", *rows]))
    labels = pl.DataFrame({"clip_id": ["007", "008"], "labels": [["bark"], ["bark", "rain"]]})
    labels.write_parquet(folder / "sounds.parquet")
    (folder / "clip0.cls").write_text("bark")
    with tarfile.open(folder / "sounds.tar", "w") as tar:
        for name in ("clip0.cls", "clip0.wav"):
            tar.add(folder / name, name)
    (folder / "clip0.cls").unlink()


def write_official_layouts(folder: Path) -> None:
    """Write AudioSet and FSD50K with a few clips each, without sound."""
    audioset = write_official(folder / "AUDIOSET", BALANCED, EVAL)
    for part, video_id in (("bal_train", "--PJHxphWEs"), ("eval", "-0SdAVK79lg")):
        path = audioset / "audioset_v1_embeddings" / part / "00.tfrecord"
        path.parent.mkdir(parents=True)
        frames = np.zeros((10, 128), np.uint8)
        path.write_bytes(tfrecord([sequence_example(video_id, 30, 40, [0], frames)]))
    truth = folder / "FSD50K" / "FSD50K.ground_truth"
    truth.mkdir(parents=True)
    (truth / "vocabulary.csv").write_text("0,Bark,/m/bark\n1,Rain,/m/rain\n")
    (truth / "dev.csv").write_text("fname,labels,mids,split\n1,Bark,/m/bark,train\n")
    (truth / "eval.csv").write_text("fname,labels,mids\n2,Rain,/m/rain\n")


def run_all(folder: Path, verbs: list[str], hidden: set[str]) -> dict[str, Outcome]:
    """Run one command for each verb where some libraries are hidden."""
    folder.mkdir()
    write_tables(folder)
    write_sounds(folder / "sounds")
    write_official_layouts(folder)
    for made in run_each(folder, PREPARATION, hidden):
        assert made.code == 0, made.stderr
    fill_workspace(folder)
    commands = [f"{verb} {COMMANDS[verb]}" for verb in verbs]
    return dict(zip(verbs, run_each(folder, commands, hidden), strict=True))


def run_each(folder: Path, commands: list[str], hidden: set[str]) -> list[Outcome]:
    told = json.dumps([command.split() for command in commands])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("https_proxy", "http://127.0.0.1:9")  # nobody is there: no network
        result = run_without(hidden, [str(TESTS / "verbs.py")], folder, stdin=told)
    assert result.returncode == 0, result.stderr
    return [Outcome(**fields) for fields in json.loads(result.stdout)]


@pytest.fixture(scope="module")
def with_core_alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return run_all(tmp_path_factory.mktemp("core") / "here", [*COMMANDS], OPTIONAL)


@pytest.fixture(scope="module")
def with_audio(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    if not all(map(is_installed, LIBRARIES["audio"])):
        pytest.skip("the extra `audio` is not installed")
    hidden = OPTIONAL - LIBRARIES["audio"]
    return run_all(tmp_path_factory.mktemp("audio") / "here", ONLY_WITH_SOUND, hidden)


def test_every_verb_is_called() -> None:
    assert {verb.split(" --")[0] for verb in COMMANDS} == set(names_of(typer.main.get_command(app)))


def names_of(group: Any) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from (f"{name} {inner}" for inner in names_of(command))
        else:
            yield name


@pytest.mark.parametrize("verb", [verb for verb in COMMANDS if verb not in {*NEEDS, *REFUSED}])
def test_it_works_with_the_core_alone(verb: str, with_core_alone: dict[str, Outcome]) -> None:
    outcome = with_core_alone[verb]
    assert outcome.code == 0, outcome.stderr


@pytest.mark.parametrize("verb", REFUSED)
def test_it_says_what_else_is_missing(verb: str, with_core_alone: dict[str, Outcome]) -> None:
    outcome = with_core_alone[verb]
    assert outcome.code == 2, outcome.stderr
    assert REFUSED[verb] in outcome.stderr
    assert "pip install" not in outcome.stderr


def test_the_users_cache_needs_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = run_each(tmp_path, ["teachers"], OPTIONAL)
    assert (listed[0].code, "not on this machine" in listed[0].stdout) == (0, True)
    monkeypatch.delenv("EARMARK_TEACHERS")
    for outcome in run_each(tmp_path, ["teachers", "teachers get yamnet"], OPTIONAL):
        assert_names_extra(outcome, {"pretrained"})


@pytest.mark.parametrize("name", ["Supervision", "ClipDataset"])
def test_a_public_name_tells_its_extra(name: str) -> None:
    done = run_without(OPTIONAL, ["-c", f"from earmark import {name}"])
    told = done.stderr.strip().splitlines()[-1]
    assert told.endswith(f"earmark.{name} needs torch: pip install 'earmark[train]'"), done.stderr


@pytest.mark.parametrize("verb", NEEDS)
def test_it_names_the_extra_to_install(verb: str, with_core_alone: dict[str, Outcome]) -> None:
    assert_names_extra(with_core_alone[verb], NEEDS[verb])


@pytest.mark.parametrize("verb", ONLY_WITH_SOUND)
def test_with_audio_it_goes_as_far_as_it_can(verb: str, with_audio: dict[str, Outcome]) -> None:
    missing = NEEDS[verb] - {"audio"}
    if missing:
        assert_names_extra(with_audio[verb], missing)
    else:
        assert with_audio[verb].code == 0, with_audio[verb].stderr


def assert_names_extra(outcome: Outcome, extras: set[str]) -> None:
    """Assert that a command ended with one line that says how to install some of the extras."""
    assert outcome.code == 2, outcome.stderr or outcome.stdout
    lines = outcome.stderr.strip().splitlines()
    assert len(lines) <= 2, outcome.stderr  # one sentence
    assert "No module named" not in outcome.stderr
    found = re.search(r"pip install 'earmark\[([\w,]+)\]'", outcome.stderr)
    assert found, lines
    assert set(found[1].split(",")) <= extras, lines


@pytest.mark.parametrize("verb", COMMANDS)
def test_what_it_prints_fits_a_terminal(verb: str, with_core_alone: dict[str, Outcome]) -> None:
    outcome = with_core_alone[verb]
    assert_fits(outcome.stdout)
    assert_fits(outcome.stderr)
