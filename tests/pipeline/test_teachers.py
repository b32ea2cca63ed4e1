"""A workspace is taught by a pretrained network, in the way that does best."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from onnx import TensorProto, helper, numpy_helper

from earmark import pipeline
from earmark.compute import SILENT
from earmark.config import PretrainedParams, Recipe, find_recipe, kept_recipe
from earmark.datasets import (
    Workspace,
    find_stale,
    held_out_scores,
    import_sounds,
    import_workspace,
    whole_scores,
)
from earmark.errors import EarmarkError
from earmark.pipeline import asked_recipe, default_teacher, teach, teachers
from earmark.scores import ScoreFolder
from made_up_onnx import loudness, mean_of_patches
from made_up_yamnet import install
from scenes import band_workspace
from sounds import CLASS_IDS, sound, sound_workspace
from tone_folders import NAMES, ToneFolder, tone_folder

FIND = find_recipe("find")
QUICK = FIND.model_copy(
    update={
        "cross_fit": FIND.cross_fit.model_copy(update={"n_folds": 3}),
        "fine_tuned": FIND.fine_tuned.model_copy(
            update={"train": FIND.fine_tuned.train.model_copy(update={"epochs": 1})}
        ),
    }
)


@pytest.fixture(scope="module", autouse=True)
def _cache(
    knowing_yamnet: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[pytest.MonkeyPatch]:
    """YAMNet is on this machine, for this process, and 30 labelled clips are many."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(monkeypatch, tmp_path_factory.mktemp("cache"), knowing_yamnet)
        monkeypatch.setattr(teachers, "PROBE_CLIPS", 30)
        yield monkeypatch


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> ToneFolder:
    return tone_folder(tmp_path_factory.mktemp("tones"), 60)


def imported(tones: ToneFolder, work: Path) -> Workspace:
    return import_sounds(tones.sounds, tones.labels, work).workspace


def taught(workspace: Workspace, recipe: Recipe = QUICK, **options) -> pipeline.Taught:
    return teach(workspace, recipe, progress=SILENT, **options)


def asked(way: str, recipe: Recipe = QUICK) -> Recipe:
    return recipe.model_copy(update={"way": way})


@pytest.fixture(scope="module")
def compared(
    tones: ToneFolder, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workspace, pipeline.Taught]:
    workspace = imported(tones, tmp_path_factory.mktemp("compared"))
    return workspace, taught(workspace)


def test_ways_are_compared_and_the_best_is_taken(
    compared: tuple[Workspace, pipeline.Taught],
) -> None:
    workspace, found = compared
    assert [one.way for one in found.tried] == ["zero-shot", "probe", "blend"]
    best = max(found.tried, key=lambda one: one.hits)
    assert found.way == best.way
    assert best.auc > 0.8
    assert found.scores.folder.parent == workspace.root / "scores"
    assert len(found.scores.clip_ids) == 60
    for one in found.tried:
        name = QUICK.model_copy(update={"way": one.way}).scores_name
        assert ScoreFolder.open(workspace.scores_folder(name)).out_of_fold
    first, second = found.lines()
    assert first.startswith("Teacher: yamnet, ")
    for words in ("its own classes", "a probe on its embeddings", "both together", "60 labelled"):
        assert words in first
    assert "60 clips that it was not trained on" in second
    assert f"{100 * best.auc:.0f} times in 100" in second
    assert (
        found.classes_told
        == f"3 of 3 classes are ones that yamnet knows ({NAMES[0]!r}, 'Siren', 'Whistle')"
    )


def test_the_recipe_remembers_the_way_and_flags_go_by_it(
    compared: tuple[Workspace, pipeline.Taught],
) -> None:
    workspace, found = compared
    kept = kept_recipe(workspace.root)
    assert kept.way == found.way
    assert workspace.scores_folder(kept.scores_name) == found.scores.folder
    flagged = pipeline.write_flags(workspace, n_flags=10, policy="budget")
    assert len(flagged.flags) == 10
    assert find_stale(workspace) == []


