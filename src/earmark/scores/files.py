"""Files of scores in the formats that people have, as one ``.npy`` that can be streamed.

- ``.npy`` [clip, class]: used in place, never loaded
- ``.npz``: its only matrix, or the one asked for; it may also hold ``clip_ids`` and ``class_ids``
- Parquet, CSV or TSV, *wide*: the clip and one column for each class; or *long*: a row for clip,
  class and score. Names of columns are recognised as in tables of labels
- a Zarr array
- a folder of ``.npy`` or Parquet shards in the order of their names (``part_2`` comes before
  ``part_10``), maybe with ``clips.parquet`` and ``classes.parquet``; or a folder of scores that
  ``earmark score`` wrote

Every format but ``.npy`` is converted once, a block at a time, into a scratch file. A CSV becomes
Parquet first, a piece at a time, because each column of scores is read by itself.
"""

from __future__ import annotations

import importlib
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import (
    SILENT,
    Progress,
)
from earmark.errors import EarmarkError, check_file, reader, reading
from earmark.labels import guess_columns, read_class_list, read_clip_list
from earmark.storage import (
    TABLE_ERRORS,
    SourceTable,
    check_parquet,
    check_unique,
    choose_key,
    is_finished,
    map_array,
    names_in,
    open_archive,
    read_header,
    read_seal,
    read_source,
)

BLOCK_BYTES = 64 << 20
"""Scores in memory at a time during a conversion."""

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
        with reading(self.path, "scores"):
            self.convert(path, progress)
        return path


def map_scores(path: Path) -> NDArray[Any]:
    """Map an ``.npy`` of scores; refuse what is no matrix of floats."""
    scores = map_array(path)
    if scores.ndim != 2:
        raise EarmarkError(f"{path}: expected a matrix [clip, class], got shape {scores.shape}")
    if scores.dtype.kind != "f" or scores.dtype.itemsize > 8:
        raise EarmarkError(f"{path}: expected float16, float32 or float64, got {scores.dtype}")
    return scores


