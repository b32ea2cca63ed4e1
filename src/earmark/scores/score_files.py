"""Scores in the formats that people have, as one ``.npy`` that can be streamed.

- ``.npy`` [clip, class]: used where it lies, never loaded
- ``.npz``: its only matrix, or the one asked for; ``clip_ids`` and ``class_ids`` may lie beside it
- Parquet, CSV, TSV, wide: clip_id and one column for each class; or long: clip_id, class_id, score
- a Zarr array
- a folder of ``.npy`` or Parquet shards in the order of their names (``part_2`` comes before
  ``part_10``), maybe with ``clips.parquet`` and ``classes.parquet``; or a folder of scores that
  ``earmark score`` wrote

Whatever is no ``.npy`` is converted once, a block at a time, into a scratch file.
"""

from __future__ import annotations

import importlib
import math
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_file, reader, reading
from earmark.labels import read_class_list, read_clip_list
from earmark.runs import Progress, choose_key, is_finished, names_in, open_archive, read_seal
from earmark.scores.blocks import (
    BLOCK_BYTES,
    ScoreFile,
    map_scores,
    row_blocks,
    rows_at_once,
    write_blocks,
)
from earmark.scores.score_tables import open_csv, open_parquet

_LEAST_LIMIT, _MOST_SHRUNK = 2**28, 100
"""Bytes of a Zarr array that are never too much, and how many times smaller its files may be."""

SCORE_KEYS = ("scores", "logits", "probabilities", "probs", "pred_probs")


@reader("scores")
def open_score_file(path: str | Path, key: str | None = None) -> ScoreFile:
    """Find shape and names of scores; ``key`` names the array of an ``.npz`` or a Zarr group."""
    path = Path(path)
    suffix = path.suffix.lower()
    if _is_zarr(path):
        return _open_zarr(path, key)
    if path.is_dir():
        return _open_folder(path)
    check_file(path)
    if suffix == ".npy":
        return ScoreFile(path, _matrix_shape(path), npy=path)
    if suffix == ".npz":
        return _open_npz(path, key)
    if suffix in (".parquet", ".pq"):
        return open_parquet(path, [path])
    if suffix in (".csv", ".tsv"):
        return open_csv(path)
    raise EarmarkError(
        f"{path}: scores are expected as .npy, .npz, .parquet, .csv, .tsv, .zarr or a folder of "
        f"shards, got {suffix or 'no ending'!r}"
    )


def _matrix_shape(path: Path) -> tuple[int, int]:
    n_clips, n_classes = map_scores(path).shape
    return n_clips, n_classes


def _open_npz(path: Path, key: str | None) -> ScoreFile:
    with open_archive(path) as members:
        shapes = {name: member.shape() for name, member in members.items()}
        chosen = choose_key(path, shapes, key, SCORE_KEYS)
        clips, classes = names_in(members, "clip_ids"), names_in(members, "class_ids")
    if len(shapes[chosen]) != 2:
        raise EarmarkError(f"{path}: {chosen} has shape {shapes[chosen]}, expected [clip, class]")

    def convert(target: Path, progress: Progress) -> None:
        del progress
        with (
            open_archive(path) as members,
            members[chosen].open() as file,
            target.open("wb") as npy,
        ):
            shutil.copyfileobj(file, npy, BLOCK_BYTES)

    n_clips, n_classes = shapes[chosen]
    class_ids = None if classes is None else tuple(classes.to_list())
    return ScoreFile(path, (n_clips, n_classes), clips, class_ids, convert=convert)


def _is_zarr(path: Path) -> bool:
    return path.suffix.lower() == ".zarr" or any(
        (path / name).is_file() for name in (".zarray", ".zgroup", "zarr.json")
    )


