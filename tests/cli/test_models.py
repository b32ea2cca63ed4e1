from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from called_verbs import earmark, refusal
from earmark.config import ModelParams, kept_recipe, read_recipe
from earmark.datasets import Workspace
from earmark.models import StudentCard, Tagger, open_session, write_card
from earmark.models.pretrained import embedding as listening
from earmark.scores import ScoreFolder
from earmark.storage import read_table, write_table
from made_up_onnx import loudness, mean_of_patches
from made_up_tflite import dense_network
from made_up_yamnet import install
from scenes import band_workspace, open_store
from sounds import ONTOLOGY, model_folder, sound, sound_workspace
from tone_folders import NAMES, ToneFolder, tone_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = sound_workspace(tmp_path_factory.mktemp("w"), n_clips=2)
    model_folder(workspace.model_folder("teacher"), open_store(workspace))
    return workspace.model_folder("teacher")


def test_tag_names_classes_and_tells_when(model: Path, tmp_path: Path) -> None:
    path = model.parent.parent / "audio" / "clip0.wav"
    command = ("tag", path, path, "--model", model, "--top", 2, "--out", tmp_path / "tags.csv")
    told = earmark(*command).stdout
    best = Tagger.open(model).tag(path).top(2)
    for tag in best:
        assert f"{tag.name} {tag.score:.2f}" in told
        assert f"{tag.score:.3f}  {tag.name}" in earmark(*command[:1], *command[2:]).stdout
    timeline = pl.read_csv(tmp_path / "tags.csv")
    assert timeline["class_id"].unique(maintain_order=True).to_list() == [
        tag.class_id for tag in best
    ]
    files = json.loads(earmark(*command, "--json").stdout)["files"]
    assert [tag["class_id"] for tag in files[1]["tags"]] == [tag.class_id for tag in best]


