"""A table of flags for viewers of embeddings, such as Renumics Spotlight and Embedding Atlas.

One row for each flag, with the place of its sound, what is labelled, and the clip's embedding where
the workspace has any: the mean over its frames, and the first two principal components of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.datasets.workspace import Workspace
from earmark.labels import LabelSet
from earmark.runs import is_finished, write_table

MOST_ROWS = 20_000
"""Flags in a table at most, the likeliest first: viewers hold all of it in memory."""

_KEPT = ("rank", "split", "span_start", "span_end")


@dataclass(frozen=True)
class Atlas:
    """A table that was written; ``n_features`` is the width of an embedding, 0 without any."""

    path: Path
    table: pl.DataFrame
    n_flags: int
    n_features: int


def write_atlas(workspace: Workspace, path: Path, flags: pl.DataFrame, labels: LabelSet) -> Atlas:
    """Write the likeliest flags as Parquet.

    ``flags``: clip_id, class_id, chance, logit and more, the likeliest first. ``audio`` is an
    absolute path or a URL, null without sound; ``given_labels`` are names with commas between.
    """
    rows = flags.head(MOST_ROWS)
    names = pl.col("class_id").map_elements(workspace.ontology.name, pl.String)
    table = rows.select(
        "clip_id",
        "class_id",
        names.alias("class_name"),
        pl.col("chance").cast(pl.Float64),
        pl.col("logit").cast(pl.Float64).alias("score"),
        *(name for name in _KEPT if name in rows.columns),
    )
    table = table.join(_clips(workspace, labels), on="clip_id", how="left", maintain_order="left")
    store = embedding_store(workspace)
    if store is not None and len(table):
        clips = _embedded(store, table["clip_id"].unique(maintain_order=True))
        table = table.join(clips, on="clip_id", how="left", maintain_order="left")
    write_table(path, table)
    return Atlas(path, table, len(flags), 0 if store is None else store.n_bands)


def embedding_store(workspace: Workspace) -> FrameStore | None:
    """Return the frames that are embeddings: a pretrained network's, or one's own; else None."""
    if is_finished(workspace.embeddings_folder):
        return FrameStore.open(workspace.embeddings_folder)
    if workspace.has_frames():
        store = FrameStore.open(workspace.frames_folder)
        return store if store.meta.front_end is None else None
    return None


def _clips(workspace: Workspace, labels: LabelSet) -> pl.DataFrame:
    """Return clip_id, audio, start_seconds, end_seconds and given_labels."""
    present = labels.rows().filter("present")
    name = pl.col("class_id").map_elements(workspace.ontology.name, pl.String)
    given = present.group_by("clip_id").agg(name.str.join(", ").alias("given_labels"))
    places = [
        audio and str(_absolute(workspace, audio)) for audio in workspace.clips["audio"].to_list()
    ]
    clips = workspace.clips.select(
        "clip_id", pl.Series("audio", places, pl.String), "start_seconds", "end_seconds"
    )
    joined = clips.join(given, on="clip_id", how="left")
    return joined.with_columns(pl.col("given_labels").fill_null(""))


def _absolute(workspace: Workspace, audio: str) -> str | Path:
    place = workspace.audio_place(audio)
    return place.resolve() if isinstance(place, Path) else place


def _embedded(store: FrameStore, clip_ids: pl.Series) -> pl.DataFrame:
    """Return clip_id, embedding, projection_x and projection_y of clips that have frames."""
    rows = store.rows_of(clip_ids)
    known = clip_ids.filter(pl.Series(rows >= 0))
    means = [store.frames(row).mean(axis=0, dtype=np.float64) for row in rows[rows >= 0]]
    vectors = np.array(means, np.float32).reshape(len(known), store.n_bands)
    plane = _projected(vectors)
    return pl.DataFrame(
        {
            "clip_id": known,
            "embedding": pl.Series(vectors.tolist(), dtype=pl.List(pl.Float32)),
            "projection_x": plane[:, 0],
            "projection_y": plane[:, 1],
        }
    )


def _projected(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the first two principal components [clip, 2], 0 where vectors have fewer."""
    plane = np.zeros((len(vectors), 2))
    n_components = min(2, *vectors.shape)
    if n_components and len(vectors) > 1:
        from sklearn.decomposition import PCA  # half a second to load

        plane[:, :n_components] = PCA(n_components, random_state=0).fit_transform(vectors)
    return plane
