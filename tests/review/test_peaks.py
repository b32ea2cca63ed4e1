from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import logit

from earmark.audio import FrameStore
from earmark.compute import (
    LocalEngine,
)
from earmark.config import (
    CrossFitParams,
    ModelParams,
    NetworkParams,
    Recipe,
    TrainParams,
)
from earmark.datasets import Workspace, extract_frames
from earmark.models import AnyNetwork, patch_outputs
from earmark.pipeline import write_flags
from earmark.review import Peaks, find_peaks, with_places
from earmark.scores import UNLOCATED, ScoreFolder, write_score_folder
from earmark.training import cross_fit
from listening import RECIPE, open_tones, tone_workspace
from scenes import event_workspace

SMALL = NetworkParams(
    name="teacher",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=1, batch_patches=32, patches_per_clip=2),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = tone_workspace(tmp_path_factory.mktemp("peaks"), n_clips=12, seconds=3.0)
    extract_frames(made)
    return made


@pytest.fixture(scope="module")
def wanted(workspace: Workspace) -> pl.DataFrame:
    clips = workspace.clips.select("clip_id")
    return clips.join(pl.DataFrame({"class_id": ["hum", "whistle"]}), how="cross")


def _find(
    workspace: Workspace, wanted: pl.DataFrame, recipe: Recipe, scores: ScoreFolder | None = None
) -> Peaks:
    store = FrameStore.open(workspace.frames_folder)
    scores = scores or ScoreFolder.open(workspace.scores_folder(recipe.teacher.name))
    return find_peaks(workspace, recipe, scores, store, wanted, lambda _: 6.0)


@pytest.mark.parametrize("in_sample", [False, True])
def test_patches_are_scored_by_the_very_teacher_that_scored_the_clip(
    workspace: Workspace, wanted: pl.DataFrame, in_sample: bool
) -> None:
    name = "inside" if in_sample else "outside"
    teacher = SMALL.model_copy(update={"name": name})
    params = CrossFitParams(n_folds=2, in_sample=in_sample)
    recipe = Recipe(teacher=teacher, cross_fit=params)
    scores = cross_fit(workspace, teacher, params, engine=LocalEngine(1))
    peaks = _find(workspace, wanted, recipe, scores)
    assert len(peaks.outputs) == len(wanted)
    for (clip_id, class_id), outputs in peaks.outputs.items():
        row, column = scores.clip_ids.index_of(clip_id), scores.class_ids.index(class_id)
        mean = np.mean(outputs, dtype=np.float64)
        np.testing.assert_allclose(logit(mean), scores.logits[row, column], atol=1e-3)
        assert outputs[scores.best_patches[row, column]] == pytest.approx(outputs.max(), abs=1e-5)

    asked_before = (workspace.peaks_folder / "outputs.parquet").stat().st_mtime_ns
    again = _find(workspace, wanted, recipe, scores)
    assert (workspace.peaks_folder / "outputs.parquet").stat().st_mtime_ns == asked_before
    assert again.spans("clip000", "hum") == peaks.spans("clip000", "hum")


