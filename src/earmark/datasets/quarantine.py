"""Clips without frames, and why: the one file in which a user looks for what went wrong.

Whoever fills the frame store (extraction, embeddings made elsewhere, AudioSet's features) lists
here what it could not use, with the reason in words (those of sound files are from
``audio.decode``). The file is rewritten whole with the store; an empty list says that every clip
has frames.
"""

from __future__ import annotations

import polars as pl

from earmark.datasets.workspace import Workspace
from earmark.errors import first_few
from earmark.runs import read_table, write_table

_N_REASONS = 4
"""Reasons that are told before the file is named."""

QUARANTINE_SCHEMA = pl.Schema({"clip_id": pl.String(), "audio": pl.String(), "reason": pl.String()})
"""``audio`` is null where no file was found; ``reason`` never is.

Where a damaged place hides which clip it was, ``clip_id`` is null and ``audio`` names the place.
"""


def write_quarantine(workspace: Workspace, unread: pl.DataFrame) -> None:
    """Write the clips that have no frames: the columns of QUARANTINE_SCHEMA, others left out."""
    rows = unread.select(QUARANTINE_SCHEMA.names()).cast(QUARANTINE_SCHEMA)
    write_table(workspace.quarantine_path, rows)


def quarantine_told(workspace: Workspace) -> list[str]:
    """Say why clips have no frames: a line for each of the commonest reasons, and the file."""
    unread = read_quarantine(workspace)
    if unread.is_empty():
        return []
    named = pl.coalesce("clip_id", "audio")
    reasons = unread.group_by("reason").agg(named, n=-pl.len().cast(pl.Int64)).sort("n", "reason")
    lines = [
        f"  {-n:,} x {reason}: {first_few(clips)}"
        for reason, clips, n in reasons.head(_N_REASONS).iter_rows()
    ]
    n_more = len(reasons) - _N_REASONS
    rest = f"{n_more:,} more reasons, and all clips" if n_more > 0 else "all of them"
    return [*lines, f"  {rest}: {workspace.quarantine_path}"]


def read_quarantine(workspace: Workspace) -> pl.DataFrame:
    """Read the clips that have no frames; none where no frames were ever made."""
    if not workspace.quarantine_path.exists():
        return pl.DataFrame(schema=QUARANTINE_SCHEMA)
    return read_table(workspace.quarantine_path)
