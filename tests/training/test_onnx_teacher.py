from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.flags.flag import flag
from earmark.flags.thresholds import thresholds
from earmark.networks.onnx_model import ForeignModel
from earmark.runs.engine import LocalEngine
from earmark.training import onnx_teacher
from earmark.training.onnx_teacher import TeacherScores, score_by_teacher
from made_up_onnx import loudness, mean_of_patches
from scenes import band_workspace, open_store
from sounds import CLASS_IDS, sound, sound_workspace

HERE = LocalEngine(1)


def class_map(tmp_path: Path, *pairs: tuple[int, str]) -> Path:
    path = tmp_path / "map.csv"
    rows = [{"output": output, "class_id": class_id} for output, class_id in pairs]
    pl.DataFrame(rows).write_csv(path)
    return path


def score(
    workspace: Workspace, model: Path, mapped: Path | None, **options: object
) -> TeacherScores:
    teacher = ForeignModel.open(model)
    return score_by_teacher(workspace, "teacher", teacher, mapped, engine=HERE, **options)


def test_patches_are_averaged_as_the_paper_does(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w", n_clips=9, n_frames=240)
    mapped = class_map(tmp_path, (2, "low"), (0, "high"))
    result = score(workspace, mean_of_patches(tmp_path / "m.onnx"), mapped)
    store, scores = open_store(workspace), result.scores
    assert (result.scale, result.unscored) == ("logits", ("middle",))
    assert not scores.out_of_fold
    for clip_id, logits, best in zip(
        scores.clip_ids, scores.logits, scores.best_patches, strict=True
    ):
        row = int(store.rows_of([clip_id])[0])
        levels = store.patches([row] * 4, range(4)).astype(np.float64).mean(axis=(1, 2))
        for column, factor in ((0, -1), (2, 1)):
            output = (1 / (1 + np.exp(-factor * levels))).mean()
            assert logits[column] == pytest.approx(np.log(output / (1 - output)), abs=1e-3)
            assert best[column] == (factor * levels).argmax()
        assert np.isnan(logits[1])


def test_a_class_that_the_model_lacks_is_never_flagged(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w")
    mapped = class_map(tmp_path, (0, "low"), (1, "high"))
    scores = score(workspace, mean_of_patches(tmp_path / "m.onnx"), mapped).scores
    labels = workspace.labels.select(workspace.rows("train"))
    found = thresholds(labels, scores.logits, [50])
    assert np.isinf(found.values[0]).tolist() == [False, True, False]
    assert found.n_ignored[0, 1] == 0
    assert set(flag(labels, scores.logits, discard_percent=50)["class_id"]) == {"low", "high"}


def test_waveforms_are_read_from_the_audio(tmp_path: Path) -> None:
    workspace = sound_workspace(tmp_path / "w")
    mapped = class_map(tmp_path, (1, CLASS_IDS[2]))
    model = loudness(tmp_path / "m.onnx", is_probability=True)
    result = score(workspace, model, mapped, out_of_fold=True)
    assert (result.scale, result.scores.out_of_fold) == ("probabilities", True)
    expected = np.array([np.sqrt((sound(i) ** 2).mean()) / 2 for i in range(5)])
    logits = np.asarray(result.scores.logits)
    assert logits[:, 2] == pytest.approx(np.log(expected / (1 - expected)), abs=1e-4)
    assert np.isnan(logits[:, :2]).all()
    assert score(workspace, model, mapped, scale="logits").scores.logits[:, 2] == pytest.approx(
        expected, abs=1e-5
    )


def test_the_best_part_of_a_clip_is_a_patch_of_the_store(tmp_path: Path) -> None:
    workspace = sound_workspace(tmp_path / "w", n_clips=3)  # 3 patches each
    quiet = sound(0) * np.linspace(0, 1, len(sound(0)), dtype=np.float32)
    soundfile.write(tmp_path / "w" / "audio" / "clip0.wav", quiet, 16_000, subtype="FLOAT")
    model = loudness(tmp_path / "m.onnx", (1, 4_000))  # 6 parts, the last is the loudest
    best = score(workspace, model, class_map(tmp_path, (0, "Hum"))).scores.best_patches
    assert best[0, 0] == 2


@pytest.mark.parametrize(("given", "is_told"), [(("samples",), False), ((1, 12_000), True)])
def test_a_model_of_whole_clips_does_not_say_where(
    tmp_path: Path, given: tuple[int | str, ...], is_told: bool
) -> None:
    workspace = sound_workspace(tmp_path / "w", n_clips=3)  # 3 patches in 24,000 samples
    model, mapped = loudness(tmp_path / "m.onnx", given), class_map(tmp_path, (0, "Hum"))
    found = score(workspace, model, mapped).scores
    assert (found.best_patch("clip0", CLASS_IDS[0]) is not None) == is_told


def test_scores_are_found_again_and_parts_survive_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_teacher, "CLIPS_PER_PART", 8)
    workspace = band_workspace(tmp_path / "w", n_clips=30)
    model, mapped = mean_of_patches(tmp_path / "m.onnx"), class_map(tmp_path, (0, "low"))
    whole = np.array(score(workspace, model, mapped, out_of_fold=True).scores.logits)
    seen = []

    def interrupted(teacher: ForeignModel, clip: object, *rest: object) -> np.ndarray:
        seen.append(clip)
        if len(seen) == 12:
            raise KeyboardInterrupt
        return original(teacher, clip, *rest)

    original = onnx_teacher._clip_score
    monkeypatch.setattr(onnx_teacher, "_clip_score", interrupted)
    assert np.array_equal(
        score(workspace, model, mapped, out_of_fold=True).scores.logits, whole, equal_nan=True
    )
    assert not seen, "the same command again finds the scores"
    with pytest.raises(KeyboardInterrupt):
        score(workspace, model, mapped)
    scores = score(workspace, model, mapped).scores
    assert len(seen) == 12 + 22, "8 clips of the first part were not scored again"
    assert np.array_equal(scores.logits, whole, equal_nan=True)
    assert not list(scores.folder.glob("parts-*"))


def test_a_model_may_name_its_classes(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w", n_clips=6)
    named = mean_of_patches(tmp_path / "n.onnx", class_ids=("high", "middle", "low"))
    by_name = score(workspace, named, None).scores.logits
    mapped = class_map(tmp_path, (0, "high"), (1, "middle"), (2, "low"))
    unnamed = mean_of_patches(tmp_path / "m.onnx")
    assert np.array_equal(by_name, score(workspace, unnamed, mapped).scores.logits)
    with pytest.raises(EarmarkError, match=r"does not name its 3 outputs.*--class-map"):
        score(workspace, unnamed, None)


@pytest.mark.parametrize("n_bands", [96, 128])
def test_patches_of_another_shape_are_refused(tmp_path: Path, n_bands: int) -> None:
    model = mean_of_patches(tmp_path / "m.onnx", ("n", 64, n_bands))
    hint = "the transpose" if n_bands == 96 else ""
    with pytest.raises(EarmarkError, match=rf"\[64, {n_bands}\].*has \[96, 64\].*{hint}"):
        score(band_workspace(tmp_path / "w", n_clips=3), model, None)


def test_bad_outputs_and_missing_audio_are_named(tmp_path: Path) -> None:
    mapped = class_map(tmp_path, (0, "low"))
    workspace = band_workspace(tmp_path / "w", n_clips=6)
    with pytest.raises(EarmarkError, match=r"clip 'clip000'.*no probability.*--scale logits"):
        score(workspace, mean_of_patches(tmp_path / "m.onnx"), mapped, scale="probabilities")
    with pytest.raises(EarmarkError, match=r"clip 'clip000' has no audio"):
        score(workspace, loudness(tmp_path / "l.onnx"), mapped)
    silent = sound_workspace(tmp_path / "s", n_clips=2)
    soundfile.write(tmp_path / "s" / "audio" / "clip0.wav", np.zeros(16_000), 16_000)
    with pytest.raises(EarmarkError, match=r"clip 'clip0' got NaN or infinite outputs"):
        score(silent, loudness(tmp_path / "l.onnx"), class_map(tmp_path, (0, "Hum")))
