from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.audio import write_store
from earmark.config import ModelParams, PretrainedParams, Recipe
from earmark.datasets import (
    Workspace,
    any_frames,
    held_out_folder,
    held_out_scores,
    measured_frames,
    open_frames,
    scored_frames,
    scores_of,
    whole_scores,
    write_scores,
)
from earmark.errors import EarmarkError
from earmark.scores import Origin, ScoreFolder
from earmark.storage import break_seal
from scenes import band_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path)


def score_all(workspace: Workspace, digest: str = "one", out_of_fold: bool = True) -> ScoreFolder:
    """Write scores of all clips, given in a turned order; a clip's score is its row."""
    rows = np.arange(len(workspace.clips))[::-1]
    logits = np.repeat(rows[:, None], 3, axis=1).astype(np.float32)
    return write_scores(
        workspace,
        "teacher",
        workspace.clips["clip_id"][rows],
        logits,
        np.zeros(logits.shape, np.uint16),
        out_of_fold=out_of_fold,
        digest=digest,
        origin=Origin("file"),
    )


def test_scores_of_all_clips_are_kept_by_split_in_the_order_of_the_workspace(
    workspace: Workspace,
) -> None:
    scores = score_all(workspace)
    train = workspace.rows("train")
    assert scores.clip_ids.equals(workspace.clips["clip_id"][train])
    np.testing.assert_array_equal(scores.logits[:, 0], train)
    held_out = held_out_scores(workspace, scores)
    assert held_out is not None
    n_others = len(workspace.rows("tune")) + len(workspace.rows("eval"))
    assert len(held_out.clip_ids) == n_others


def test_the_whole_is_every_clip_once_the_train_split_first(workspace: Workspace) -> None:
    scores = score_all(workspace)
    whole = whole_scores(workspace, scores)
    assert sorted(whole.clip_ids) == sorted(workspace.clips["clip_id"])
    assert whole.clip_ids.head(len(scores.clip_ids)).equals(scores.clip_ids)
    row_of = {clip_id: row for row, clip_id in enumerate(workspace.clips["clip_id"])}
    assert [row_of[clip_id] for clip_id in whole.clip_ids] == whole.logits[:, 1].tolist()
    assert whole.digest not in (scores.digest, "one")


def test_held_out_scores_beside_newer_scores_do_not_count(workspace: Workspace) -> None:
    scores = score_all(workspace)
    held_out = held_out_folder(workspace, "teacher")
    kept = (held_out / "meta.json").read_text()
    newer = score_all(workspace, "two")
    assert len(whole_scores(workspace, newer).clip_ids) == len(workspace.clips)
    (held_out / "meta.json").write_text(kept)
    assert held_out_scores(workspace, newer) is None
    assert whole_scores(workspace, newer) is newer
    assert scores.digest != newer.digest


def test_scores_of_a_teacher_that_saw_only_one_of_the_splits_are_not_mixed(
    workspace: Workspace,
) -> None:
    scores = score_all(workspace, out_of_fold=False)
    assert len(whole_scores(workspace, scores).clip_ids) == len(workspace.clips)
    meta = held_out_folder(workspace, "teacher") / "meta.json"
    meta.write_text(meta.read_text().replace('"out_of_fold": false', '"out_of_fold": true'))
    assert whole_scores(workspace, scores) is scores


def test_clips_are_looked_up_in_the_smallest_scores_that_hold_them(workspace: Workspace) -> None:
    score_all(workspace)
    train, tune = (workspace.clips.filter(split=name)["clip_id"] for name in ("train", "tune"))
    found = [
        scores_of(workspace, "teacher", clip_ids).folder.name
        for clip_ids in (train, tune, workspace.clips["clip_id"])
    ]
    assert found == ["teacher", "teacher-held-out", "teacher-whole"]


PROBE, CNN = ModelParams(architecture="linear_probe"), ModelParams()
YAMNET = PretrainedParams(network="yamnet")


def hear(workspace: Workspace, *names: str) -> None:
    """Write what a pretrained network heard, a vector a clip."""
    for name in names:
        frames = ((clip_id, np.zeros((1, 4), np.float32)) for clip_id in workspace.clips["clip_id"])
        write_store(workspace.root / name, frames)


def test_a_probe_looks_at_embeddings_where_there_are_some(workspace: Workspace) -> None:
    assert open_frames(workspace, PROBE).folder.name == "frames"
    hear(workspace, "embeddings")
    assert open_frames(workspace, PROBE).folder.name == "embeddings"
    assert open_frames(workspace, CNN).folder.name == "frames"
    break_seal(workspace.embeddings_folder)
    assert open_frames(workspace, PROBE).folder.name == "frames"
    break_seal(workspace.frames_folder)
    with pytest.raises(EarmarkError, match="no finished frame store"):
        open_frames(workspace, PROBE)


@pytest.mark.parametrize(
    ("way", "folder"),
    [
        ("zero-shot", "outputs"),
        ("probe", "embeddings"),
        ("blend", "embeddings"),
        ("fine-tuned", "frames"),
        (None, "embeddings"),
    ],
)
def test_scores_speak_of_the_patches_of_their_way(
    workspace: Workspace, way: str, folder: str
) -> None:
    recipe = Recipe(pretrained=YAMNET, way=way)
    if folder != "frames":
        assert scored_frames(workspace, recipe) is None
    hear(workspace, "embeddings", "outputs")
    found = scored_frames(workspace, recipe)
    assert found is not None
    assert found.folder.name == folder
    scratch = scored_frames(workspace, Recipe())
    assert scratch is not None
    assert scratch.folder.name == "frames"


def test_any_store_says_which_clips_could_be_read(workspace: Workspace) -> None:
    hear(workspace, "embeddings", "outputs")
    for name in ("frames", "embeddings", "outputs"):
        found = any_frames(workspace)
        assert found is not None
        assert found.folder.name == name
        assert measured_frames(workspace).folder == found.folder
        break_seal(found.folder)
    assert any_frames(workspace) is None
    with pytest.raises(EarmarkError, match=r"frames: no finished frame store"):
        measured_frames(workspace)
