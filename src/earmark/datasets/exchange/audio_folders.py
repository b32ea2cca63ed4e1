"""``audiofolder``: sound files with tables of metadata, or in folders that are named by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import polars as pl

from earmark.datasets.audio_files import walk_files
from earmark.datasets.exchange.packed_rows import PackedTable, Part, split_named
from earmark.errors import EarmarkError, counted, first_few, reading
from earmark.runs import AUDIO_SUFFIXES, LINE, read_source

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_SPLIT = "__split__"
_FILE_COLUMNS = ("file_name", "audio_file_name")
"""Columns of metadata that name the sound file, from the folder of the metadata."""


@dataclass(frozen=True)
class AudioFolder:
    """Rows with ``audio`` (absolute, null where no such file is) and ``split`` where there are any.

    ``names`` are the files' names without folders and endings [row].
    """

    table: PackedTable
    names: Sequence[str]
    notes: tuple[str, ...] = ()


def read_audio_folder(root: Path, work: Path) -> AudioFolder:
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


def _by_metadata(base: Path, tables: Sequence[str], sounds: Sequence[str]) -> AudioFolder:
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
    return AudioFolder(_table(base, rows.drop("__file__"), parts), names, notes)


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


def _by_folders(base: Path, sounds: Sequence[str]) -> AudioFolder:
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
    return AudioFolder(_table(base, rows, [Part(base, len(rows))]), _names(sounds))


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
