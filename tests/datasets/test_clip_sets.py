from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.datasets.clip_sets import (
    held_out_folder,
    held_out_scores,
    scores_of,
    whole_scores,
    write_scores,
)
from earmark.datasets.workspace import Workspace
from earmark.scores.folder import Origin, ScoreFolder
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


def test_the_whole_knows_no_place_where_no_part_does(workspace: Workspace) -> None:
    n_clips = len(workspace.clips)
    given = (workspace.clips["clip_id"], np.zeros((n_clips, 3), np.float32), None)
    told = {"digest": "one", "origin": Origin("file")}
    scores = write_scores(workspace, "teacher", *given, out_of_fold=True, **told)
    whole = whole_scores(workspace, scores)
    assert len(whole.clip_ids) == n_clips > len(scores.clip_ids)
    assert whole.best_patches is None
