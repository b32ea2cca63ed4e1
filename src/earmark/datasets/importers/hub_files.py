"""Files of rows as the library ``datasets`` and its hub have them: Parquet, and Arrow streams.

Parquet is read by polars. What ``save_to_disk`` writes is a folder for each split with streams of
Arrow, which only pyarrow reads batch by batch (the extra ``hf``). Sound is handed on row by row,
and never more than a few rows of it are in memory. In the metadata stands which columns hold sound,
and the names of classes.

The library itself is not used: a damaged Arrow file ends its process (SIGBUS), it holds whole row
groups of sound, and it installs 125 MB more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from earmark.datasets.audio_files import walk_files
from earmark.errors import EarmarkError, check_file, check_libraries, first_few, reading
from earmark.storage import SourceTable, check_parquet, read_json, read_noted

METADATA_KEY = "huggingface"
"""Where a Parquet or Arrow file keeps the features of its columns."""

_LISTS = ("List", "LargeList", "Sequence")
_NO_CLASS = -1
"""What ClassLabel has where nobody knows the class, as in hidden test sets."""


@dataclass(frozen=True)
class HubFeatures:
    """Columns of sound, and for columns of class numbers the names, in the numbers' order."""

    audio: tuple[str, ...] = ()
    class_names: Mapping[str, tuple[str, ...]] | None = None

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the classes, by column; empty where no column has any."""
        return self.class_names or {}


def features_of(described: object) -> HubFeatures:
    """Read what ``datasets`` wrote about columns; of anything else nothing is known."""
    if not isinstance(described, dict):
        return HubFeatures()
    of_sound = [name for name, each in described.items() if _kind(each) == "Audio"]
    named = {name: _class_names(each) for name, each in described.items()}
    return HubFeatures(tuple(of_sound), {name: own for name, own in named.items() if own})


def features_in_metadata(text: str | bytes | None) -> HubFeatures:
    """Read the features from the metadata of a Parquet or Arrow file."""
    try:
        return features_of(json.loads(text or "null")["info"]["features"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return HubFeatures()


def with_class_names(table: SourceTable, names: Mapping[str, Sequence[str]]) -> SourceTable:
    """Put names in the place of class numbers; -1 stands for a class that nobody knows."""
    for column, own in names.items():
        if column in table.columns:
            table = _named(table, column, own)
    return table


def _named(table: SourceTable, column: str, names: Sequence[str]) -> SourceTable:
    cells = table.rows[column]
    number = cells.dtype.inner if isinstance(cells.dtype, pl.List) else cells.dtype
    if number is None or not number.is_integer():
        return table  # names already
    every = cells.explode() if isinstance(cells.dtype, pl.List) else cells
    odd = every.filter((every < _NO_CLASS) | (every >= len(names))).drop_nulls()
    if len(odd):
        has = pl.col(column).list.contains(odd[0]) if cells.dtype == pl.List else None
        is_odd = table.rows.select(pl.col(column) == odd[0] if has is None else has).to_series()
        raise EarmarkError(
            f"{table.at_first(is_odd)}, column {column!r}: class {odd[0]}, but only "
            f"{len(names):,} classes have names (0 to {len(names) - 1})"
        )
    numbers = pl.Series([*range(len(names))], dtype=number)
    texts = pl.Series(list(names), dtype=pl.String)
    if isinstance(cells.dtype, pl.List):
        decoded = pl.element().replace_strict(numbers, texts, default=None, return_dtype=pl.String)
        named = pl.col(column).list.eval(decoded).list.drop_nulls()
    else:
        named = pl.col(column).replace_strict(numbers, texts, default=None, return_dtype=pl.String)
    return replace(table, rows=table.rows.with_columns(named))


def _kind(described: Any) -> str:
    return str(described.get("_type", "")) if isinstance(described, dict) else ""


def _class_names(described: Any) -> tuple[str, ...]:
    """Return the names of a ClassLabel, or of a list of them; none for any other column."""
    if isinstance(described, list) and len(described) == 1:
        return _class_names(described[0])
    if _kind(described) in _LISTS:
        return _class_names(described.get("feature"))
    names = described.get("names") if _kind(described) == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


_BYTES_AT_ONCE = 64 * 2**20
"""Sound of a Parquet file that is in memory at the same time, about."""

_ROWS_AT_FIRST, _MOST_ROWS = 8, 1024
_SPLITS_FILE, _STATE_FILE, _INFO_FILE = "dataset_dict.json", "state.json", "dataset_info.json"

Sound = tuple[str | None, bytes | None]
"""What a row says of its sound: a path or a name, and the file's bytes where they are embedded."""


