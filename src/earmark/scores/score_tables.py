"""Scores as tables: Parquet, CSV or TSV, wide or long.

*Wide*: the clip and one column for each class. *Long*: a row for clip, class and score. The clips'
column is found by its name, as in tables of labels. A CSV is turned into Parquet once, a piece at a
time, because each column of scores is read by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, reading
from earmark.labels import guess_columns
from earmark.runs import (
    TABLE_ERRORS,
    Progress,
    SourceTable,
    check_parquet,
    read_header,
    read_source,
)
from earmark.scores.blocks import Convert, ScoreFile, rows_at_once, write_blocks

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
