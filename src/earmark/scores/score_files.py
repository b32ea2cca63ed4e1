"""Scores in the formats that people have, as one ``.npy`` that can be streamed.

- ``.npy`` [clip, class]: used where it lies, never loaded
- ``.npz``: its only matrix, or the one asked for; ``clip_ids`` and ``class_ids`` may lie beside it
- Parquet, wide: clip_id and one column for each class; or long: clip_id, class_id, score
- a Zarr array
- a folder of ``.npy`` or Parquet shards in the order of their names (``part_2`` comes before
  ``part_10``), maybe with ``clips.parquet`` and ``classes.parquet``; or a folder of scores that
  ``earmark score`` wrote

Whatever is no ``.npy`` is converted once, a block at a time, into a scratch file.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_file
from earmark.labels import read_class_list, read_clip_list
from earmark.runs import (
    SILENT,
    TABLE_ERRORS,
    Progress,
    check_unique,
    choose_key,
    is_finished,
    map_array,
    names_in,
    open_archive,
    read_seal,
)

BLOCK_BYTES = 64 << 20
"""Scores in memory at a time during a conversion."""

SCORE_COLUMNS = ("score", "logit", "probability", "prob", "value")
SCORE_KEYS = ("scores", "logits", "probabilities", "probs", "pred_probs")

Convert = Callable[[Path, Progress], None]


@dataclass(frozen=True)
class ScoreFile:
    """A matrix of scores [clip, class] that is not read yet.

    ``clip_ids`` and ``class_ids`` are the names in the file, where it has any. ``npy`` is an
    ``.npy`` that holds the scores as they are; where there is none, ``convert`` writes one.
    """

    path: Path
    shape: tuple[int, int]
    clip_ids: pl.Series | None = None
    class_ids: tuple[str, ...] | None = None
    npy: Path | None = None
    convert: Convert | None = None

    def __post_init__(self) -> None:
        for names, n, what in (
            (self.clip_ids, self.shape[0], "clip"),
            (self.class_ids, self.shape[1], "class"),
        ):
            if names is None:
                continue
            if len(names) != n:
                raise EarmarkError(f"{self.path}: {len(names):,} {what} names for {n:,} scores")
            check_unique(pl.Series(names, dtype=pl.String), f"{self.path}: {what}")

    def write_npy(self, path: Path, progress: Progress = SILENT) -> Path:
        """Return the path of an ``.npy`` with the scores: their own or, converted, the given."""
        if self.npy is not None:
            return self.npy
        assert self.convert is not None
        self.convert(path, progress)
        return path


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
        return _open_parquet(path, [path])
    raise EarmarkError(
        f"{path}: scores are expected as .npy, .npz, .parquet, .zarr or a folder of shards, got "
        f"{suffix or 'no ending'!r}"
    )


def map_scores(path: Path) -> NDArray[Any]:
    """Map an ``.npy`` of scores; refuse what is no matrix of floats."""
    scores = map_array(path)
    if scores.ndim != 2:
        raise EarmarkError(f"{path}: expected a matrix [clip, class], got shape {scores.shape}")
    if scores.dtype.kind != "f" or scores.dtype.itemsize > 8:
        raise EarmarkError(f"{path}: expected float16, float32 or float64, got {scores.dtype}")
    return scores


def _matrix_shape(path: Path) -> tuple[int, int]:
    n_clips, n_classes = map_scores(path).shape
    return n_clips, n_classes


def row_blocks(path: Path, mode: Literal["r", "r+"] = "r") -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the rows of an ``.npy`` block by block, with the number of each block's first."""
    n_clips, n_classes = map_scores(path).shape
    step = max(1, BLOCK_BYTES // max(8 * n_classes, 1))
    for start in range(0, n_clips, step):
        # A fresh map for each block: mapped pages add up in the process's memory.
        yield start, np.lib.format.open_memmap(path, mode=mode)[start : start + step]


def write_blocks(
    path: Path, dtype: np.dtype[Any], shape: Sequence[int], blocks: Iterable[NDArray[Any]]
) -> None:
    """Write an ``.npy`` from blocks of rows."""
    header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)


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


def _open_parquet(path: Path, parts: Sequence[Path]) -> ScoreFile:
    table = pl.scan_parquet(list(parts))
    schema = _scanned(path, table.collect_schema)
    score = next((name for name in SCORE_COLUMNS if name in schema), None)
    if "clip_id" in schema and "class_id" in schema and score is not None:
        return _open_long(path, table, score)
    clip_column = "clip_id" if "clip_id" in schema else None
    columns = [name for name in schema if name != clip_column]
    for name in columns:
        if not schema[name].is_numeric():
            raise EarmarkError(
                f"{path}: column {name!r} holds {schema[name]}; expected clip_id and numbers, one "
                "column for each class, or the columns clip_id, class_id and score"
            )
    clips = None
    if clip_column:
        clips = _scanned(path, table.select(pl.col("clip_id").cast(pl.String)).collect)["clip_id"]
    n_clips = (
        len(clips) if clips is not None else _scanned(path, table.select(pl.len()).collect)[0, 0]
    )
    dtype = np.dtype(np.float64 if pl.Float64 in [schema[c] for c in columns] else np.float32)

    def column_blocks(group: Sequence[str]) -> NDArray[Any]:
        found = _scanned(path, table.select(group).collect)
        return np.asarray(found.to_numpy().T)

    convert = _by_columns(columns, (n_clips, len(columns)), dtype, column_blocks)
    is_numbered = columns == [str(number) for number in range(len(columns))]
    class_ids = None if is_numbered else tuple(columns)
    return ScoreFile(path, (n_clips, len(columns)), clips, class_ids, convert=convert)


