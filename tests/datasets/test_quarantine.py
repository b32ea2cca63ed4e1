from __future__ import annotations

from pathlib import Path

import polars as pl

from earmark.datasets import Workspace, quarantine_told, write_quarantine


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