def _open_zarr(path: Path, key: str | None) -> ScoreFile:
    array = _zarr_array(path, key)
    if len(array.shape) != 2:
        raise EarmarkError(f"{path}: expected a matrix [clip, class], got shape {array.shape}")
    n_clips, n_classes = (int(n) for n in array.shape)
    _refuse_claims(path, array)
    step = rows_at_once(n_classes)
    step = max(step // array.chunks[0], 1) * array.chunks[0]  # whole chunks: each is read once

    def convert(target: Path, progress: Progress) -> None:
        meter = progress.job("read scores", n_clips, "clips")

        def blocks() -> Iterator[NDArray[Any]]:
            for start in range(0, n_clips, step):
                yield np.asarray(array[start : start + step])
                meter.advance(min(step, n_clips - start))

        write_blocks(target, np.dtype(array.dtype), array.shape, blocks())

    return ScoreFile(path, (n_clips, n_classes), convert=convert)


def _refuse_claims(path: Path, array: Any) -> None:
    """Refuse a Zarr array that is far larger than its files: chunks that are not there are fill."""
    claimed = math.prod(array.shape) * array.dtype.itemsize
    chunk = math.prod(array.chunks) * array.dtype.itemsize
    if max(claimed, chunk) <= _LEAST_LIMIT:
        return
    n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    if max(claimed, chunk) > _MOST_SHRUNK * n_bytes:
        raise EarmarkError(
            f"{path}: claims {claimed:,} bytes of scores (in chunks of {chunk:,}), but has "
            f"{n_bytes:,} bytes of files; are chunks missing?"
        )


def _zarr_array(path: Path, key: str | None) -> Any:
    if not path.is_dir():
        raise EarmarkError(f"{path}: no such folder")
    try:
        zarr = importlib.import_module("zarr")  # optional: most people have no Zarr
    except ImportError:
        raise EarmarkError(f"{path}: to read it, `pip install zarr`") from None
    with reading(path, "a Zarr array", "of a group, name the array to use"):
        return zarr.open_array(path / key if key else path, mode="r")


def _open_folder(folder: Path) -> ScoreFile:
    clips, classes = folder / "clips.parquet", folder / "classes.parquet"
    clip_ids = read_clip_list(clips) if clips.exists() else None
    class_ids = read_class_list(classes).class_ids if classes.exists() else None
    if is_finished(folder) and (folder / "logits.npy").exists():
        npy = folder / "logits.npy"
        listed = _meta_classes(folder)
        return ScoreFile(npy, _matrix_shape(npy), clip_ids, listed or class_ids, npy)
    arrays = sorted(folder.glob("*.npy"), key=_natural)
    tables = [path for path in folder.glob("*.parquet") if path not in (clips, classes)]
    if bool(arrays) == bool(tables):
        found = "both" if arrays else "neither"
        raise EarmarkError(f"{folder}: expected shards as .npy or as .parquet, found {found}")
    if tables:
        file = open_parquet(folder, sorted(tables, key=_natural))
        return file if file.clip_ids is not None else replace(file, clip_ids=clip_ids)
    return _open_shards(folder, arrays, clip_ids, class_ids)


def _meta_classes(folder: Path) -> tuple[str, ...] | None:
    meta = read_seal(folder)
    listed = meta.get("class_ids") if isinstance(meta, dict) else None
    return tuple(map(str, listed)) if isinstance(listed, list) else None


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts part_2 before part_10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def _open_shards(
    folder: Path,
    paths: Sequence[Path],
    clip_ids: pl.Series | None,
    class_ids: tuple[str, ...] | None,
) -> ScoreFile:
    shards = [map_scores(path) for path in paths]
    widths = {shard.shape[1] for shard in shards}
    if len(widths) > 1:
        odd = next(
            p for p, s in zip(paths, shards, strict=True) if s.shape[1] != shards[0].shape[1]
        )
        raise EarmarkError(f"{folder}: {paths[0].name} and {odd.name} have different classes")
    shape = (sum(len(shard) for shard in shards), shards[0].shape[1])
    if len(paths) == 1:
        return ScoreFile(paths[0], shape, clip_ids, class_ids, npy=paths[0])

    def convert(target: Path, progress: Progress) -> None:
        meter = progress.job("join shards", shape[0], "clips")

        def blocks() -> Iterator[NDArray[Any]]:
            for path in paths:
                for _, block in row_blocks(path):
                    yield block
                    meter.advance(len(block))

        write_blocks(target, np.result_type(*shards), shape, blocks())

    return ScoreFile(folder, shape, clip_ids, class_ids, convert=convert)