def test_scores_know_missing_labels(
    compared: tuple[Workspace, pipeline.Taught], tones: ToneFolder
) -> None:
    _, found = compared
    logits = np.asarray(found.scores.logits)
    rows = [
        int(clip_id.removeprefix("clip").removesuffix(".wav")) for clip_id in found.scores.clip_ids
    ]
    present, given = tones.present[rows], tones.given[rows]
    missing, absent = logits[present & ~given], logits[~present]
    assert np.mean(missing[:, None] > absent) > 0.8


def test_finished_work_is_found_again(
    compared: tuple[Workspace, pipeline.Taught], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, found = compared

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    for place in (
        "earmark.models.pretrained.embedding.NetworkExtractor.frames",
        "earmark.models.pretrained.embedding._score_outputs",
        "earmark.training.loop.fit_probe",
        "earmark.training.teacher._train_and_score",
        "earmark.training.blend.learn_weights",
    ):
        monkeypatch.setattr(place, refuse)
    again = taught(workspace)
    assert (again.way, again.scores.digest, again.tried) == (
        found.way,
        found.scores.digest,
        found.tried,
    )


@pytest.mark.parametrize("way", ["zero-shot", "probe", "blend"])
def test_the_way_that_is_asked_for_is_taken(
    compared: tuple[Workspace, pipeline.Taught], way: str
) -> None:
    workspace, _ = compared
    found = taught(workspace, asked(way))
    assert found.way == way
    assert found.why == "as asked"
    assert kept_recipe(workspace.root).way == way
    assert found.best.way == way


def test_a_network_is_trained_further(tmp_path: Path) -> None:
    tones = tone_folder(tmp_path, 24)
    workspace = imported(tones, tmp_path / "w")
    found = taught(workspace, asked("fine-tuned"))
    assert (found.way, found.scores.folder.name) == ("fine-tuned", "teacher-fine-tuned")
    assert workspace.has_frames()
    begun = json.loads((workspace.root / "models/teacher-fine-tuned-fold0/params.json").read_text())
    assert begun["model"]["begins_with"].startswith("yamnet-")
    assert kept_recipe(workspace.root).taught.model.begins_with == begun["model"]["begins_with"]
    assert taught(workspace, asked("fine-tuned")).scores.digest == found.scores.digest


def test_with_few_labelled_clips_nothing_is_learnt(
    tones: ToneFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teachers, "PROBE_CLIPS", 61)
    workspace = imported(tones, tmp_path)
    found = taught(workspace)
    assert [one.way for one in found.tried] == ["zero-shot"]
    assert found.why == "60 labelled clips are too few to learn from (under 61)"
    assert not list(workspace.root.glob("models/*"))
    assert found.scores.origin is not None
    assert found.scores.out_of_fold, "Google's clips are others"


@pytest.fixture
def strangers(tmp_path: Path) -> Workspace:
    """Clips of classes that YAMNet does not have."""
    tones = tone_folder(tmp_path, 24, names=("qqx", "qqy", "qqz"))
    return imported(tones, tmp_path / "w")


def test_where_no_class_is_known_a_probe_goes_on(strangers: Workspace) -> None:
    for _ in range(2):
        found = taught(strangers)
        assert [one.way for one in found.tried] == ["probe"]
        assert found.why == "it knows none of the classes by itself, though 24 clips are few"
    assert found.classes_told == "not one of 3 classes is surely one that yamnet knows"


@pytest.mark.parametrize("way", ["zero-shot", "blend"])
def test_where_no_class_is_known_its_own_classes_are_refused_with_what_to_do(
    strangers: Workspace, way: str
) -> None:
    with pytest.raises(EarmarkError) as error:
        taught(strangers, asked(way))
    for words in ("not one of 3 classes", "class_map.csv", "column output", "--way probe"):
        assert words in str(error.value)
    assert not strangers.embeddings_folder.exists(), "nothing was listened to in vain"
    text = strangers.class_map_path.read_text().replace(",qqx,", "Siren,qqx,", 1)
    strangers.class_map_path.write_text(text)
    found = taught(strangers, asked(way))
    assert found.way == way
    assert found.classes_told.startswith("1 of 3 classes are mapped by")
    is_scored = np.isfinite(found.scores.logits).all(axis=0)
    assert is_scored.tolist() == ([True, False, False] if way == "zero-shot" else [True] * 3)


def test_a_class_map_that_names_strangers_is_refused_by_line(
    compared: tuple[Workspace, pipeline.Taught], tmp_path: Path
) -> None:
    workspace, _ = compared
    path = tmp_path / "map.csv"
    path.write_text("output,class_id\nSiren,Siren\nDog,Doge\n")
    with pytest.raises(EarmarkError, match=r"map\.csv, line 3: .*'Doge'; did you mean 'Dog'"):
        taught(workspace, class_map=path)
    path.write_text("output,class_id\nSirene,Siren\n")
    with pytest.raises(EarmarkError, match=r"map\.csv, line 2: the model has no output 'Sirene'"):
        taught(workspace, class_map=path)
    path.write_text("output,class_id\nDog,Siren\nSiren,Doge\n")
    found = taught(workspace, asked("zero-shot"), class_map=path, skip_unknown=True)
    assert np.isfinite(found.scores.logits).all(axis=0).tolist() == [False, True, False]


def test_splits_are_scored_and_the_tune_split_decides(tones: ToneFolder, tmp_path: Path) -> None:
    workspace = imported(tones, tmp_path)
    import_workspace(tmp_path, tmp_path, splits={"train": 0.3, "tune": 0.6, "eval": 0.1})
    workspace = Workspace(tmp_path)
    found = taught(workspace)
    n_tune = len(workspace.rows("tune"))
    assert found.evaluation_clips.told == f"{n_tune} clips of the tune split"
    for one in found.tried:
        name = QUICK.model_copy(update={"way": one.way}).scores_name
        scores = ScoreFolder.open(workspace.scores_folder(name))
        assert len(scores.clip_ids) == len(workspace.rows("train"))
        held_out = held_out_scores(workspace, scores)
        assert held_out is not None
        assert len(held_out.clip_ids) + len(scores.clip_ids) == 60
        assert len(whole_scores(workspace, scores).clip_ids) == 60


def test_clips_that_cannot_be_read_are_left_out_by_all_ways(tmp_path: Path) -> None:
    tones = tone_folder(tmp_path, 40)
    (tones.sounds / "clip007.wav").write_text("no sound")
    workspace = imported(tones, tmp_path / "w")
    found = taught(workspace)
    assert len(found.scores.clip_ids) == 39
    assert len(found.tried) == 3
    pipeline.write_flags(workspace)


def test_frames_of_the_probe_are_its_stamp(compared: tuple[Workspace, pipeline.Taught]) -> None:
    workspace, _ = compared
    for way, folder in (("probe", "embeddings"), ("zero-shot", "outputs"), ("blend", "embeddings")):
        name = QUICK.model_copy(update={"way": way}).scores_name
        meta = json.loads((workspace.scores_folder(name) / "meta.json").read_text())
        assert meta["frames_folder"] == folder


def test_a_recipe_from_scratch_has_no_teacher_to_ask(tones: ToneFolder, tmp_path: Path) -> None:
    workspace = imported(tones, tmp_path)
    with pytest.raises(EarmarkError, match="recipe 'earmark' has no pretrained network"):
        taught(workspace, Recipe())
    for options in ({"teacher": "yamnet"}, {"way": "probe"}, {"sample_rate_hz": 8_000}):
        with pytest.raises(EarmarkError, match=r"recipe 'earmark' trains .* such as find"):
            asked_recipe(Recipe(), **options)
    assert asked_recipe(Recipe()) == Recipe()


def test_what_is_said_of_one_network_is_not_said_of_another() -> None:
    first = asked_recipe("find", "a.tflite", sample_rate_hz=8_000, scale="logits", output=None)
    expected = PretrainedParams(network="a.tflite", sample_rate_hz=8_000, scale="logits")
    assert first.pretrained == expected
    more = asked_recipe(first, hop_seconds=0.5)
    assert more.pretrained == expected.model_copy(update={"hop_seconds": 0.5})
    same = asked_recipe(first, "a.tflite", "probe")
    assert (same.pretrained, same.way) == (expected, "probe")
    assert asked_recipe(first, "b.onnx").pretrained == PretrainedParams(network="b.onnx")
    assert asked_recipe(same, "b.onnx").way is None


def test_the_cached_teacher_suits_a_workspace_of_sound_that_nobody_taught(
    tones: ToneFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = imported(tones, tmp_path / "w")
    assert default_teacher(workspace) == FIND
    assert default_teacher(band_workspace(tmp_path / "vectors", n_clips=6)) is None
    with monkeypatch.context() as other:
        other.setenv("EARMARK_TEACHERS", str(tmp_path / "empty"))
        assert default_teacher(workspace) is None
    pipeline.choose_recipe(workspace, Recipe())
    assert default_teacher(workspace) is None


def two_outputs(path: Path, names: tuple[str, ...]) -> Path:
    """Write a network of 8,000 samples: classes by the level of a window, and an embedding."""
    nodes = [
        helper.make_node("ReduceL2", ["given"], ["norm"], axes=[1], keepdims=1),
        helper.make_node("MatMul", ["norm", "factors"], ["classes"]),
        helper.make_node("Concat", ["norm", "norm"], ["embedding"], axis=1),
    ]
    factors = np.linspace(0.1, 1, len(names), dtype=np.float32)[None]
    graph = helper.make_graph(
        nodes,
        "made up",
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, ("n", 8_000))],
        [
            helper.make_tensor_value_info("classes", TensorProto.FLOAT, ("n", len(names))),
            helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ("n", 2)),
        ],
        [numpy_helper.from_array(factors, "factors")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"class_names": json.dumps(names)})
    path.write_bytes(model.SerializeToString())
    return path