def test_an_interrupted_search_goes_on_from_there(
    workspace: Workspace, wanted: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earmark.review.peaks._CLIPS_PER_PART", 2)
    teacher = SMALL.model_copy(update={"name": "stopped"})
    recipe = Recipe(teacher=teacher, cross_fit=CrossFitParams(n_folds=2))
    scores = cross_fit(workspace, teacher, recipe.cross_fit, engine=LocalEngine(1))
    asked: list[int] = []

    def counting(network: AnyNetwork, store: FrameStore, row: int) -> np.ndarray:
        if len(asked) == n_until_stopped:
            raise KeyboardInterrupt
        asked.append(row)
        return patch_outputs(network, store, row)

    monkeypatch.setattr("earmark.models.patch_outputs", counting, raising=False)
    n_until_stopped = 7
    with pytest.raises(KeyboardInterrupt):
        _find(workspace, wanted, recipe, scores)
    first, n_until_stopped = set(asked[:6]), 100
    asked.clear()
    peaks = _find(workspace, wanted, recipe, scores)
    assert len(asked) == 12 - 6
    assert not first & set(asked)
    assert len(peaks.outputs) == len(wanted)


def test_scores_from_elsewhere_lead_to_the_best_patch(
    workspace: Workspace, wanted: pl.DataFrame
) -> None:
    peaks = _find(workspace, wanted, RECIPE)
    scores = ScoreFolder.open(workspace.scores_folder("teacher"))
    best = scores.best_patches[0, scores.class_ids.index("hum")]
    assert peaks.spans("clip000", "hum") == [pytest.approx((0.48 * best, 0.48 * best + 0.96))]
    assert peaks.patches("clip000", "hum") == []
    assert peaks.spans("never scored", "hum") == []


def test_without_frames_the_patches_are_the_recipes(tmp_path: Path, wanted: pl.DataFrame) -> None:
    bare = tone_workspace(tmp_path, n_clips=4)
    scores = ScoreFolder.open(bare.scores_folder("teacher"))
    peaks = find_peaks(bare, RECIPE, scores, None, wanted, lambda _: 5.0)
    assert peaks.spans("clip000", "alarm") in ([(2.88, 3.84)], [(0.48, 1.44)])


def test_scores_that_do_not_say_where_name_no_place(
    workspace: Workspace, wanted: pl.DataFrame
) -> None:
    scores = ScoreFolder.open(workspace.scores_folder("teacher"))
    assert scores.best_patches is not None
    unlocated = np.full(scores.best_patches.shape, UNLOCATED, np.uint16)
    for best in (None, unlocated):
        peaks = _find(workspace, wanted, RECIPE, replace(scores, best_patches=best))
        assert peaks.spans("clip000", "hum") == []
        assert peaks.patches("clip000", "hum") == []


@pytest.mark.parametrize("architecture", ["linear_probe", "mlp_probe", "attention_probe"])
def test_a_probe_leads_to_the_frame_in_which_the_class_sounds(
    tmp_path: Path, architecture: str
) -> None:
    workspace, at = event_workspace(tmp_path)
    teacher = NetworkParams(
        name="teacher",
        model=ModelParams(architecture=architecture, n_hidden=16),
        train=TrainParams(epochs=40, batch_patches=16, learning_rate=1e-2),
    )
    recipe = Recipe(teacher=teacher, cross_fit=CrossFitParams(n_folds=2))
    scores = cross_fit(workspace, teacher, recipe.cross_fit, engine=LocalEngine(1))
    clips = workspace.clips.filter(split="train").select("clip_id")
    wanted = clips.join(pl.DataFrame({"class_id": workspace.ontology.class_ids}), how="cross")
    peaks = _find(workspace, wanted, recipe, scores)
    frame_of = dict(zip(workspace.clips["clip_id"], at, strict=True))
    hits = []
    for clip_id, class_id in wanted.iter_rows():
        frame = frame_of[clip_id][workspace.ontology.index[class_id]]
        spans, patches = peaks.spans(clip_id, class_id), peaks.patches(clip_id, class_id)
        assert len(patches) == 12
        highest = max(patches, key=lambda patch: patch["output"])
        assert spans[0][0] == pytest.approx(highest["start"])  # twelve frames in six seconds
        if frame >= 0:
            hits.append(spans[0] == pytest.approx((frame / 2, frame / 2 + 0.5)))
    assert np.mean(hits) > 0.9


def test_frames_of_unknown_length_name_no_place(tmp_path: Path, wanted: pl.DataFrame) -> None:
    workspace, _ = event_workspace(tmp_path, n_clips=6)
    best = np.full((6, 3), 7, np.uint16)
    own = (workspace.clips["clip_id"], workspace.ontology.class_ids, best.astype(np.float32), best)
    folder = workspace.scores_folder("teacher")
    scores = write_score_folder(folder, *own, out_of_fold=True, digest="x")
    store = FrameStore.open(workspace.frames_folder)
    known = find_peaks(workspace, RECIPE, scores, store, wanted, lambda _: 6.0)
    assert known.spans("clip000", "low") == [(3.5, 4.0)]
    unknown = find_peaks(workspace, RECIPE, scores, store, wanted, lambda _: None)
    assert unknown.spans("clip000", "low") == []


def test_the_tour_goes_down_from_the_best_patch_and_never_overlaps(workspace: Workspace) -> None:
    scores = ScoreFolder.open(workspace.scores_folder("teacher"))
    outputs = np.array([0.1, 0.9, 0.8, 0.3, 0.2, 0.7, 0.0], np.float32)
    peaks = Peaks(scores, lambda _: (0.48, 0.96), {("clip000", "hum"): outputs})
    assert [start for start, _ in peaks.spans("clip000", "hum")] == [0.48, 2.4, 1.44]
    patches = peaks.patches("clip000", "hum")
    assert patches[1] == {"start": 0.48, "end": 1.44, "output": pytest.approx(0.9)}


def test_flags_are_told_their_best_patch(tmp_path: Path) -> None:
    session = open_tones(tmp_path)
    flags = write_flags(session.workspace, RECIPE, discard_percent=20).flags
    for row in flags.iter_rows(named=True):
        ((start, end), *_) = session.peaks.spans(row["clip_id"], row["class_id"])
        assert (row["span_start"], row["span_end"]) == (start, end)
    unlocated = replace(
        session.scores, best_patches=np.full(session.scores.logits.shape, UNLOCATED)
    )
    for scores in (unlocated, replace(session.scores, best_patches=None)):
        told = with_places(flags.drop("span_start", "span_end"), RECIPE, scores, None)
        assert told["span_start"].is_null().all()
        assert told["span_end"].is_null().all()
    assert with_places(flags.clear(), RECIPE, session.scores, None).is_empty()
