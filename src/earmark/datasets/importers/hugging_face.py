"""Datasets of Hugging Face: what ``save_to_disk`` wrote, Parquet as on the hub, or ``audiofolder``.

Whatever a column of labels holds was said by somebody: a list (of names, of numbers with names, or
of plain numbers) names classes that are present, a second list those that are not, and in columns
or vectors of 0 and 1 a 1 is present and a 0 is implicit unless ``zeros`` are absent. Embedded sound
is unpacked into the workspace; sound that is named by a path stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import Unpacked, unpack, walk_files
from earmark.datasets.importer import ImportSummary
from earmark.datasets.importers.hub_files import (
    HubFeatures,
    HubFile,
    find_hub_files,
    same_columns,
    with_class_names,
)
from earmark.datasets.importers.packed_tables import (
    ClassChoice,
    PackedTable,
    Part,
    check_labels_early,
    split_named,
    unknown_splits,
    with_clip_names,
    with_vectors_as_lists,
    write_gathered,
)
from earmark.datasets.workspace import AUDIO_FOLDER
from earmark.errors import EarmarkError, counted, first_few, nearest, reader, reading
from earmark.labels import NO_COLUMN, Reading, Zeros, guess_columns
from earmark.options import Argument, Option
from earmark.storage import AUDIO_SUFFIXES, LINE, AudioAccess, read_source, writes

CLASSES_FILE = "classes.csv"
"""A list of classes that lies beside the data, as ``hub_export`` writes it."""


@writes("import", makes=True)
@reader("a dataset of Hugging Face's")
def import_hugging_face(
    root: Annotated[Path, Argument("Folder, or one Parquet or Arrow file.", "PATH")],
    work: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    classes: Annotated[
        Path | None, Option("List of classes: their names, parents and order.")
    ] = None,
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
    files = find_hub_files(root, work)
    for file in files:
        access.place(str(file.path.absolute()))
    if files:
        found = _from_files(root, files, reading, access, work, progress)
    else:
        found = _from_folder(root, reading, access, work)
    if classes is None and (root / CLASSES_FILE).is_file():
        classes = root / CLASSES_FILE
    choice = ClassChoice(classes, found.class_names)
    return write_gathered(
        found.table, found.reading, choice, work, found.notes, access=access, replace=replace
    )


@dataclass(frozen=True)
class _Found:
    """Rows with the places of their sound, and how they are to be read."""

    table: PackedTable
    reading: Reading
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _from_files(
    root: Path,
    files: Sequence[HubFile],
    reading: Reading,
    access: AudioAccess,
    work: Path,
    progress: Progress,
) -> _Found:
    schema, features = same_columns(files), files[0].features()
    column = _audio_column(root, schema, features, reading)
    table, reading = _read_rows(root, files, schema, column, features, reading)
    check_labels_early(table, reading)
    table, reading, notes = _with_sound(files, table, column, reading, access, work, progress)
    strange = unknown_splits([file.split for file in files])
    if strange:
        named = ", ".join(dict.fromkeys(strange))
        notes += (f"splits that are none of ours are in train: {named}",)
    return _Found(table, reading, _names_in_use(table, reading, features), notes)


def _audio_column(
    root: Path, schema: pl.Schema, features: HubFeatures, reading: Reading
) -> str | None:
    """Return the column of sound: as given, as noted by ``datasets``, or by its type."""
    given = reading.columns.get("audio")
    if given == NO_COLUMN:
        return None
    if given is not None and given not in schema:
        raise EarmarkError(f"{root}: there is no column {given!r}{nearest(given, schema.names())}")
    kept = [name for name, kind in schema.items() if _is_embedded(kind)]
    choices = [given, *features.audio, *kept, "audio" if "audio" in schema else None]
    return next((name for name in choices if name in schema), None)


def _is_embedded(kind: pl.DataType) -> bool:
    if not isinstance(kind, pl.Struct):
        return False
    return any(field.name == "bytes" and field.dtype == pl.Binary for field in kind.fields)


def _read_rows(
    root: Path,
    files: Sequence[HubFile],
    schema: pl.Schema,
    audio: str | None,
    features: HubFeatures,
    reading: Reading,
) -> tuple[PackedTable, Reading]:
    """Read all columns but sound and what is no text, number or list of such."""
    wanted = [name for name, kind in schema.items() if name != audio and _is_plain(kind)]
    frames = [file.rows(wanted) for file in files]
    parts = tuple(
        Part(file.path, len(frame), split_named(file.split))
        for file, frame in zip(files, frames, strict=True)
    )
    rows = pl.concat(frames, how="vertical_relaxed").with_row_index(LINE, offset=1)
    if rows.is_empty():
        raise EarmarkError(f"{root}: there is not one row in it")
    splits = [part.split for part in parts]
    if any(splits) and "split" not in reading.columns:
        own = [name or "train" for name, part in zip(splits, parts, strict=True)
               for _ in range(part.n_rows)]  # fmt: skip
        rows = rows.with_columns(pl.Series("split", own, pl.String))
        reading = replace(reading, columns={**reading.columns, "split": "split"})
    table = PackedTable(root, rows, "row", parts)
    named = with_class_names(table, features.names)
    assert isinstance(named, PackedTable)
    return with_vectors_as_lists(named, reading)


def _is_plain(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List | pl.Array):
        return kind.inner is not None and not kind.inner.is_nested() and kind.inner != pl.Binary
    return not kind.is_nested() and kind not in (pl.Binary, pl.Null)


def _names_in_use(table: PackedTable, reading: Reading, features: HubFeatures) -> tuple[str, ...]:
    """Return the names, in their order, of the classes in the column that holds the labels."""
    roles = guess_columns(table, reading.columns)
    return features.names.get(roles.get("class_id", roles.get("labels", "")), ())


def _with_sound(
    files: Sequence[HubFile],
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
    places = names.copy()
    if column is not None:
        meter = progress.job("unpack sound", len(table.rows), "clips")
        for row, (name, place) in enumerate(_sounds(files, column, work, tally)):
            names[row], places[row] = name, place
            meter.advance(1)
    tally.flush()
    elsewhere = [None if at else name for name, at in zip(names, places, strict=True)]
    found = access.find_all(elsewhere, lambda row: table.at(row + 1))
    places = [at or other for at, other in zip(places, found, strict=True)]
    rows = table.rows.with_columns(pl.Series("audio", places, pl.String))
    table = replace(table, rows=rows)
    columns = {**reading.columns, "audio": "audio"}
    table, columns = with_clip_names(table, columns, [name and _stem(name) for name in names])
    missing = [n for n, place in zip(names, places, strict=True) if n and place is None]
    notes = tally.notes(work / AUDIO_FOLDER)
    if column is None:
        notes += ("no column holds sound: clips and labels only",)
    elif missing:
        n_missing = counted(len(missing), "clip")
        notes += (f"{n_missing} whose sound file is not there, such as {missing[0]}",)
    return table, replace(reading, columns=columns), notes


def _sounds(
    files: Sequence[HubFile], column: str, work: Path, tally: Unpacked
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


def _from_folder(root: Path, reading: Reading, access: AudioAccess, work: Path) -> _Found:
    """Read a folder of sound with ``metadata`` files, or with folders named after classes."""
    folder = _read_audio_folder(root, work)
    access.find_all(folder.table.rows["audio"], lambda row: folder.table.at(row + 1))
    check_labels_early(folder.table, reading)
    columns = {**reading.columns, "audio": "audio"}
    table, columns = with_clip_names(folder.table, columns, folder.names)
    return _Found(table, replace(reading, columns=columns), (), folder.notes)


_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_SPLIT = "__split__"
_FILE_COLUMNS = ("file_name", "audio_file_name")
"""Columns of metadata that name the sound file, from the folder of the metadata."""


@dataclass(frozen=True)
class _AudioFolder:
    """Rows with ``audio`` (absolute, null where no such file is) and ``split`` where there are any.

    ``names`` are the files' names without folders and endings [row].
    """

    table: PackedTable
    names: Sequence[str]
    notes: tuple[str, ...] = ()


def _read_audio_folder(root: Path, work: Path) -> _AudioFolder:
    """Read a folder as the library's ``audiofolder`` does; what lies in ``work`` is left out."""
    if not root.is_dir():
        raise EarmarkError(f"{root}: expected a folder")
    base = root.resolve()
    keys = [Path(path).relative_to(base).as_posix() for path in walk_files(root, skip=work)]
    tables = [key for key in keys if PurePosixPath(key).name in _METADATA]
    sounds = [key for key in keys if PurePosixPath(key).suffix.lower() in AUDIO_SUFFIXES]
    if not sounds:
        raise EarmarkError(
            f"{root}: expected what save_to_disk wrote, Parquet as on the hub, or a folder of "
            f"sound; there is none of them, but files such as {first_few(keys)}"
        )
    return _by_metadata(base, tables, sounds) if tables else _by_folders(base, sounds)