def by_file(path: Path, **said) -> Recipe:
    return asked_recipe(QUICK, str(path), **said)


def test_any_network_teaches_and_is_not_believed_to_be_out_of_fold(
    tones: ToneFolder, tmp_path: Path
) -> None:
    workspace = imported(tones, tmp_path / "w")
    path = two_outputs(tmp_path / "n.onnx", ("Siren", "Cow", "Dog"))
    found = taught(workspace, by_file(path))
    assert {one.way for one in found.tried} == {"zero-shot", "probe", "blend"}
    zero_shot = taught(workspace, by_file(path, way="zero-shot"))
    assert not zero_shot.scores.out_of_fold
    assert np.isfinite(zero_shot.scores.logits).all(axis=0).tolist() == [True, True, False]
    assert not taught(workspace, by_file(path, way="blend")).scores.out_of_fold
    said = taught(workspace, by_file(path, way="zero-shot"), out_of_fold=True)
    assert said.scores.out_of_fold
    with pytest.raises(EarmarkError, match="n cannot be trained further here; yamnet can"):
        taught(workspace, by_file(path, way="fine-tuned"))


def test_after_one_network_another_is_tried_without_a_word(
    tones: ToneFolder, tmp_path: Path
) -> None:
    workspace = imported(tones, tmp_path / "w")
    assert taught(workspace).classes_told.startswith("3 of 3")
    path = two_outputs(tmp_path / "n.onnx", ("Cow", "Whistle"))
    assert taught(workspace, by_file(path)).classes_told.startswith("1 of 3")
    assert taught(workspace).classes_told.startswith("3 of 3")