def test_unreadable_files_are_named_and_the_others_tagged(model: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_text("no sound")
    soundfile.write(tmp_path / "good.wav", sound(0), 16_000)
    paths = [tmp_path / name for name in ("bad.wav", "gone.wav", "good.wav")]
    done = earmark("tag", *paths, "--model", model, "--json", code=1)
    told = json.loads(done.stdout)
    assert [Path(one["audio"]).name for one in told["unreadable"]] == ["bad.wav", "gone.wav"]
    assert [Path(one["audio"]).name for one in told["files"]] == ["good.wav"]
    assert "bad.wav" in done.stderr
    assert "gone.wav: no such file" in " ".join(done.stderr.split())


def test_tag_refuses_what_is_no_model_of_sound(tmp_path: Path) -> None:
    assert "card.json is missing" in refusal("tag", "a.wav", "--model", tmp_path)
    store = open_store(band_workspace(tmp_path / "w", n_clips=3))
    model_folder(tmp_path / "p", store, ModelParams(architecture="mlp_probe"))
    assert "embeddings" in refusal("tag", "a.wav", "--model", tmp_path / "p")


@pytest.mark.parametrize("verb", ["tag", "export"])
@pytest.mark.parametrize("name", ["weights.safetensors", "card.json", "meta.json", "params.json"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage"])
def test_a_damaged_model_is_named_with_what_to_do(
    model: Path, tmp_path: Path, verb: str, name: str, damage: str
) -> None:
    damaged = tmp_path / "models" / "m"
    shutil.copytree(model, damaged)
    whole = (damaged / name).read_bytes()
    content = {"empty": b"", "truncated": whole[: len(whole) // 2], "garbage": b"{}garbage"}
    (damaged / name).write_bytes(content[damage])
    export = (tmp_path, "m.onnx", "--to", "onnx", "--model", damaged.name)
    command = ("a.wav", "--model", damaged) if verb == "tag" else export
    told = refusal(verb, *command)
    assert str(damaged / name) in told
    assert "delete" in told


def test_one_student_is_used_by_its_name(model: Path, tmp_path: Path) -> None:
    store = open_store(Workspace.open(model.parent.parent))
    probe = ModelParams(architecture="linear_probe")
    model_folder(tmp_path / "models" / "s", store, probe, n_students=2)
    names = [StudentCard(name="cnn-mask0"), StudentCard(name="cnn-mask1")]
    write_card(tmp_path / "models" / "s", ONTOLOGY, students=names)
    path = tmp_path / "one.onnx"
    command = ("export", tmp_path, path, "--to", "onnx", "--student")
    earmark(*command, "cnn-mask1")
    (logits,) = open_session(path).get_outputs()
    assert len(logits.shape) == 2  # no axis of students
    assert "did you mean 'cnn-mask" in refusal(*command, "cnn-mask2")


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
    for verb in ("train", "score", "sweep", "compare"):
        told = refusal(verb, work, "--recipe", other)
        assert f"front end {digests[0]}, the recipe has {digests[1]}" in told
        assert f"run `earmark features {work}` with this recipe" in told
    earmark("features", work, "--recipe", other, "--workers", 1)
    for verb in ("sweep", "compare"):  # by a teacher that knows the old frames
        told = refusal(verb, work, "--workers", 1)
        assert "scores/teacher: older than the dataset, whose frames changed since" in told
        assert "with other low_hz (125.0, here 60.0)" in told
        assert f"run `earmark score {work}` again" in told
        assert not list(work.glob("models/student*"))  # nothing was trained in vain


def test_an_exported_model_is_a_teacher_without_a_class_map(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    told = json.loads(
        earmark(
            "export", model.parent.parent, path, "--to", "onnx", "--model", model.name, "--json"
        ).stdout
    )
    assert float(told["largest_difference"]) < 1e-4
    assert [one.name for one in open_session(path).get_inputs()] == ["waveforms"]
    work = tmp_path / "w"
    shutil.copytree(model.parent.parent, work)
    told = json.loads(earmark("score", work, "--teacher", path, "--json").stdout)
    assert (told["teacher"], told["way"], told["out_of_fold"]) == ("m", "zero-shot", False)
    assert told["classes"].startswith("3 of 3 classes are ones that m knows")
    scores = ScoreFolder.open(work / "scores" / "teacher-zero-shot")
    expected = Tagger.open(model).tag(work / "audio" / "clip0.wav").scores
    assert scores.logits[0] == pytest.approx(np.log(expected / (1 - expected)), abs=1e-4)
    assert not scores.out_of_fold


def test_a_teacher_from_elsewhere_says_how_it_was_understood(tmp_path: Path) -> None:
    work = sound_workspace(tmp_path / "w", n_clips=5).root
    onnx, mapped = mean_of_patches(tmp_path / "m.onnx"), tmp_path / "map.csv"
    mapped.write_text("output,class_id\n0,Beep\n1,moo\n")
    command = ("score", work, "--teacher", onnx, "--class-map", mapped)
    assert "map.csv, line 3" in refusal(*command)
    told = earmark(*command, "--skip-unknown", "--out-of-fold").stdout
    for expected in (
        "Teacher: m, its own classes; it gives no embeddings to learn from.",
        f"1 of 3 classes are mapped by {mapped}",
        "clips: 4",
        f"next: earmark flag {work}",
    ):
        assert expected in " ".join(told.split()), told
    assert ScoreFolder.open(work / "scores" / "teacher-zero-shot").out_of_fold
    earmark("flag", work, "--discard-percent", 50)
    earmark(*command, "--skip-unknown")
    assert not ScoreFolder.open(work / "scores" / "teacher-zero-shot").out_of_fold


def test_what_is_told_fits_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sound_workspace(tmp_path / "w", n_clips=5)
    mean_of_patches(tmp_path / "m.onnx", class_ids=("/m/hum", "/m/beep", "/m/hiss"))
    for line in earmark("score", "w", "--teacher", "m.onnx").stdout.splitlines():
        assert len(line) <= 80, line


@pytest.fixture
def tones(
    knowing_yamnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[ToneFolder, Path]:
    """A workspace of tones, not taught by anybody, where YAMNet is on the machine."""
    install(monkeypatch, tmp_path / "cache", knowing_yamnet)
    tones = tone_folder(tmp_path, 24)
    earmark("import", "sounds", tones.sounds, tones.labels, "--work", tmp_path / "w")
    return tones, tmp_path / "w"


def test_without_a_recipe_the_cached_teacher_scores_and_says_so(
    tones: tuple[ToneFolder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, work = tones
    told = earmark("score", work, "--workers", 1).stdout
    assert "Teacher: yamnet, its own classes" in told
    assert "24 labelled clips are too few to learn from (under 200)" in " ".join(told.split())
    assert (work / "scores" / "teacher-zero-shot" / "meta.json").exists()
    assert kept_recipe(work).pretrained is not None
    again = earmark("score", work, "--workers", 1).stdout
    assert "Teacher: yamnet, its own classes" in again
    monkeypatch.setenv("EARMARK_TEACHERS", str(work / "empty"))
    listening._opened.cache_clear()
    assert "not on this machine" in refusal("score", work)


def test_without_weights_a_teacher_is_trained_from_scratch(
    tones: tuple[ToneFolder, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, work = tones
    monkeypatch.setenv("EARMARK_TEACHERS", str(tmp_path / "empty"))
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.replace("LOW", "125.0"))
    earmark("features", work, "--recipe", recipe, "--workers", 1)
    told = earmark("score", work, "--workers", 1).stdout
    assert "scored: out of fold" in told
    assert (work / "scores" / "teacher" / "meta.json").exists()


def test_a_recipe_that_is_given_goes_before_the_cached_teacher(
    tones: tuple[ToneFolder, Path], tmp_path: Path
) -> None:
    _, work = tones
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.replace("LOW", "125.0"))
    earmark("features", work, "--recipe", recipe, "--workers", 1)
    told = earmark("score", work, "--recipe", recipe, "--workers", 1).stdout
    assert "scored: out of fold" in told
    assert "yamnet," not in told


def test_in_sample_is_for_a_teacher_from_scratch(tones: tuple[ToneFolder, Path]) -> None:
    _, work = tones
    earmark("score", work, "--workers", 1)
    assert "--in-sample is for a teacher that is trained here" in refusal(
        "score", work, "--in-sample"
    )
    told = refusal("score", work, "--in-sample", "--teacher", "yamnet")
    assert told == "--teacher does not go with --in-sample"


def test_a_way_is_asked_for_and_told_as_json(tones: tuple[ToneFolder, Path]) -> None:
    _, work = tones
    command = ("score", work, "--way", "blend", "--workers", 1, "--json")
    told = json.loads(earmark(*command).stdout)
    assert told["way"] == "blend"
    assert [*told["tried"]] == ["zero-shot", "probe", "blend"]
    assert Path(told["scores"]).name == "teacher-blend"
    assert isinstance(told["is_weak"], bool)
    assert told["auc"] == told["tried"]["blend"]["auc"]
    assert told["next"] == f"earmark flag {work}"
    assert "--way is zero-shot, probe, blend or fine-tuned, got 'best'" in refusal(
        "score", work, "--way", "best"
    )


def test_own_scores_make_way_for_a_teacher_only_when_told(
    tones: tuple[ToneFolder, Path], tmp_path: Path
) -> None:
    _, work = tones
    clip_ids = read_table(work / "clips.parquet")["clip_id"]
    scores = np.random.default_rng(0).normal(size=(24, 3))
    own = pl.DataFrame({"clip_id": clip_ids, **dict(zip(NAMES, scores.T, strict=True))})
    own.write_parquet(tmp_path / "own.parquet")
    earmark("score", work, "--from", tmp_path / "own.parquet")
    command = ("score", work, "--teacher", "yamnet", "--way", "probe", "--workers", 1)
    assert "scores of your own" in refusal(*command)
    earmark(*command, "--replace")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--class-map", "map.csv"), "--class-map does not go with a teacher that is trained here"),
        (("--input", "patches"), "trains a teacher from scratch; --teacher and --way go with"),
        (("--clips", "c.csv"), "--clips does not go with a teacher that is trained here"),
        (("--from", "s.npy", "--way", "probe"), "--way does not go with --from"),
        (("--from", "s.npy", "--teacher", "loud.onnx"), "--teacher does not go with --from"),
        (("--teacher", "loud.onnx", "--input", "sounds"), "--input is waveforms or patches"),
        (("--teacher", "loud.onnx", "--scale", "dB"), "--scale is logits or probabilities"),
        (("--teacher", "loud.onnx", "--input", "patches"), "its input has 1 axes"),
        (("--teacher", "loud.onnx"), "not one of 3 classes is surely one that loud knows"),
        (("--teacher", "broken.onnx"), "broken.onnx: ONNX Runtime cannot open it"),
        (("--teacher", "gone.onnx"), "gone.onnx: no such file"),
        (("--teacher", "m.xyz"), "m.xyz: no network of a kind that is known here"),
        (("--teacher", "yamnet"), "yamnet is not on this machine yet"),
        (
            ("--teacher", "small.tflite"),
            "it takes 100 samples and does not say at which rate; say it with --sample-rate",
        ),
        (("--teacher", "yamnet.h5"), "yamnet.h5: expected YAMNet's weights"),
    ],
)
def test_what_a_user_gets_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    sound_workspace(tmp_path / "w", n_clips=3)
    loudness(tmp_path / "loud.onnx")
    dense_network(tmp_path / "small.tflite")
    for name in ("broken.onnx", "yamnet.h5"):
        (tmp_path / name).write_bytes(b"broken")
    listening._opened.cache_clear()
    assert told in refusal("score", "w", *options)
    assert not list((tmp_path / "w").glob("scores/*"))
    assert not (tmp_path / "w" / "recipe.json").exists(), "a mistake is not remembered"


def test_vectors_without_sound_cannot_be_heard(tmp_path: Path) -> None:
    band_workspace(tmp_path / "w", n_clips=3)
    model = mean_of_patches(tmp_path / "m.onnx", class_ids=("low", "middle", "high"))
    told = refusal("score", tmp_path / "w", "--teacher", model)
    assert "no clip has a sound file" in told
    assert f"earmark score {tmp_path / 'w'} --from FILE" in told
