"""Datasets of Hugging Face: what ``save_to_disk`` wrote, Parquet as on the hub, or ``audiofolder``.

Whatever a column of labels holds was said by somebody: a list (of names, of numbers with names, or
of plain numbers) names classes that are present, a second list those that are not, and in columns
or vectors of 0 and 1 a 1 is present and a 0 is implicit unless ``zeros`` are absent. Embedded sound
is unpacked into the workspace; sound that is named by a path stays where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import polars as pl

from earmark.datasets.audio_files import Unpacked, unpack
from earmark.datasets.exchange.audio_folders import read_audio_folder
from earmark.datasets.exchange.gathered import (
    ClassChoice,
    check_labels_early,
    with_clip_names,
    write_gathered,
)
from earmark.datasets.exchange.hub_features import HubFeatures, with_class_names
from earmark.datasets.exchange.hub_files import HubFile, find_hub_files, same_columns
from earmark.datasets.exchange.packed_rows import PackedTable, Part, split_named, unknown_splits
from earmark.datasets.exchange.vectors import with_vectors_as_lists
from earmark.datasets.importer import ImportSummary
from earmark.datasets.workspace import AUDIO_FOLDER
from earmark.errors import EarmarkError, counted, nearest, reader
from earmark.labels import NO_COLUMN, Reading, Zeros, guess_columns
from earmark.runs import AUDIO_SUFFIXES, LINE, SILENT, Progress, is_url, place_of, writes

CLASSES_FILE = "classes.csv"
"""A list of classes that lies beside the data, as ``hub_export`` writes it."""


@writes("import", makes=True)
@reader("a dataset of Hugging Face's")
def import_hugging_face(
    root: Path,
    work: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    classes: Path | None = None,
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from a folder (or one file) in a form that ``datasets`` reads.

    ``columns``, ``separator`` and ``zeros`` are as for tables. ``classes`` is a list of classes: it
    names those that the data have as plain numbers, too. Splits train, validation and test become
    train, tune and eval. Another dataset in the workspace is refused, unless ``replace`` says so.
    """
    if not root.exists():
        raise EarmarkError(f"{root}: no such file or folder")
    reading = Reading(columns or {}, separator, zeros)
    files = find_hub_files(root, work)
    if files:
        found = _from_files(root, files, reading, work, progress)
    else:
        found = _from_folder(root, reading, work)
    if classes is None and (root / CLASSES_FILE).is_file():
        classes = root / CLASSES_FILE
    choice = ClassChoice(classes, found.class_names)
    return write_gathered(found.table, found.reading, choice, work, found.notes, replace=replace)


@dataclass(frozen=True)
class _Found:
    """Rows with the places of their sound, and how they are to be read."""

    table: PackedTable
    reading: Reading
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _from_files(
    root: Path, files: Sequence[HubFile], reading: Reading, work: Path, progress: Progress
) -> _Found:
    schema, features = same_columns(files), files[0].features()
    column = _audio_column(root, schema, features, reading)
    table, reading = _read_rows(root, files, schema, column, features, reading)
    check_labels_early(table, reading)
    table, reading, notes = _with_sound(root, files, table, column, reading, work, progress)
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
    root: Path,
    files: Sequence[HubFile],
    table: PackedTable,
    column: str | None,
    reading: Reading,
    work: Path,
    progress: Progress,
) -> tuple[PackedTable, Reading, tuple[str, ...]]:
    """Unpack what is embedded, find what is named, and name the clips."""
    tally = Unpacked()
    names: list[str | None] = [None] * len(table.rows)
    places = names.copy()
    if column is not None:
        base = root if root.is_dir() else root.parent
        meter = progress.job("unpack sound", len(table.rows), "clips")
        for row, (name, place) in enumerate(_sounds(files, column, base, work, tally)):
            names[row], places[row] = name, place
            meter.advance(1)
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
    files: Sequence[HubFile], column: str, base: Path, work: Path, tally: Unpacked
) -> Iterator[tuple[str | None, str | None]]:
    """Yield the name of each row's sound and the place where it now is; None without any."""
    for file in files:
        taken: set[str] = set()
        folder = Path(AUDIO_FOLDER) / file.key
        for row, (name, content) in enumerate(file.sounds(column)):
            if content is None:
                yield name, name and _place(base, name)
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


def _place(base: Path, name: str) -> str | None:
    """Return a URL as it is, and the absolute path of a file that is there."""
    place = str(place_of(base.resolve(), name))
    return place if is_url(place) or os.path.isfile(place) else None


def _stem(name: str) -> str:
    """Return a file's name without folders and the ending of sound."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.stem if path.suffix.lower() in AUDIO_SUFFIXES else path.name


def _from_folder(root: Path, reading: Reading, work: Path) -> _Found:
    """Read a folder of sound with ``metadata`` files, or with folders named after classes."""
    folder = read_audio_folder(root, work)
    check_labels_early(folder.table, reading)
    columns = {**reading.columns, "audio": "audio"}
    table, columns = with_clip_names(folder.table, columns, folder.names)
    return _Found(table, replace(reading, columns=columns), (), folder.notes)
