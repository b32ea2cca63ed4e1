"""Files of scores in the formats that people have, as one ``.npy`` that can be streamed.

- ``.npy`` [clip, class]: used in place, never loaded
- ``.npz``: its only matrix, or the one asked for; it may also hold ``clip_ids`` and ``class_ids``
- Parquet, CSV or TSV, *wide*: the clip and one column for each class; or *long*: a row for clip,
  class and score. Names of columns are recognised as in tables of labels
- a folder of scores that ``earmark score`` wrote

Every format but ``.npy`` is converted once, a block at a time, into a scratch file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import SILENT, Progress
from earmark.errors import EarmarkError, check_file, reader, reading
from earmark.labels import guess_columns, read_clip_list
from earmark.storage import (
    TABLE_ERRORS,
    SourceTable,
    check_parquet,
    check_unique,
    choose_key,
    is_finished,
    map_array,
    names_in,
    new_array,
    open_archive,
    read_header,
    read_seal,
    read_source,
)

BLOCK_BYTES = 64 << 20
"""Scores in memory at a time during a conversion."""

_NOT_SCORED = np.uint64(0x7FF8_0000_0000_0001)
"""The bits of a NaN that no file has: marks labels whose score has not come yet."""

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
        try:
            with reading(self.path, "scores"):
                self.convert(path, progress)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
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
    kind: Literal["Parquet", "CSV"]

    def collect(self, wanted: pl.LazyFrame) -> pl.DataFrame:
        """Read some of the table; what cannot be read is an error with its line, if it has one."""
        with self._naming_lines():
            return wanted.collect(engine="streaming")

    def batches(self, wanted: pl.LazyFrame) -> Iterator[pl.DataFrame]:
        """Yield some of the table, block by block, in its order."""
        n_rows = rows_at_once(len(self.schema))
        with self._naming_lines():
            yield from wanted.collect_batches(chunk_size=n_rows, maintain_order=True)

    @contextmanager
    def _naming_lines(self) -> Iterator[None]:
        """Name the line of a CSV that cannot be read, which polars does not."""
        with reading(self.path, self.kind):
            try:
                yield
            except TABLE_ERRORS:
                if self.kind == "CSV":
                    _refuse_odd_cell(self)
                raise


def open_parquet(path: Path) -> ScoreFile:
    """Open scores in a Parquet file."""
    check_parquet(path)
    scanned = pl.scan_parquet(path, glob=False)
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
    n_clips = table.collect(count).item() if clips is None else len(clips)
    shape = (n_clips, len(columns))
    is_double = pl.Float64 in [schema[name] for name in columns]
    dtype = pl.Float64 if is_double else pl.Float32
    # All columns are read: with some of them polars does not see that a row has too many.
    scores = table.scanned.with_columns(pl.col(columns).cast(dtype))

    def convert(target: Path, progress: Progress) -> None:
        meter = progress.job("read scores", n_clips, "clips")

        def blocks() -> Iterator[NDArray[Any]]:
            for batch in table.batches(scores):
                yield batch.select(columns).to_numpy()
                meter.advance(len(batch))

        write_blocks(target, np.dtype(np.float64 if is_double else np.float32), shape, blocks())

    is_numbered = columns == [str(number) for number in range(len(columns))]
    class_ids = None if is_numbered else tuple(columns)
    return ScoreFile(path, shape, clips, class_ids, convert=convert)


def _clips(table: _Table, column: str) -> pl.Series:
    clips = table.collect(table.scanned.select(pl.col(column).cast(pl.String)))[column]
    if clips.null_count():
        first = int(clips.is_null().arg_max() or 0)
        raise EarmarkError(f"{table.path}: {column} is empty in row {first + 1:,} of the scores")
    return clips.str.strip_chars()


def _open_long(table: _Table, clip: str, class_: str, score: str) -> ScoreFile:
    names = {"clip_id": clip, "class_id": class_}
    long = table.scanned.select(
        *(pl.col(column).cast(pl.String).str.strip_chars().alias(n) for n, column in names.items()),
        pl.col(score).cast(pl.Float64).alias("score"),
    )
    clips, classes = (
        table.collect(long.select(pl.col(name).unique(maintain_order=True)))[name] for name in names
    )
    if clips.null_count() or classes.null_count():
        raise EarmarkError(f"{table.path}: a row names no {clip} or no {class_}")
    shape = (len(clips), len(classes))

    def convert(target: Path, progress: Progress) -> None:
        meter = progress.job("read scores", shape[0] * shape[1], "labels")
        scores = new_array(target, shape, np.float64)
        scores.view(np.uint64)[:] = _NOT_SCORED
        rows = clips.to_frame().with_row_index("row")
        columns = classes.to_frame().with_row_index("column")
        n_read = 0
        for batch in table.batches(long):
            placed = batch.join(rows, on="clip_id").join(columns, on="class_id")
            scores[placed["row"].to_numpy(), placed["column"].to_numpy()] = placed["score"]
            n_read += len(batch)
            meter.advance(len(batch))
        is_missing = scores.view(np.uint64) == _NOT_SCORED
        if n_read > scores.size - np.count_nonzero(is_missing):
            is_again = pl.struct("clip_id", "class_id").is_duplicated()
            _refuse_pair(table, table.collect(long.filter(is_again)), "more than one")
        if is_missing.any():
            row, column = np.argwhere(is_missing)[0]
            pair = pl.DataFrame({"clip_id": clips[int(row)], "class_id": classes[int(column)]})
            _refuse_pair(table, pair, "no")

    return ScoreFile(table.path, shape, clips, tuple(classes.to_list()), convert=convert)


def _refuse_pair(table: _Table, pairs: pl.DataFrame, what: str) -> NoReturn:
    clip_id, class_id = pairs["clip_id"][0], pairs["class_id"][0]
    raise EarmarkError(f"{table.path}: clip {clip_id!r}, class {class_id!r} has {what} score")


def _check_numbers(table: _Table) -> None:
    """Refuse a first column that has no name and is no row number: it may name the clips."""
    first = table.collect(table.scanned.select(_NUMBERS).head(1))[_NUMBERS]
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


SCORE_KEYS = ("scores", "logits", "probabilities", "probs", "pred_probs")


@reader("scores")
def open_score_file(path: str | Path, key: str | None = None) -> ScoreFile:
    """Find shape and names of scores; ``key`` names the array of an ``.npz``."""
    path = Path(path)
    suffix = path.suffix.lower()
    if path.is_dir():
        return _open_folder(path)
    check_file(path)
    if suffix == ".npy":
        return ScoreFile(path, _matrix_shape(path), npy=path)
    if suffix == ".npz":
        return _open_npz(path, key)
    if suffix in (".parquet", ".pq"):
        return open_parquet(path)
    if suffix in (".csv", ".tsv"):
        return open_csv(path)
    raise EarmarkError(
        f"{path}: scores are expected as .npy, .npz, .parquet, .csv or .tsv, got "
        f"{suffix or 'no ending'!r}"
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


def _open_folder(folder: Path) -> ScoreFile:
    """Open the scores that earmark wrote into a folder."""
    npy = folder / "logits.npy"
    if not is_finished(folder) or not npy.exists():
        raise EarmarkError(
            f"{folder}: expected one file of scores, or a folder that `earmark score` wrote; join "
            "parts first, with np.concatenate or "
            "pl.scan_parquet('FOLDER/*.parquet').sink_parquet('scores.parquet')"
        )
    clips = folder / "clips.parquet"
    clip_ids = read_clip_list(clips) if clips.exists() else None
    listed = read_seal(folder).get("class_ids")
    class_ids = tuple(map(str, listed)) if isinstance(listed, list) else None
    return ScoreFile(npy, _matrix_shape(npy), clip_ids, class_ids, npy)
