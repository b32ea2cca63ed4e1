"""A workspace looked over: each thing that can be wrong is found, and told with what mends it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import numpy as np
import polars as pl
import pytest

from called_verbs import earmark
from earmark.audio import write_store
from earmark.datasets import Workspace, write_stamp
from earmark.pipeline import check_workspace
from earmark.review import Judgement, JudgementStore
from earmark.scores import write_score_folder
from earmark.storage import aside_of, seal_path, write_table, writing
from noises import make_workspace

N_CLIPS = 6


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A healthy workspace with sounds, frames, scores and an answer; all made up."""
    root = tmp_path / "my work"
    made = make_workspace(root, [f"audio/{i}.wav" for i in range(N_CLIPS)])
    (root / "audio").mkdir()
    for i in range(N_CLIPS):
        (root / "audio" / f"{i}.wav").write_bytes(bytes([i]) * 1_000)
    frames = [np.full((4, 8), i, np.float32) for i in range(N_CLIPS)]
    write_store(made.frames_folder, zip(made.clips["clip_id"], frames, strict=True))
    write_score_folder(
        made.scores_folder("teacher"),
        made.clips["clip_id"],
        made.ontology.class_ids,
        np.zeros((N_CLIPS, 1), np.float32),
        None,
        out_of_fold=True,
        digest="made up",
    )
    write_stamp(made, seal_path(made.scores_folder("teacher")))
    with JudgementStore(made.judgements_path) as store:
        said = Judgement(
            id=uuid4(), at=datetime.now(UTC), rater="ann", item="i", clip_id="clip0",
            class_id="a", answer="present",
        )  # fmt: skip
        store.add(said)
    return made


def found(workspace: Workspace) -> dict[str, str]:
    """Return what is found, by what it is about."""
    return {problem.what: str(problem) for problem in check_workspace(workspace.root).problems}


def test_a_healthy_workspace_has_no_problems(workspace: Workspace) -> None:
    checked = check_workspace(workspace.root)
    assert checked.problems == ()
    assert (checked.counts["clips"], checked.counts["answers"]) == (N_CLIPS, 1)
    assert json.loads(earmark("check", workspace.root, "--json").stdout)["healthy"] is True
    assert "No problems in 6 clips" in earmark("check", workspace.root).stdout


def spoil_scores(workspace: Workspace) -> None:
    path = workspace.scores_folder("teacher") / "logits.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")


def cut_frames(workspace: Workspace) -> None:
    path = next(workspace.frames_folder.glob("shard-*.npy"))
    path.write_bytes(path.read_bytes()[:-10])


def spoil_frames(workspace: Workspace) -> None:
    path = next(workspace.frames_folder.glob("shard-*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"\1")


def spoil_answers(workspace: Workspace) -> None:
    with sqlite3.connect(workspace.judgements_path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    content = bytearray(workspace.judgements_path.read_bytes())
    content[4_096:4_400] = b"\xff" * 304
    workspace.judgements_path.write_bytes(content)


def rename_class(workspace: Workspace) -> None:
    write_stamp(workspace, seal_path(workspace.flags_folder))
    ontology = replace(workspace.ontology, names={"a": "Another name"})
    write_table(workspace.classes_path, ontology.to_table())


def edit_labels(workspace: Workspace) -> None:
    rows = pl.read_parquet(workspace.labels_path)
    rows.head(len(rows) - 1).write_parquet(workspace.labels_path)


def empty_sound(workspace: Workspace) -> None:
    (workspace.root / "audio" / "2.wav").write_bytes(b"")


def lose_sound(workspace: Workspace) -> None:
    shutil.rmtree(workspace.frames_folder)
    (workspace.root / "audio" / "2.wav").unlink()


def repeat_clip(workspace: Workspace) -> None:
    clips = workspace.clips.with_columns(clip_id=pl.lit("clip0"))
    write_table(workspace.clips_path, clips)


SPOILT: dict[str, tuple[Callable[[Workspace], object], str]] = {
    "digests": (spoil_scores, "logits.npy: changed or damaged"),
    "frames": (cut_frames, "earmark features"),
    "shards": (spoil_frames, "shard-00000.npy: changed or damaged"),
    "answers": (spoil_answers, "keep a copy"),
    "age": (edit_labels, "earmark score"),
    "empty sounds": (empty_sound, "1 file of 0 bytes, as after a power cut: 'audio/2.wav'"),
    "sounds": (lose_sound, "1 file not where clips.parquet says: 'audio/2.wav'"),
    "scores": (lambda w: seal_path(w.scores_folder("teacher")).unlink(), "not finished"),
    "dataset": (repeat_clip, "clip"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_wrong_is_found(workspace: Workspace, what: str) -> None:
    spoil, told = SPOILT[what]
    spoil(workspace)
    assert told in found(Workspace(workspace.root))[what.removeprefix("empty ")]


def test_damaged_frames_are_not_looked_for_in_a_hurry(workspace: Workspace) -> None:
    spoil_frames(workspace)
    assert check_workspace(workspace.root, quick=True).problems == ()
    assert earmark("check", workspace.root, "--quick").stdout.startswith("No problems")


def test_a_renamed_class_makes_flags_old(workspace: Workspace) -> None:
    rename_class(workspace)
    assert "class names changed" in found(workspace)["age"]


def test_who_writes_now_is_no_finding(workspace: Workspace) -> None:
    with writing(workspace.root, "score"):
        aside_of(workspace.root / "x").touch()
        checked = check_workspace(workspace.root)
    assert checked.problems == ()
    assert checked.holder is not None
    assert "`score`" in checked.holder


def test_all_at_once_fits_a_terminal_and_exits_with_1(workspace: Workspace) -> None:
    for spoil in (spoil_scores, cut_frames):
        spoil(workspace)
    done = earmark("check", workspace.root, code=1).stdout
    assert done.startswith("3 problems in 6 clips, 1 class")
    assert f"next: earmark score '{workspace.root}'" in done, "paths are quoted"
    as_json = json.loads(earmark("check", workspace.root, "--json", code=1).stdout)
    assert as_json["healthy"] is False
    assert {one["what"] for one in as_json["findings"]} == {"digests", "frames", "shards"}
