"""The clips of a split that have frames: what networks can be trained and judged on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.datasets.workspace import HELD_OUT_SPLITS, Workspace
from earmark.errors import EarmarkError
from earmark.labels import LabelSet


@dataclass(frozen=True)
class ReadableClips:
    """The clips of a split that have frames: parallel labels, sources and places in the store."""

    labels: LabelSet
    sources: list[str]
    store_rows: NDArray[np.int64]

    def select(self, rows: NDArray[np.int64]) -> ReadableClips:
        """Return some of the clips."""
        sources = [self.sources[row] for row in rows]
        return ReadableClips(self.labels.select(rows), sources, self.store_rows[rows])


def readable_clips(
    workspace: Workspace, store: FrameStore, split: str, labels: LabelSet | None = None
) -> ReadableClips:
    """Return the clips of a split that have frames; ``labels`` default to the labels as given."""
    clips = _with_frames(workspace, store, split)
    if clips.is_empty():
        n_clips = int((workspace.clips["split"] == split).sum())
        why = f"none of its {n_clips:,} clips has frames" if n_clips else "no clip is in it"
        raise EarmarkError(f"{workspace.root}: the {split} split cannot be used: {why}")
    return _readable(store, clips, workspace.labels if labels is None else labels)


def held_out_clips(workspace: Workspace, store: FrameStore) -> ReadableClips | None:
    """Return the clips of the tune and then of the eval split that have frames; None without."""
    clips = pl.concat(_with_frames(workspace, store, split) for split in HELD_OUT_SPLITS)
    return None if clips.is_empty() else _readable(store, clips, workspace.labels)


def _with_frames(workspace: Workspace, store: FrameStore, split: str) -> pl.DataFrame:
    clips = workspace.clips.with_row_index("row").filter(pl.col("split") == split)
    return clips.filter(pl.col("clip_id").is_in(store.clip_ids.implode()))


def _readable(store: FrameStore, clips: pl.DataFrame, labels: LabelSet) -> ReadableClips:
    return ReadableClips(
        labels.select(clips["row"].to_numpy()),
        clips["source"].to_list(),
        store.rows_of(clips["clip_id"]),
    )
