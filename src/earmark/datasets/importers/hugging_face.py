"""Datasets of Hugging Face: Parquet as on the hub, and the Arrow that ``save_to_disk`` writes.

A column of labels holds what somebody said: a list (of names, of numbers with names, or of plain
numbers) names classes that are present, a second list those that are not, and in columns of 0 and 1
a 1 is present and a 0 is implicit unless ``zeros`` are absent. Embedded sound is unpacked into the
workspace; sound that is named by a path stays where it is.

Parquet and Arrow are read by polars: of Parquet the sound of a few rows at a time, of Arrow that of
one file. The library ``datasets`` is not used: a damaged Arrow file ends its process, Parquet of a
few kilobytes may fill its memory, and it installs 125 MB more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import Unpacked, unpack, walk_files
from earmark.datasets.importers.own_labels import (
    ClassList,
    PackedTable,
    Part,
    check_labels_early,
    pack_rows,
    split_named,
    with_clip_names,
    write_packed,
)
from earmark.datasets.workspace import AUDIO_FOLDER, ImportSummary
from earmark.errors import EarmarkError, counted, first_few, nearest, reader, reading
from earmark.labels import NO_COLUMN, Reading, Zeros, guess_columns
from earmark.options import Argument
from earmark.storage import AUDIO_SUFFIXES, AudioAccess, check_parquet, read_json, writes

CLASSES_FILE = "classes.csv"
"""A list of classes that lies beside the data, as ``hub_export`` writes it."""

METADATA_KEY = "huggingface"
"""Where a Parquet file keeps the features of its columns."""

_INFO_FILE = "dataset_info.json"
"""Where the library keeps them beside Arrow files."""

_CACHE = "cache-"
"""What begins the names of Arrow files in which the library keeps intermediate results."""

_LISTS = ("List", "LargeList", "Sequence")
_NO_CLASS = -1
"""What ClassLabel has where nobody knows the class, as in hidden test sets."""

_BYTES_AT_ONCE = 64 * 2**20
"""Sound of a Parquet file that is in memory at the same time, about."""

_ROWS_AT_FIRST, _MOST_ROWS = 8, 1024

Sound = tuple[str | None, bytes | None]
"""What a row says of its sound: a path or a name, and the file's bytes where they are embedded."""