def _by_metadata(base: Path, tables: Sequence[str], sounds: Sequence[str]) -> _AudioFolder:
    frames, parts, there = [], [], set(sounds)
    for key in tables:
        rows = _read_metadata(base / key)
        files = [(PurePosixPath(key).parent / name).as_posix() for name in rows["__file__"]]
        splits = [split_named(file) or split_named(key) for file in files]
        audio = [str(base / file) if file in there else None for file in files]
        frames.append(
            rows.with_columns(
                pl.Series("audio", audio, pl.String),
                pl.Series(_SPLIT, splits, pl.String),
                pl.Series("__file__", files, pl.String),
            )
        )
        parts.append(Part(base / key, len(rows)))
    rows = pl.concat(frames, how="diagonal_relaxed").with_row_index(LINE, offset=1)
    notes = _metadata_notes(rows, there)
    names = _names(rows["__file__"].to_list())
    return _AudioFolder(_table(base, rows.drop("__file__"), parts), names, notes)


def _metadata_notes(rows: pl.DataFrame, there: set[str]) -> tuple[str, ...]:
    notes = []
    n_missing = rows["audio"].null_count()
    if n_missing:
        first = rows.filter(pl.col("audio").is_null())["__file__"][0]
        notes.append(f"{counted(n_missing, 'clip')} whose sound file is not there, such as {first}")
    left = there - set(rows["__file__"])
    if left:
        named = first_few(sorted(left))
        notes.append(f"{counted(len(left), 'sound file')} without a row left out: {named}")
    return tuple(notes)


