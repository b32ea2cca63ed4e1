from __future__ import annotations

from pathlib import Path

import polars as pl

from earmark.datasets.quarantine import QUARANTINE_SCHEMA, read_quarantine, write_quarantine
from earmark.datasets.workspace import Workspace


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