def test_a_network_without_embeddings_goes_by_its_classes(tmp_path: Path) -> None:
    workspace = sound_workspace(tmp_path / "w")
    path = loudness(tmp_path / "m.onnx", is_probability=True)
    with pytest.raises(EarmarkError, match=r"not one of 3 classes.*column output"):
        taught(workspace, by_file(path))
    mapped = tmp_path / "map.csv"
    mapped.write_text(f"output,class_id\n1,{CLASS_IDS[2]}\n")
    found = taught(workspace, by_file(path), class_map=mapped)
    assert found.why == "it gives no embeddings to learn from"
    expected = np.array([np.sqrt((sound(i) ** 2).mean()) / 2 for i in range(5)])
    logits = np.asarray(found.scores.logits)
    assert logits[:, 2] == pytest.approx(np.log(expected / (1 - expected)), abs=1e-4)
    assert np.isnan(logits[:, :2]).all()
    as_logits = taught(workspace, by_file(path, scale="logits"), class_map=mapped)
    assert as_logits.scores.logits[:, 2] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(EarmarkError, match=r"m gives no embeddings.*--embedding.*--way zero-shot"):
        taught(workspace, by_file(path, way="probe"), class_map=mapped)


def test_patches_are_averaged_as_the_paper_does(tmp_path: Path) -> None:
    from earmark.audio import log_mel, patches

    workspace = sound_workspace(tmp_path / "w", n_clips=3)
    names = (CLASS_IDS[2], "nobody", CLASS_IDS[0])
    path = mean_of_patches(tmp_path / "m.onnx", class_ids=names)
    scores = taught(workspace, by_file(path, way="zero-shot")).scores
    assert scores.best_patches is not None
    for clip in range(2):
        levels = patches(log_mel(sound(clip))).mean(axis=(1, 2), dtype=np.float64)
        for column, factor in ((2, 1), (0, -1)):
            output = (1 / (1 + np.exp(-factor * levels))).mean()
            expected = np.log(output / (1 - output))
            assert scores.logits[clip, column] == pytest.approx(expected, abs=1e-3)
            assert scores.best_patches[clip, column] == (factor * levels).argmax()
    assert np.isnan(scores.logits[:, 1]).all()