@dataclass(frozen=True)
class ParquetRows:
    """A Parquet file, as on the hub."""

    path: Path
    key: str
    split: str

    def features(self) -> HubFeatures:
        """Return what ``datasets`` noted of the columns."""
        with reading(self.path, "Parquet"):
            return features_in_metadata(pl.read_parquet_metadata(self.path).get(METADATA_KEY))

    def schema(self) -> pl.Schema:
        """Return the columns and their types."""
        with reading(self.path, "Parquet"):
            return self._scan().collect_schema()

    def rows(self, columns: Sequence[str]) -> pl.DataFrame:
        """Read some columns, which hold no sound; without any, rows are counted all the same."""
        with reading(self.path, "Parquet"):
            if columns:
                return self._scan().select(columns).collect()
            n_rows = self._scan().select(pl.len()).collect().item()
            return pl.DataFrame({"row": range(1, n_rows + 1)})

    def sounds(self, column: str) -> Iterator[Sound]:
        """Yield the sound of each row, a few rows at a time: as many as are not too large."""
        first, n_rows, n_bytes = 0, _ROWS_AT_FIRST, 0
        while True:
            with reading(self.path, "Parquet"):
                rows = self._scan().slice(first, n_rows).select(column).collect().to_series()
            if rows.is_empty():
                return
            for cell in rows:
                name, content = _sound(cell)
                n_bytes += len(content or b"")
                yield name, content
            first += len(rows)
            n_rows = max(1, min(_MOST_ROWS, _BYTES_AT_ONCE * first // max(n_bytes, 1)))

    def _scan(self) -> pl.LazyFrame:
        check_parquet(self.path)
        return pl.scan_parquet(self.path, glob=False, low_memory=True)


@dataclass(frozen=True)
class ArrowRows:
    """A stream of Arrow, as ``save_to_disk`` writes it."""

    path: Path
    key: str
    split: str
    described: HubFeatures | None = None

    def features(self) -> HubFeatures:
        """Return what ``datasets`` noted of the columns."""
        if self.described is not None and (self.described.audio or self.described.names):
            return self.described
        with self._stream() as stream:
            return features_in_metadata((stream.schema.metadata or {}).get(METADATA_KEY.encode()))

    def schema(self) -> pl.Schema:
        """Return the columns and their types."""
        with self._stream() as stream:
            return pl.DataFrame(pl.from_arrow(stream.schema.empty_table())).schema

    def rows(self, columns: Sequence[str]) -> pl.DataFrame:
        """Read some columns, which hold no sound; without any, rows are counted all the same."""
        with self._stream() as stream:
            parts = [self._part(batch, columns) for batch in _checked_batches(stream)]
        return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(columns, pl.Null))

    def _part(self, batch: Any, columns: Sequence[str]) -> pl.DataFrame:
        if not columns:
            return pl.DataFrame({"row": range(batch.num_rows)})
        return pl.DataFrame(pl.from_arrow(batch.select(list(columns))))

    def sounds(self, column: str) -> Iterator[Sound]:
        """Yield the sound of each row; the file is mapped, so that one is in memory at a time."""
        with self._stream() as stream:
            for batch in _checked_batches(stream):
                for cell in batch.column(column):
                    yield _sound(cell.as_py())

    @contextlib.contextmanager
    def _stream(self) -> Iterator[Any]:
        check_libraries("reading what save_to_disk wrote", "pyarrow")
        import pyarrow as pa  # optional: Parquet is read without it

        with reading(self.path, "Arrow"):
            file = pa.memory_map(str(self.path))
            with file, pa.ipc.open_stream(file) as stream:
                yield stream


HubFile = ParquetRows | ArrowRows
"""One file of rows. ``key`` is its path within the dataset, ``split`` what names its split."""


def find_hub_files(root: Path, work: Path) -> list[HubFile]:
    """List the files of rows in a folder (``work`` is not searched), or take one; maybe none."""
    if root.is_file():
        return [_opened(root, root.name, root.name)]
    if (root / _SPLITS_FILE).is_file():
        told = read_json(root / _SPLITS_FILE)
        splits = told.get("splits") if isinstance(told, dict) else None
        if not isinstance(splits, list) or not splits:
            raise EarmarkError(f"{root / _SPLITS_FILE}: expected a list of splits, got {told!r}")
        return [file for name in splits for file in _saved_files(root / str(name), str(name))]
    if (root / _STATE_FILE).is_file():
        return _saved_files(root, "")
    keys = [str(Path(path).relative_to(root.resolve())) for path in walk_files(root, work)]
    wanted = [key for key in keys if _is_parquet(key) and Path(key).name != "metadata.parquet"]
    return [ParquetRows(root / key, key, key) for key in wanted]


def same_columns(files: Sequence[HubFile]) -> pl.Schema:
    """Return the columns that all files have; refuse a file whose columns are others."""
    first = files[0].schema()
    for file in files[1:]:
        own = file.schema()
        if own.names() != first.names():
            strange = set(own.names()) ^ set(first.names())
            raise EarmarkError(
                f"{file.path}: its columns are {', '.join(own.names())}, but those of "
                f"{files[0].path} are {', '.join(first.names())} (they differ in "
                f"{first_few(sorted(strange))}); give the folder of one configuration alone"
            )
    return first


def _checked_batches(stream: Any) -> Iterator[Any]:
    """Yield the rows of a stream; refuse lengths that lead out of it, where Arrow would crash."""
    for batch in stream:
        batch.validate(full=True)
        yield batch


def _sound(cell: Any) -> Sound:
    if cell is None:
        return None, None
    if isinstance(cell, dict):
        return cell.get("path"), cell.get("bytes")
    return (None, cell) if isinstance(cell, bytes) else (str(cell), None)


def _opened(path: Path, key: str, split: str) -> HubFile:
    if path.suffix.lower() == ".arrow":
        return ArrowRows(path, key, split)
    if _is_parquet(key):
        return ParquetRows(path, key, split)
    raise EarmarkError(
        f"{path}: expected a folder that save_to_disk wrote, Parquet as on the hub, or a folder of "
        "sound with metadata.csv"
    )


def _is_parquet(key: str) -> bool:
    return key.lower().endswith((".parquet", ".pq"))


def _saved_files(folder: Path, split: str) -> list[HubFile]:
    """List the Arrow files of one split, as its ``state.json`` does."""
    check_file(folder / _STATE_FILE)
    state = read_json(folder / _STATE_FILE)
    listed = state.get("_data_files") if isinstance(state, dict) else None
    if not isinstance(listed, list):
        raise EarmarkError(f"{folder / _STATE_FILE}: expected a list _data_files of Arrow files")
    info = folder / _INFO_FILE
    described = features_of(read_noted(info).get("features")) if info.is_file() else None
    names = [str(one["filename"]) for one in listed if isinstance(one, dict) and "filename" in one]
    for name in names:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise EarmarkError(f"{folder / _STATE_FILE}: {name!r} leads outside the folder")
        if not (folder / name).is_file():
            raise EarmarkError(f"{folder / name}: no such file, though {_STATE_FILE} lists it")
    split = split or str(state.get("_split") or "")
    parent = Path(split) if split and folder.name == split else Path()
    return [ArrowRows(folder / name, str(parent / name), split, described) for name in names]