def _read_metadata(path: Path) -> pl.DataFrame:
    """Read a metadata table, the file's name as ``__file__``."""
    if path.suffix == ".jsonl":
        with reading(path, "lines of JSON"):
            rows = pl.read_ndjson(path, infer_schema_length=None)
    else:
        rows = read_source(path).rows.drop(LINE)
    column = next((name for name in _FILE_COLUMNS if name in rows.columns), None)
    if column is None:
        raise EarmarkError(
            f"{path}: expected a column file_name that names the sound files, got "
            f"{', '.join(rows.columns)}"
        )
    if rows[column].null_count() or rows[column].dtype != pl.String:
        raise EarmarkError(f"{path}: column {column!r} must name a file in every row")
    return rows.rename({column: "__file__"})


def _by_folders(base: Path, sounds: Sequence[str]) -> _AudioFolder:
    """Take the innermost folder of a sound for its class, unless it is a split."""
    folders = [_class_folder(PurePosixPath(key)) for key in sounds]
    if not any(folders):
        raise EarmarkError(
            f"{base}: no metadata.csv, and no folders that are named after classes; `earmark "
            "import sounds SOUNDS LABELS --work W` reads sounds with labels of any other form"
        )
    rows = pl.DataFrame(
        {
            "audio": [str(base / key) for key in sounds],
            _SPLIT: pl.Series([split_named(key) for key in sounds], dtype=pl.String),
            "label": pl.Series(folders, dtype=pl.String),
        }
    ).with_row_index(LINE, offset=1)
    return _AudioFolder(_table(base, rows, [Part(base, len(rows))]), _names(sounds))


def _class_folder(key: PurePosixPath) -> str | None:
    folder = key.parent.name
    return folder if folder and split_named(folder) is None else None


def _names(keys: Sequence[str]) -> list[str]:
    """Return the files' names without endings; with their folders where some would be alike."""
    stems = [PurePosixPath(key).stem for key in keys]
    whole = [PurePosixPath(key).with_suffix("").as_posix() for key in keys]
    return stems if len(set(stems)) == len(stems) else whole


def _table(base: Path, rows: pl.DataFrame, parts: Sequence[Part]) -> PackedTable:
    """Take the splits that paths tell of, where they do, before a column of that name."""
    if rows[_SPLIT].count():
        rows = rows.with_columns(pl.col(_SPLIT).fill_null("train").alias("split"))
    return PackedTable(base, rows.drop(_SPLIT), "row", tuple(parts))
