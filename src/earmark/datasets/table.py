"""Any dataset given as a table of clips and a table of labels.

Clips: ``clip_id`` and ``audio`` (path, relative to the table's folder), and where known
``start_seconds``, ``end_seconds``, ``split`` (train, tune or eval) and ``source`` (the recording
that a clip was cut from). Labels: ``clip_id, class_id, present``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import polars as pl

from earmark.artefacts import read_table
from earmark.errors import EarmarkError, nearest
from earmark.labels import LabelSet
from earmark.ontology import Ontology
from earmark.workspace import SPLITS, Workspace, write_dataset

SPLIT_SHARES = {"train": 0.8, "tune": 0.1, "eval": 0.1}
"""Shares of recordings where the table of clips has no splits."""


def import_tables(clips_path: Path, labels_path: Path, root: Path) -> Workspace:
    """Read both tables, fill in what the clips leave out, and write a workspace."""
    clips = _complete(read_table(clips_path), clips_path)
    rows = read_table(labels_path)
    if "class_id" not in rows.columns:
        hint = nearest("class_id", rows.columns)
        raise EarmarkError(f"{labels_path}: there is no column 'class_id'{hint}")
    class_ids = rows["class_id"].cast(pl.String).drop_nulls().unique().sort().to_list()
    labels = LabelSet.from_rows(rows, clips["clip_id"], class_ids, str(labels_path))
    return write_dataset(root, clips, Ontology(tuple(class_ids)), labels)


def _complete(clips: pl.DataFrame, path: Path) -> pl.DataFrame:
    for column in ("clip_id", "audio"):
        if column not in clips.columns:
            hint = nearest(column, clips.columns)
            raise EarmarkError(f"{path}: there is no column {column!r}{hint}")
    clips = clips.with_columns(pl.col("clip_id", "audio").cast(pl.String))
    if clips["clip_id"].is_duplicated().any():
        twice = clips.filter(pl.col("clip_id").is_duplicated())["clip_id"][0]
        raise EarmarkError(f"{path}: clip {twice!r} is listed twice")
    for column in ("start_seconds", "end_seconds"):
        if column not in clips.columns:
            clips = clips.with_columns(pl.lit(None, pl.Float64).alias(column))
    if "source" not in clips.columns:
        clips = clips.with_columns(source="audio")
    clips = clips.with_columns(pl.col("source").cast(pl.String).fill_null(pl.col("clip_id")))
    if "split" not in clips.columns:
        clips = clips.with_columns(pl.Series("split", map(_split_of, clips["source"].to_list())))
    _check_splits(clips, path)
    return clips.with_columns(_absolute(clips["audio"], path.parent))


def _split_of(source: str) -> str:
    """Place a recording by a number drawn from its name, so that it never changes split."""
    draw = int.from_bytes(hashlib.sha256(source.encode()).digest()[:8]) / 2**64
    for split, share in SPLIT_SHARES.items():
        if draw < share:
            return split
        draw -= share
    return "eval"


def _check_splits(clips: pl.DataFrame, path: Path) -> None:
    is_odd = ~clips["split"].is_in(SPLITS).fill_null(False)
    if is_odd.any():
        line = int(is_odd.arg_max() or 0)
        raise EarmarkError(
            f"{path}, line {line + 2}: split must be one of {', '.join(SPLITS)}, "
            f"got {clips['split'][line]!r}"
        )


def _absolute(audio: pl.Series, folder: Path) -> pl.Series:
    paths = [None if name is None else str((folder / name).resolve()) for name in audio.to_list()]
    return pl.Series("audio", paths, pl.String)
