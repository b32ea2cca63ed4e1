"""Clips without frames, and why: the one file in which a user looks for what went wrong.

Whoever fills the frame store (extraction, embeddings made elsewhere, AudioSet's features) lists
here what it could not use, with the reason in words (those of sound files are from
``audio.decode``). The file is rewritten whole with the store; an empty list says that every clip
has frames.
"""

from __future__ import annotations

import polars as pl

from earmark.datasets.workspace import Workspace
from earmark.runs import read_table, write_table

QUARANTINE_SCHEMA = pl.Schema({"clip_id": pl.String(), "audio": pl.String(), "reason": pl.String()})
"""``audio`` is null where no file was found; ``reason`` never is.

Where a damaged place hides which clip it was, ``clip_id`` is null and ``audio`` names the place.
"""


def write_quarantine(workspace: Workspace, unread: pl.DataFrame) -> None:
    """Write the clips that have no frames: the columns of QUARANTINE_SCHEMA, others left out."""
    rows = unread.select(QUARANTINE_SCHEMA.names()).cast(QUARANTINE_SCHEMA)
    write_table(workspace.quarantine_path, rows)


def read_quarantine(workspace: Workspace) -> pl.DataFrame:
    """Read the clips that have no frames; none where no frames were ever made."""
    if not workspace.quarantine_path.exists():
        return pl.DataFrame(schema=QUARANTINE_SCHEMA)
    return read_table(workspace.quarantine_path)