def rows_at_once(n_columns: int) -> int:
    """Return how many rows of so many scores make a block."""
    return max(1, BLOCK_BYTES // max(8 * n_columns, 1))


def row_blocks(path: Path, mode: Literal["r", "r+"] = "r") -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the rows of an ``.npy`` block by block, with the number of each block's first."""
    n_clips, n_classes = map_scores(path).shape
    step = rows_at_once(n_classes)
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


SCORE_COLUMNS = ("score", "logit", "probability", "prob", "value")

_NUMBERS = "row numbers"
"""What we call a CSV's first column that has no name."""


@dataclass(frozen=True)
class _Table:
    """A table that is not read yet: ``scanned``, of columns ``schema``; ``kind`` is its format."""

    path: Path
    scanned: pl.LazyFrame
    schema: dict[str, pl.DataType]
    kind: str

    def collected(self, wanted: pl.LazyFrame) -> pl.DataFrame:
        """Read some of the table; what cannot be read is an error with its line, if it has one."""
        with self.explained():
            return wanted.collect(engine="streaming")

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Name the line of a CSV that cannot be read, which polars does not."""
        with reading(self.path, self.kind):
            try:
                yield
            except TABLE_ERRORS:
                if self.kind == "CSV":
                    _refuse_odd_cell(self)
                raise

    @contextmanager
    def by_columns(self, scratch: Path) -> Iterator[_Table]:
        """Yield the table as Parquet, which columns can be read from one by one."""
        if self.kind == "Parquet":
            yield self
            return
        parquet = scratch.with_suffix(".parquet")
        n_rows = rows_at_once(len(self.schema))
        try:
            with self.explained():
                self.scanned.sink_parquet(
                    parquet, compression="uncompressed", row_group_size=n_rows
                )
            yield _Table(self.path, pl.scan_parquet(parquet, glob=False), self.schema, self.kind)
        finally:
            parquet.unlink(missing_ok=True)


def open_parquet(path: Path, parts: Sequence[Path]) -> ScoreFile:
    """Open scores in Parquet files that are parts of one table."""
    for part in parts:
        check_parquet(part)
    scanned = pl.scan_parquet(list(parts), glob=False)
    with reading(path, "Parquet"):
        schema = dict(scanned.collect_schema())
    return _open(_Table(path, scanned, schema, "Parquet"))


def open_csv(path: Path) -> ScoreFile:
    """Open scores in a CSV or TSV with any delimiter; a first column without a name is left out."""
    header, delimiter = read_header(path)
    names = [name or _NUMBERS for name in header]
    texts = {column for column in _named(path, names) if column is not None}
    schema: dict[str, pl.DataType] = {
        name: pl.String() if name in (*texts, _NUMBERS) else pl.Float64() for name in names
    }
    scanned = pl.scan_csv(
        path,
        has_header=False,
        skip_lines=1,
        separator=delimiter,
        schema=pl.Schema(schema),
        glob=False,
    )
    table = _Table(path, scanned, schema, "CSV")
    if _NUMBERS in schema:
        _check_numbers(table)
        schema.pop(_NUMBERS)
        table = _Table(path, scanned.drop(_NUMBERS), schema, "CSV")
    return _open(table)


def _named(path: Path, names: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the column of the clips, and that of the classes where the table is long."""
    roles = guess_columns(SourceTable(path, pl.DataFrame(schema=dict.fromkeys(names, pl.String))))
    clip, class_ = roles.get("clip_id", roles.get("audio")), roles.get("class_id")
    is_long = clip is not None and _score_column(names) is not None
    return clip, class_ if is_long else None


def _score_column(names: Sequence[str]) -> str | None:
    by_name = {name.lower(): name for name in names}
    return next((by_name[name] for name in SCORE_COLUMNS if name in by_name), None)


def _open(table: _Table) -> ScoreFile:
    clip, class_ = _named(table.path, list(table.schema))
    score = _score_column(list(table.schema))
    if clip is not None and class_ is not None and score is not None:
        return _open_long(table, clip, class_, score)
    return _open_wide(table, clip)


def _open_wide(table: _Table, clip: str | None) -> ScoreFile:
    path, schema = table.path, table.schema
    columns = [name for name in schema if name != clip]
    for name in columns:
        if not schema[name].is_numeric():
            raise EarmarkError(
                f"{path}: column {name!r} holds {schema[name]}; expected clip_id and numbers, one "
                "column for each class, or the columns clip_id, class_id and score"
            )
    clips = None if clip is None else _clips(table, clip)
    count = table.scanned.select(pl.len())
    n_clips = table.collected(count).item() if clips is None else len(clips)
    shape = (n_clips, len(columns))
    dtype = np.dtype(np.float64 if pl.Float64 in [schema[c] for c in columns] else np.float32)

    def convert(target: Path, progress: Progress) -> None:
        with table.by_columns(target) as columnar:

            def read(group: Sequence[str]) -> NDArray[Any]:
                found = columnar.collected(columnar.scanned.select(group))
                return np.asarray(found.to_numpy().T)

            _by_columns(columns, shape, dtype, read)(target, progress)

    is_numbered = columns == [str(number) for number in range(len(columns))]
    class_ids = None if is_numbered else tuple(columns)
    return ScoreFile(path, shape, clips, class_ids, convert=convert)


def _clips(table: _Table, column: str) -> pl.Series:
    clips = table.collected(table.scanned.select(pl.col(column).cast(pl.String)))[column]
    if clips.null_count():
        place = int(clips.is_null().arg_max() or 0)
        raise EarmarkError(f"{table.path}: {column} is empty in row {place + 1:,} of the scores")
    return clips.str.strip_chars()


def _open_long(table: _Table, clip: str, class_: str, score: str) -> ScoreFile:
    named = {"clip_id": clip, "class_id": class_}

    def renamed(scanned: pl.LazyFrame) -> pl.LazyFrame:
        texts = [
            pl.col(column).cast(pl.String).str.strip_chars().alias(name)
            for name, column in named.items()
        ]
        return scanned.select(*texts, pl.col(score).cast(pl.Float64).alias("score"))

    clips, classes = (
        table.collected(renamed(table.scanned).select(pl.col(name).unique(maintain_order=True)))[
            name
        ]
        for name in named
    )
    if clips.null_count() or classes.null_count():
        raise EarmarkError(f"{table.path}: a row names no {clip} or no {class_}")
    shape = (len(clips), len(classes))
    rows = pl.LazyFrame({"clip_id": clips}).with_row_index("row")

    def convert(target: Path, progress: Progress) -> None:
        with table.by_columns(target) as columnar:

            def read(group: Sequence[str]) -> NDArray[Any]:
                chosen = renamed(columnar.scanned).filter(pl.col("class_id").is_in(list(group)))
                found = columnar.collected(chosen.join(rows, on="clip_id"))
                return _block(table.path, found, clips, group)

            _by_columns(classes.to_list(), shape, np.dtype(np.float64), read)(target, progress)

    return ScoreFile(table.path, shape, clips, tuple(classes.to_list()), convert=convert)


def _block(
    path: Path, found: pl.DataFrame, clips: pl.Series, group: Sequence[str]
) -> NDArray[np.float64]:
    """Put rows of a long table into a matrix [class, clip]; refuse gaps and repetitions."""
    places = pl.Series(group).to_frame("class_id").with_row_index("column")
    found = found.join(places, on="class_id")
    block = np.full((len(group), len(clips)), np.nan)
    n_said = np.zeros(block.shape, np.uint8)
    where = found["column"].to_numpy(), found["row"].to_numpy()
    n_said[where] = 1
    if len(found) != block.size or not n_said.all():
        _refuse_gaps(path, found, clips, group)
    block[where] = found["score"].to_numpy()
    return block


def _refuse_gaps(path: Path, found: pl.DataFrame, clips: pl.Series, group: Sequence[str]) -> None:
    """Name the first pair of clip and class that has no score, or more than one."""
    pairs = found.select("clip_id", "class_id")
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
    step = rows_at_once(shape[0])

    def convert(path: Path, progress: Progress) -> None:
        meter = progress.job("read scores", len(columns), "classes")
        raw = path.with_suffix(".columns")
        try:
            with raw.open("wb") as file:
                for start in range(0, len(columns), step):
                    group = columns[start : start + step]
                    file.write(np.ascontiguousarray(read(group), dtype).data)
                    meter.advance(len(group))
            write_blocks(path, dtype, shape, _transposed(raw, dtype, shape))
        finally:
            raw.unlink(missing_ok=True)

    return convert


def _transposed(raw: Path, dtype: np.dtype[Any], shape: tuple[int, int]) -> Iterator[NDArray[Any]]:
    """Yield blocks of rows of a matrix that lies in a file column after column."""
    n_rows, n_columns = shape
    step = rows_at_once(n_columns)
    with raw.open("rb") as file:
        for start in range(0, n_rows, step):
            n = min(step, n_rows - start)
            block = np.empty((n_columns, n), dtype)
            for column in range(n_columns):
                file.seek((column * n_rows + start) * dtype.itemsize)
                block[column] = np.fromfile(file, dtype, n)
            yield block.T


def _check_numbers(table: _Table) -> None:
    """Refuse a first column that has no name and is no row number: it may name the clips."""
    first = table.collected(table.scanned.select(_NUMBERS).head(1))[_NUMBERS]
    if first.cast(pl.Int64, strict=False).null_count():
        raise EarmarkError(
            f"{table.path}, line 1: column 1 has no name; if it holds the clips, call it clip_id"
        )


def _refuse_odd_cell(table: _Table) -> None:
    """Name the first line of a CSV that is no row, or whose score is no number."""
    source = read_source(table.path)  # refuses rows of another width, with their line
    names_clips = pl.String in table.schema.values()
    hint = "" if names_clips else "; if the column names the clips, call it clip_id"
    for name in source.columns:
        if table.schema.get(name) != pl.Float64:
            continue
        cells = source.rows[name]
        is_odd = cells.cast(pl.Float64, strict=False).is_null() & cells.is_not_null()
        if is_odd.any():
            raise EarmarkError(
                f"{source.at_first(is_odd)}: {name} must be a score, a number such as -1.5, got "
                f"{cells.filter(is_odd)[0]!r}{hint}"
            )


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
