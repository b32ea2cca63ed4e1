from __future__ import annotations

from pathlib import Path

import polars as pl

from earmark.datasets import (
    QUARANTINE_SCHEMA,
    Workspace,
    quarantine_told,
    read_quarantine,
    write_quarantine,
)


def test_a_quarantine_comes_back_with_its_columns_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    unread = pl.DataFrame(
        {"row": [3, 4], "reason": ["empty", "gone"], "clip_id": ["a", None], "audio": [None, None]}
    )
    write_quarantine(workspace, unread)
    table = read_quarantine(workspace)
    assert table.schema == QUARANTINE_SCHEMA
    assert table.rows() == [("a", None, "empty"), (None, None, "gone")]


def test_without_frames_nothing_is_quarantined(tmp_path: Path) -> None:
    table = read_quarantine(Workspace(tmp_path))
    assert table.schema == QUARANTINE_SCHEMA
    assert table.is_empty()


def test_reasons_are_told_together_the_commonest_first(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    reasons = ["empty file"] * 2 + ["no such file"] * 5 + [f"damaged at {i}" for i in range(4)]
    clips = {
        "clip_id": [f"clip{i}" for i in range(11)],
        "audio": ["x.wav"] * 11,
        "reason": reasons,
    }
    write_quarantine(workspace, pl.DataFrame(clips))
    assert quarantine_told(workspace) == [
        "  5 x no such file: 'clip2', 'clip3', 'clip4' and 2 more",
        "  2 x empty file: 'clip0', 'clip1'",
        "  1 x damaged at 0: 'clip7'",
        "  1 x damaged at 1: 'clip8'",
        f"  2 more reasons, and all clips: {tmp_path / 'quarantine.parquet'}",
    ]
    write_quarantine(workspace, pl.DataFrame(clips).clear())
    assert quarantine_told(workspace) == []
