from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile
from typer.testing import CliRunner, Result

from earmark.cli.app import app
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.networks.model_card import StudentCard, write_card
from earmark.networks.onnx_export import open_session
from earmark.networks.tagging import Tagger
from earmark.runs.artefacts import read_table, write_table
from earmark.runs.parameters import ModelParams
from earmark.runs.recipe import read_recipe
from earmark.scores.folder import ScoreFolder
from made_up_onnx import loudness, mean_of_patches
from scenes import band_workspace, open_store
from sounds import ONTOLOGY, model_folder, sound, sound_workspace


def earmark(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def refusal(*arguments: object) -> str:
    """Run a command that a user got wrong; return what they are told."""
    done = earmark(*arguments, code=1)
    assert isinstance(done.exception, EarmarkError), done.exception
    return str(done.exception)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = sound_workspace(tmp_path_factory.mktemp("w"), n_clips=2)
    model_folder(workspace.model_folder("teacher"), open_store(workspace))
    return workspace.model_folder("teacher")


def test_tag_names_classes_and_draws_when(model: Path, tmp_path: Path) -> None:
    path = model.parent.parent / "audio" / "clip0.wav"
    command = ("tag", path, path, "--model", model, "--top", 2, "--out", tmp_path / "pictures")
    told = earmark(*command).stdout
    best = Tagger.open(model).tag(path).top(2)
    for tag in best:
        assert f"{tag.score:.3f}  {tag.name}" in told
    pictures = ["clip0.wav-2.png", "clip0.wav.png"]
    assert sorted(one.name for one in (tmp_path / "pictures").iterdir()) == pictures
    files = json.loads(earmark(*command, "--json").stdout)["files"]
    assert [tag["class_id"] for tag in files[1]["tags"]] == [tag.class_id for tag in best]
    assert Path(files[1]["timeline"]).name == "clip0.wav-2.png"


def test_unreadable_files_are_named_and_the_others_tagged(model: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_text("no sound")
    soundfile.write(tmp_path / "good.wav", sound(0), 16_000)
    paths = [tmp_path / name for name in ("bad.wav", "gone.wav", "good.wav")]
    done = earmark("tag", *paths, "--model", model, "--out", tmp_path, "--json", code=1)
    told = json.loads(done.stdout)
    assert [Path(one["audio"]).name for one in told["unreadable"]] == ["bad.wav", "gone.wav"]
    assert [Path(one["audio"]).name for one in told["files"]] == ["good.wav"]
    assert "bad.wav" in done.stderr
    assert "gone.wav: no such file" in done.stderr


def test_tag_refuses_what_is_no_model_of_sound(tmp_path: Path) -> None:
    assert "card.json is missing" in refusal("tag", "a.wav", "--model", tmp_path)
    store = open_store(band_workspace(tmp_path / "w", n_clips=3))
    model_folder(tmp_path / "p", store, ModelParams(architecture="mlp_probe"))
    assert "embeddings" in refusal("tag", "a.wav", "--model", tmp_path / "p")


@pytest.mark.parametrize("verb", ["tag", "export-model"])
@pytest.mark.parametrize("name", ["weights.safetensors", "card.json", "meta.json", "params.json"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage"])
def test_a_damaged_model_is_named_with_what_to_do(
    model: Path, tmp_path: Path, verb: str, name: str, damage: str
) -> None:
    damaged = tmp_path / "m"
    shutil.copytree(model, damaged)
    whole = (damaged / name).read_bytes()
    content = {"empty": b"", "truncated": whole[: len(whole) // 2], "garbage": b"{}garbage"}
    (damaged / name).write_bytes(content[damage])
    command = ("a.wav", "--model", damaged) if verb == "tag" else (damaged, "--out", "m.onnx")
    told = refusal(verb, *command)
    assert str(damaged / name) in told
    assert "delete" in told


def test_one_student_is_used_by_its_name(model: Path, tmp_path: Path) -> None:
    store = open_store(Workspace.open(model.parent.parent))
    model_folder(tmp_path / "s", store, n_students=2)
    names = [StudentCard(name="cnn-mask0"), StudentCard(name="cnn-mask1")]
    write_card(tmp_path / "s", ONTOLOGY, students=names)
    path = tmp_path / "one.onnx"
    command = ("export-model", tmp_path / "s", "--no-front-end", "--out", path, "--student")
    earmark(*command, "cnn-mask1")
    (logits,) = open_session(path).get_outputs()
    assert len(logits.shape) == 2  # no axis of students
    assert "did you mean 'cnn-mask" in refusal(*command, "cnn-mask2")
    audio = model.parent.parent / "audio" / "clip0.wav"
    command = ("tag", audio, "--model", tmp_path / "s", "--out", tmp_path)
    assert "clip0.wav" in earmark(*command, "--student", "cnn-mask1").stdout
    assert "no student 'x'" in refusal(*command, "--student", "x")
    assert "choose one with --student" in refusal(*command)


RECIPE = """
[teacher]
name = "teacher"
model = { width = 0.125 }
train = { epochs = 1 }

[[students]]
name = "student"
model = { width = 0.125 }
train = { epochs = 1 }

[cross_fit]
n_folds = 2

[front_end]
low_hz = LOW
"""


def test_frames_made_with_other_parameters_are_refused_with_both_digests(tmp_path: Path) -> None:
    work = sound_workspace(tmp_path / "w", n_clips=6).root
    clips = read_table(work / "clips.parquet")
    splits = pl.Series("split", ["train", "train", "train", "train", "tune", "eval"])
    write_table(work / "clips.parquet", clips.with_columns(splits))
    first, other = tmp_path / "first.toml", tmp_path / "other.toml"
    first.write_text(RECIPE.replace("LOW", "125.0"))
    other.write_text(RECIPE.replace("LOW", "60.0"))
    digests = [read_recipe(path).front_end.digest() for path in (first, other)]
    earmark("score", work, "--recipe", first, "--workers", 1)
    for verb in ("train", "score", "sweep", "compare", "iterate"):
        told = refusal(verb, work, "--recipe", other)
        assert f"front end {digests[0]}, the recipe has {digests[1]}" in told
        assert f"run `earmark features {work}` with this recipe" in told
    earmark("features", work, "--recipe", other, "--workers", 1)
    for verb in ("sweep", "compare", "iterate"):  # by a teacher that knows the old frames
        told = refusal(verb, work, "--workers", 1)
        assert "scores/teacher: older than the dataset, whose frames changed since" in told
        assert "with other low_hz (125.0, here 60.0)" in told
        assert f"run `earmark score {work}` again" in told
        assert not list(work.glob("models/student*"))  # nothing was trained in vain


def test_an_exported_model_is_a_teacher_without_a_class_map(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    told = json.loads(earmark("export-model", model, "--out", path, "--json").stdout)
    assert float(told["largest_difference"]) < 1e-4
    assert [one.name for one in open_session(path).get_inputs()] == ["waveforms"]
    work = model.parent.parent
    told = json.loads(earmark("score", work, "--onnx", path, "--json").stdout)
    assert told["unscored"] == []
    assert "waveforms [any, any] at 16,000 Hz to 'logits', logits" in told["model"]
    scores = ScoreFolder.open(work / "scores" / "teacher")
    expected = Tagger.open(model).tag(work / "audio" / "clip0.wav").scores
    assert scores.logits[0] == pytest.approx(np.log(expected / (1 - expected)), abs=1e-4)
    assert not scores.out_of_fold


def test_a_teacher_from_elsewhere_says_how_it_was_understood(tmp_path: Path) -> None:
    band_workspace(tmp_path / "w", n_clips=9)
    onnx, mapped = mean_of_patches(tmp_path / "m.onnx"), tmp_path / "map.csv"
    mapped.write_text("output,class_id\n0,low\n1,moo\n")
    command = ("score", tmp_path / "w", "--onnx", onnx, "--class-map", mapped)
    assert "map.csv, line 3" in refusal(*command)
    told = earmark(*command, "--skip-unknown", "--out-of-fold").stdout
    for expected in ("patches [any, 96, 64]", "logits", "'middle', 'high'", "out of fold"):
        assert expected in told
    assert "next: earmark flag" in told
    earmark("flag", tmp_path / "w", "--discard-percent", 50)
    assert "in-sample" in earmark(*command, "--skip-unknown").stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--class-map", "map.csv"), "--class-map says something of a model"),
        (("--input", "patches"), "--input says something of a model"),
        (("--onnx", "loud.onnx", "--input", "sounds"), "--input is waveforms or patches"),
        (("--onnx", "loud.onnx", "--scale", "dB"), "--scale is logits or probabilities"),
        (("--onnx", "loud.onnx", "--input", "patches"), "its input has 1 axes"),
        (("--onnx", "broken.onnx"), "broken.onnx: ONNX Runtime cannot open it"),
        (("--onnx", "gone.onnx"), "gone.onnx: no such file"),
    ],
)
def test_what_a_user_gets_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    band_workspace(tmp_path / "w", n_clips=3)
    loudness(tmp_path / "loud.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    assert told in refusal("score", "w", *options)
