"""Scores by a network's own classes, held against the mean of its outputs by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.audio import FrameStore, write_store
from earmark.datasets import Workspace, find_stale, held_out_scores, parts_changed
from earmark.errors import EarmarkError
from earmark.flags import flag, thresholds
from earmark.models.pretrained import ClassMap, embedding, score_zero_shot
from earmark.scores import Origin
from earmark.storage import read_json, seal, seal_path
from scenes import band_workspace

ORIGIN = Origin("model", "net.onnx")
MAP = ClassMap((3, 1), (0, 2))
"""Output 3 is the class "low", output 1 is "high"; nothing is "middle"."""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path / "w", n_clips=30)


@pytest.fixture
def outputs(workspace: Workspace) -> FrameStore:
    """Logits of 4 outputs, 1 to 5 frames a clip."""
    rng = np.random.default_rng(0)
    clips = workspace.clips["clip_id"].to_list()
    frames = [rng.normal(0, 3, (1 + i % 5, 4)).astype(np.float32) for i in range(len(clips))]
    return write_store(workspace.outputs_folder, zip(clips, frames, strict=True))


def score(workspace: Workspace, outputs: FrameStore, class_map: ClassMap = MAP, **options):
    said = {"origin": ORIGIN, "out_of_fold": True, **options}
    return score_zero_shot(workspace, "teacher-zero-shot", outputs, class_map, **said)


def test_a_score_is_the_mean_output_over_frames_as_a_logit(
    workspace: Workspace, outputs: FrameStore
) -> None:
    scores = score(workspace, outputs)
    held_out = held_out_scores(workspace, scores)
    assert held_out is not None
    assert len(scores.clip_ids) + len(held_out.clip_ids) == 30
    assert scores.clip_ids.to_list() == workspace.clips.filter(split="train")["clip_id"].to_list()
    for part in (scores, held_out):
        assert part.best_patches is not None
        for clip_id, logits, best in zip(
            part.clip_ids, part.logits, part.best_patches, strict=True
        ):
            frames = outputs.frames(int(outputs.rows_of([clip_id])[0])).astype(np.float64)
            for output, column in zip(MAP.outputs, MAP.columns, strict=True):
                mean = np.mean([1 / (1 + np.exp(-logit)) for logit in frames[:, output]])
                assert logits[column] == pytest.approx(np.log(mean / (1 - mean)), abs=1e-4)
                assert best[column] == int(np.argmax(frames[:, output]))
            assert np.isnan(logits[1])


def test_a_class_that_the_network_lacks_is_never_flagged(
    workspace: Workspace, outputs: FrameStore
) -> None:
    scores = score(workspace, outputs)
    labels = workspace.labels.select(workspace.rows("train"))
    found = thresholds(labels, scores.logits, [50])
    assert np.isinf(found.values[0]).tolist() == [False, True, False]
    assert found.n_ignored[0, 1] == 0
    assert set(flag(labels, scores.logits, discard_percent=50)["class_id"]) == {"low", "high"}


def test_finished_scores_are_found_again_and_others_made(
    workspace: Workspace, outputs: FrameStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    scored = embedding._score_outputs
    monkeypatch.setattr(embedding, "_score_outputs", lambda *args: calls.append(1) or scored(*args))
    first = score(workspace, outputs)
    assert score(workspace, outputs).digest == first.digest
    assert len(calls) == 1
    other = score(workspace, outputs, ClassMap((2, 1), (0, 2)))
    assert other.digest != first.digest
    assert score(workspace, outputs, out_of_fold=False).digest != first.digest
    assert len(calls) == 3


def test_the_stamp_is_of_what_was_heard(workspace: Workspace, outputs: FrameStore) -> None:
    scores = score(workspace, outputs)
    file = seal_path(scores.folder)
    assert read_json(file)["frames_folder"] == "outputs"
    assert parts_changed(workspace, file) == ()
    meta = read_json(seal_path(workspace.frames_folder))
    seal(workspace.frames_folder, {**meta, "digest": "other log-mel frames"})
    assert parts_changed(workspace, file) == (), "log-mel frames do not matter"
    meta = read_json(seal_path(outputs.folder))
    seal(outputs.folder, {**meta, "digest": "another network"})
    assert parts_changed(workspace, file) == ("frames",)
    assert [one.command for one in find_stale(workspace)] == [
        f"earmark score {workspace.root} --teacher net.onnx"
    ]


def test_no_clip_of_the_train_split_is_refused(workspace: Workspace, outputs: FrameStore) -> None:
    held_out = workspace.clips.filter(pl.col("split") != "train")["clip_id"]
    rows = [(name, outputs.frames(int(outputs.rows_of([name])[0]))) for name in held_out]
    store = write_store(workspace.root / "others", rows)
    with pytest.raises(EarmarkError, match=r"the train split cannot be used: none of its 20 clips"):
        score(workspace, store)
    assert not workspace.scores_folder("teacher-zero-shot").exists()