def test_numbers_that_are_none_name_the_clip(tmp_path: Path) -> None:
    import soundfile

    workspace = sound_workspace(tmp_path / "w", n_clips=2)
    soundfile.write(tmp_path / "w" / "audio" / "clip0.wav", np.zeros(16_000), 16_000)
    mapped = tmp_path / "map.csv"
    mapped.write_text("output,class_id\n0,Hum\n")
    path = loudness(tmp_path / "m.onnx")
    with pytest.raises(EarmarkError, match=r"clip 'clip0': .*m\.onnx: a sound of 1 window got NaN"):
        taught(workspace, by_file(path), class_map=mapped)


def test_vectors_without_sound_are_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"no clip has a sound file"):
        taught(band_workspace(tmp_path, n_clips=6), asked("probe"))


def test_many_clips_have_a_probe_of_their_own(tones: ToneFolder, tmp_path: Path) -> None:
    workspace = imported(tones, tmp_path)
    assert QUICK.teacher_of_many is not None
    small = QUICK.teacher_of_many.train.model_copy(update={"epochs": 1})
    many = QUICK.model_copy(
        update={
            "many_clips": 59,
            "teacher_of_many": QUICK.teacher_of_many.model_copy(update={"train": small}),
        }
    )
    taught(workspace, asked("probe", many))
    params = json.loads((tmp_path / "models/teacher-fold0/params.json").read_text())
    assert params["model"]["architecture"] == "attention_probe"


def test_few_recordings_have_a_fold_each(tones: ToneFolder, tmp_path: Path) -> None:
    workspace = imported(tones, tmp_path)
    sources = pl.Series("source", [f"recording{i % 4}" for i in range(60)])
    workspace.clips.with_columns(sources).write_parquet(tmp_path / "clips.parquet")
    ten = asked("probe", FIND)
    taught(Workspace(tmp_path), ten)
    assert len(list(tmp_path.glob("models/teacher-fold*"))) == 4