def _open_long(path: Path, table: pl.LazyFrame, score: str) -> ScoreFile:
    table = table.select(
        pl.col("clip_id", "class_id").cast(pl.String), pl.col(score).alias("score")
    )
    clips, classes = (
        _scanned(path, table.select(pl.col(name).unique(maintain_order=True)).collect)[name]
        for name in ("clip_id", "class_id")
    )
    rows = pl.LazyFrame({"clip_id": clips}).with_row_index("row")

    def column_blocks(group: Sequence[str]) -> NDArray[Any]:
        chosen = table.filter(pl.col("class_id").is_in(list(group))).join(rows, on="clip_id")
        found = _scanned(path, chosen.collect)
        block = np.full((len(group), len(clips)), np.nan)
        places = pl.Series(group).to_frame("class_id").with_row_index("column")
        found = found.join(places, on="class_id")
        block[found["column"].to_numpy(), found["row"].to_numpy()] = found["score"].to_numpy()
        if np.isnan(block).any() or len(found) != block.size:
            _refuse_gaps(path, found, clips, group)
        return block

    shape = (len(clips), len(classes))
    convert = _by_columns(classes.to_list(), shape, np.dtype(np.float64), column_blocks)
    return ScoreFile(path, shape, clips, tuple(classes.to_list()), convert=convert)


def _refuse_gaps(path: Path, found: pl.DataFrame, clips: pl.Series, group: Sequence[str]) -> None:
    """Name the first pair of clip and class that has no score, or more than one."""
    pairs = found.filter(pl.col("score").is_not_nan()).select("clip_id", "class_id")
    wanted = pl.DataFrame({"clip_id": clips}).join(pl.DataFrame({"class_id": group}), how="cross")
    for odd, what in (
        (wanted.join(pairs, on=["clip_id", "class_id"], how="anti", maintain_order="left"), "no"),
        (pairs.filter(pairs.is_duplicated()), "more than one"),
    ):
        if len(odd):
            clip_id, class_id = odd.row(0)
            raise EarmarkError(f"{path}: clip {clip_id!r}, class {class_id!r} has {what} score")


def _by_columns(
    columns: Sequence[str],
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    read: Callable[[Sequence[str]], NDArray[Any]],
) -> Convert:
    """Convert a columnar file: some columns at a time to a raw file, which is then transposed."""
    # Parquet stores columns: to cut it into rows would decode every row group again and again.
    step = max(1, BLOCK_BYTES // max(8 * shape[0], 1))

    def convert(path: Path, progress: Progress) -> None:
        meter = progress.job("read scores", len(columns), "classes")
        raw = path.with_suffix(".columns")
        with raw.open("wb") as file:
            for start in range(0, len(columns), step):
                group = columns[start : start + step]
                file.write(np.ascontiguousarray(read(group), dtype).data)
                meter.advance(len(group))
        write_blocks(path, dtype, shape, _transposed(raw, dtype, shape))
        raw.unlink()

    return convert


def _transposed(raw: Path, dtype: np.dtype[Any], shape: tuple[int, int]) -> Iterator[NDArray[Any]]:
    """Yield blocks of rows of a matrix that lies in a file column after column."""
    n_rows, n_columns = shape
    step = max(1, BLOCK_BYTES // max(8 * n_columns, 1))
    with raw.open("rb") as file:
        for start in range(0, n_rows, step):
            n = min(step, n_rows - start)
            block = np.empty((n_columns, n), dtype)
            for column in range(n_columns):
                file.seek((column * n_rows + start) * dtype.itemsize)
                block[column] = np.fromfile(file, dtype, n)
            yield block.T


def _scanned(path: Path, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except TABLE_ERRORS as error:
        raise EarmarkError(f"{path}: cannot be read as Parquet: {error}") from None


def _is_zarr(path: Path) -> bool:
    return path.suffix.lower() == ".zarr" or any(
        (path / name).is_file() for name in (".zarray", ".zgroup", "zarr.json")
    )


def _open_zarr(path: Path, key: str | None) -> ScoreFile:
    array = _zarr_array(path, key)
    if len(array.shape) != 2:
        raise EarmarkError(f"{path}: expected a matrix [clip, class], got shape {array.shape}")
    n_clips, n_classes = (int(n) for n in array.shape)
    step = max(1, BLOCK_BYTES // max(8 * n_classes, 1))
    step = max(step // array.chunks[0], 1) * array.chunks[0]  # whole chunks: each is read once

    def convert(target: Path, progress: Progress) -> None:
        meter = progress.job("read scores", n_clips, "clips")

        def blocks() -> Iterator[NDArray[Any]]:
            for start in range(0, n_clips, step):
                yield np.asarray(array[start : start + step])
                meter.advance(min(step, n_clips - start))

        write_blocks(target, np.dtype(array.dtype), array.shape, blocks())

    return ScoreFile(path, (n_clips, n_classes), convert=convert)


def _zarr_array(path: Path, key: str | None) -> Any:
    if not path.is_dir():
        raise EarmarkError(f"{path}: no such folder")
    try:
        zarr = importlib.import_module("zarr")  # optional: most people have no Zarr
    except ImportError:
        raise EarmarkError(f"{path}: to read it, `pip install zarr`") from None
    try:
        return zarr.open_array(path / key if key else path, mode="r")
    except Exception as error:  # zarr and its codecs raise whatever they like
        raise EarmarkError(
            f"{path}: cannot be read as a Zarr array ({error}); of a group, name the array to use"
        ) from None


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
        file = _open_parquet(folder, sorted(tables, key=_natural))
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