@writes("import", makes=True)
@reader("a dataset of Hugging Face's")
def import_hugging_face(
    root: Annotated[Path, Argument("Folder, or one Parquet or Arrow file.", "PATH")],
    work: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    classes: ClassList = None,
    allow: Sequence[Path] = (),
    remote: bool = False,
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from a folder (or one file) in a form that ``datasets`` reads.

    ``columns``, ``separator`` and ``zeros`` are as for tables. ``classes`` is a list of classes: it
    names those that the data have as plain numbers, too. Splits train, validation and test become
    train, tune and eval. Paths and links of sound that lead out of the folder are refused, unless
    it is into one of ``allow``, and so are URLs, unless ``remote``. Another dataset in the
    workspace is refused, unless ``replace`` says so.
    """
    if not root.exists():
        raise EarmarkError(f"{root}: no such file or folder")
    reading = Reading(columns or {}, separator, zeros)
    base = (root if root.is_dir() else root.parent).resolve()
    access = AudioAccess(base, (base, *allow), remote)
    files = _find_files(root, work)
    for file in files:
        access.place(str(file.path.absolute()))
    schema, features = _same_columns(files), files[0].features()
    column = _audio_column(root, schema, features, reading)
    table, reading = _read_rows(root, files, schema, column, features, reading)
    check_labels_early(table, reading)
    table, reading, notes = _with_sound(files, table, column, reading, access, work, progress)
    unknown = [file.key for file in files if split_named(file.key) is None]
    if 0 < len(unknown) < len(files):
        notes += (f"splits that are none of ours are in train: {', '.join(unknown)}",)
    if classes is None and (root / CLASSES_FILE).is_file():
        classes = root / CLASSES_FILE
    roles = guess_columns(table, reading.columns)
    names = features.class_names.get(roles.get("class_id", roles.get("labels", "")), ())
    return write_packed(
        table, reading, work, notes, classes=classes, names=names, access=access, replace=replace
    )


@dataclass(frozen=True)
class _Features:
    """Columns of sound, and for columns of class numbers the names, in the numbers' order."""

    audio: tuple[str, ...]
    class_names: Mapping[str, tuple[str, ...]]


def _features(described: Any) -> _Features:
    """Read what ``datasets`` noted of the columns."""
    described = described if isinstance(described, dict) else {}
    audio = tuple(name for name, kind in described.items() if _type_name(kind) == "Audio")
    names = {name: _class_names(kind) for name, kind in described.items()}
    return _Features(audio, {name: labels for name, labels in names.items() if labels})


def _type_name(described: Any) -> str:
    return str(described.get("_type", "")) if isinstance(described, dict) else ""


def _class_names(described: Any) -> tuple[str, ...]:
    """Return the names of a ClassLabel, or of a list of them; none for any other column."""
    if isinstance(described, list) and len(described) == 1:
        return _class_names(described[0])
    if _type_name(described) in _LISTS:
        return _class_names(described.get("feature"))
    names = described.get("names") if _type_name(described) == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


@dataclass(frozen=True)
class RowFile:
    """A file of Parquet or Arrow. ``key`` is its path within the dataset."""

    path: Path
    key: str

    @property
    def kind(self) -> str:
        """Parquet, or Arrow as ``save_to_disk`` writes it: a stream."""
        return "Arrow" if self.path.suffix.lower() == ".arrow" else "Parquet"

    def features(self) -> _Features:
        """Return what ``datasets`` noted of the columns, here or beside the file."""
        info = self.path.with_name(_INFO_FILE)
        try:
            if self.kind == "Arrow":
                return _features(read_json(info)["features"] if info.is_file() else None)
            with reading(self.path, self.kind):
                noted = pl.read_parquet_metadata(self.path).get(METADATA_KEY)
            return _features(json.loads(noted or "null")["info"]["features"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return _features(None)

    def schema(self) -> pl.Schema:
        """Return the columns and their types."""
        with reading(self.path, self.kind):
            if self.kind == "Arrow":
                check_parquet(self.path)
                return pl.read_ipc_stream(self.path, n_rows=0).schema
            return self._scan().collect_schema()

    def rows(self, columns: Sequence[str]) -> pl.DataFrame:
        """Read some columns."""
        with reading(self.path, self.kind):
            if self.kind == "Arrow":
                return pl.read_ipc_stream(self.path, columns=list(columns))
            return self._scan().select(columns).collect()

    def sounds(self, column: str) -> Iterator[Sound]:
        """Yield the sound of each row; of Parquet as many rows at a time as are not too large."""
        if self.kind == "Arrow":
            yield from map(_sound, self.rows([column]).to_series())
            return
        first, n_rows, n_bytes = 0, _ROWS_AT_FIRST, 0
        while True:
            with reading(self.path, self.kind):
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


def _sound(cell: Any) -> Sound:
    if cell is None:
        return None, None
    if isinstance(cell, dict):
        return cell.get("path"), cell.get("bytes")
    return (None, cell) if isinstance(cell, bytes) else (str(cell), None)


def _find_files(root: Path, work: Path) -> list[RowFile]:
    """List the files of rows in a folder (``work`` is not searched), or take one."""
    base = root if root.is_dir() else root.parent
    keys = [str(Path(path).relative_to(base.resolve())) for path in walk_files(root, work)]
    tables = [
        key
        for key in keys
        if key.lower().endswith((".parquet", ".pq", ".arrow"))
        and not Path(key).name.startswith(_CACHE)
    ]
    if not tables:
        raise EarmarkError(
            f"{root}: expected what save_to_disk wrote, or Parquet as on the hub; there is none of "
            f"them, but files such as {first_few(keys)}. A folder of sound with labels of any form "
            "is read by `earmark import sounds FOLDER LABELS --work W`"
        )
    return [RowFile(base / key, key) for key in tables]


def _same_columns(files: Sequence[RowFile]) -> pl.Schema:
    """Return the columns that all files have; refuse a file whose columns are others."""
    first = files[0].schema()
    for file in files[1:]:
        names = file.schema().names()
        if names != first.names():
            strange = set(names) ^ set(first.names())
            raise EarmarkError(
                f"{file.path}: its columns are {', '.join(names)}, but those of "
                f"{files[0].path} are {', '.join(first.names())} (they differ in "
                f"{first_few(sorted(strange))}); give the folder of one configuration alone"
            )
    return first


def _audio_column(
    root: Path, schema: pl.Schema, features: _Features, reading: Reading
) -> str | None:
    """Return the column of sound: as given, as noted by ``datasets``, or by its type."""
    given = reading.columns.get("audio")
    if given == NO_COLUMN:
        return None
    if given is not None and given not in schema:
        raise EarmarkError(f"{root}: there is no column {given!r}{nearest(given, schema.names())}")
    embedded = [name for name, kind in schema.items() if _is_embedded(kind)]
    choices = [given, *features.audio, *embedded, "audio"]
    return next((name for name in choices if name in schema), None)


def _is_embedded(kind: pl.DataType) -> bool:
    if not isinstance(kind, pl.Struct):
        return False
    return any(field.name == "bytes" and field.dtype == pl.Binary for field in kind.fields)


def _read_rows(
    root: Path,
    files: Sequence[RowFile],
    schema: pl.Schema,
    audio: str | None,
    features: _Features,
    reading: Reading,
) -> tuple[PackedTable, Reading]:
    """Read all columns but sound and what is no text, number or list of such."""
    wanted = [name for name, kind in schema.items() if name != audio and _is_plain(kind)]
    if not wanted:
        raise EarmarkError(f"{root}: there is no column of labels, only {first_few(schema)}")
    frames = [file.rows(wanted) for file in files]
    rows = pl.concat(frames, how="vertical_relaxed")
    if rows.is_empty():
        raise EarmarkError(f"{root}: there is not one row in it")
    parts = [
        Part(file.path, len(frame), split_named(file.key))
        for file, frame in zip(files, frames, strict=True)
    ]
    table, reading = pack_rows(root, rows, "row", parts, reading)
    for column, names in features.class_names.items():
        if column in table.columns:
            table = _with_class_names(table, column, names)
    _refuse_vector(table, reading)
    return table, reading


def _is_plain(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List | pl.Array):
        return kind.inner is not None and not kind.inner.is_nested() and kind.inner != pl.Binary
    return not kind.is_nested() and kind not in (pl.Binary, pl.Null)


def _with_class_names(table: PackedTable, column: str, names: Sequence[str]) -> PackedTable:
    """Put names in the place of class numbers; -1 stands for a class that nobody knows."""
    cells = table.rows[column]
    is_list = isinstance(cells.dtype, pl.List)
    number = cells.dtype.inner if isinstance(cells.dtype, pl.List) else cells.dtype
    if number is None or not number.is_integer():
        return table  # names already
    every = cells.explode() if is_list else cells
    odd = every.filter((every < _NO_CLASS) | (every >= len(names))).drop_nulls()
    if len(odd):
        is_odd = cells.list.contains(odd[0]) if is_list else cells == odd[0]
        raise EarmarkError(
            f"{table.at_first(is_odd)}, column {column!r}: class {odd[0]}, but only "
            f"{len(names):,} classes have names (0 to {len(names) - 1})"
        )
    cell = pl.element() if is_list else pl.col(column)
    named = cell.replace_strict(
        pl.Series([*range(len(names))], dtype=number),
        pl.Series(list(names), dtype=pl.String),
        default=None,
        return_dtype=pl.String,
    )
    if is_list:
        named = pl.col(column).list.eval(named).list.drop_nulls()
    return replace(table, rows=table.rows.with_columns(named))


def _refuse_vector(table: PackedTable, reading: Reading) -> None:
    """Refuse vectors of 0 and 1 in the place of lists of classes."""
    roles = guess_columns(table, reading.columns)
    column = roles.get("labels", roles.get("class_id", ""))
    kind = table.rows.schema.get(column)
    if isinstance(kind, pl.Array) or kind in (
        pl.List(pl.Boolean),
        pl.List(pl.Float32),
        pl.List(pl.Float64),
    ):
        raise EarmarkError(
            f"{table.path}: column {column!r} holds vectors ({kind}), which do not say what their "
            "places stand for; expected lists of classes, or a column of 0 and 1 for each class"
        )


def _with_sound(
    files: Sequence[RowFile],
    table: PackedTable,
    column: str | None,
    reading: Reading,
    access: AudioAccess,
    work: Path,
    progress: Progress,
) -> tuple[PackedTable, Reading, tuple[str, ...]]:
    """Unpack what is embedded, find what is named, and name the clips."""
    tally = Unpacked()
    names: list[str | None] = [None] * len(table.rows)
    unpacked = names.copy()
    if column is not None:
        meter = progress.job("unpack sound", len(table.rows), "clips")
        for row, (name, target) in enumerate(_sounds(files, column, work, tally)):
            names[row], unpacked[row] = name, target
            meter.advance(1)
    tally.flush()
    elsewhere = [None if at else name for name, at in zip(names, unpacked, strict=True)]
    paths = access.find_all(elsewhere, lambda row: table.at(row + 1))
    audio = [at or path for at, path in zip(unpacked, paths, strict=True)]
    rows = table.rows.with_columns(pl.Series("audio", audio, pl.String))
    table = replace(table, rows=rows)
    columns = {**reading.columns, "audio": "audio"}
    table, columns = with_clip_names(table, columns, [name and _stem(name) for name in names])
    missing = [n for n, place in zip(names, audio, strict=True) if n and place is None]
    notes = tally.notes(work / AUDIO_FOLDER)
    if column is None:
        notes += ("no column holds sound: clips and labels only",)
    elif missing:
        n_missing = counted(len(missing), "clip")
        notes += (f"{n_missing} whose sound file is not there, such as {missing[0]}",)
    return table, replace(reading, columns=columns), notes


def _sounds(
    files: Sequence[RowFile], column: str, work: Path, tally: Unpacked
) -> Iterator[tuple[str | None, str | None]]:
    """Yield the name of each row's sound and where it was unpacked; None without any."""
    for file in files:
        taken: set[str] = set()
        folder = Path(AUDIO_FOLDER) / file.key
        for row, (name, content) in enumerate(file.sounds(column)):
            if content is None:
                yield name, None
                continue
            target = folder / _file_name(name, row, taken)
            unpack(work / target, content, tally)
            yield name, target.as_posix()


def _file_name(name: str | None, row: int, taken: set[str]) -> str:
    """Return a name for an unpacked sound that no other of its file has, in any letter case."""
    plain = PurePosixPath((name or "").replace("\\", "/")).name.replace("\0", "")
    if not plain or plain in (".", ".."):
        plain = f"{row}.audio"
    if PurePosixPath(plain).suffix.lower() not in AUDIO_SUFFIXES:
        plain = f"{plain}.audio"
    if plain.lower() in taken:
        plain = f"{row}-{plain}"
    taken.add(plain.lower())
    return plain


def _stem(name: str) -> str:
    """Return a file's name without folders and the ending of sound."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.stem if path.suffix.lower() in AUDIO_SUFFIXES else path.name
