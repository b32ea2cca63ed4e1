"""Selections as tables: Raven's selection table, Audacity's labels, DCASE's strong labels.

They are simple, so they are written by hand: crowsetta would bring pandas and pandera, drops the
names of sound files, and does not know DCASE's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from earmark.errors import EarmarkError, reading
from earmark.review.selections.heard import Selection
from earmark.review.selections.sound_files import SoundFiles
from earmark.runs import LINE, SourceTable, read_header, read_source, write_text

Label = Callable[[str], str]
"""From a class to what it is called in a file."""

BEGIN, END, OFFSET = "Begin Time (s)", "End Time (s)", "File Offset (s)"

DCASE = ("filename", "onset", "offset", "event_label")

_RAVEN_FILES = ("Begin Path", "Begin File")
_RAVEN_LABELS = ("Class ID", "Annotation", "Species", "Common Name", "Label")
"""Columns that may name a selection's class, in the order in which they are asked."""

_DECIMALS = 6


def write_raven(
    path: Path,
    selections: pl.DataFrame,
    files: SoundFiles,
    label: Label,
    bands_hz: tuple[float, float],
) -> None:
    """Write one selection table for all files.

    Times are those of each file, in ``Begin Time`` and in ``File Offset``; frequencies are
    ``bands_hz``, the lowest and the highest that the teacher hears.
    """
    named = selections.select(
        pl.int_range(1, pl.len() + 1).alias("Selection"),
        pl.lit("Spectrogram 1").alias("View"),
        pl.lit(1).alias("Channel"),
        pl.col("start").alias(BEGIN),
        pl.col("end").alias(END),
        pl.lit(float(bands_hz[0])).alias("Low Freq (Hz)"),
        pl.lit(float(bands_hz[1])).alias("High Freq (Hz)"),
        _mapped("file", files.names.__getitem__).alias("Begin File"),
        _mapped("file", files.path).alias("Begin Path"),
        pl.col("start").alias(OFFSET),
        _mapped("class_id", label).alias("Annotation"),
        pl.col("class_id").alias("Class ID"),
        pl.col("clip_id").alias("Clip"),
        pl.col("span").alias("Span"),
        pl.col("raters").alias("Raters"),
    )
    _write_tsv(path, named)


def read_raven(path: Path) -> Iterator[Selection]:
    """Read a selection table; ``Begin File`` or ``Begin Path`` says which sound file is meant.

    ``File Offset`` counts where it is given: in a table of several files Raven counts ``Begin
    Time`` from the first of them.
    """
    source = read_source(path)
    of_file = [name for name in _RAVEN_FILES if name in source.columns]
    of_class = [name for name in _RAVEN_LABELS if name in source.columns]
    if not of_file or not of_class:
        missing = "Begin File" if not of_file else "Annotation"
        raise EarmarkError(
            f"{path}: there is no column {missing!r}; it has {', '.join(source.columns)}. Show the "
            "column in Raven (View > Choose Measurements) and save the table again"
        )
    for row in source.rows.iter_rows(named=True):
        where = source.at(row[LINE])
        begin, end = _seconds(row, BEGIN, where), _seconds(row, END, where)
        start = begin if row.get(OFFSET) is None else _seconds(row, OFFSET, where)
        yield Selection(
            where,
            _first(row, of_file, where),
            _first(row, of_class, where),
            start,
            round(start + end - begin, _DECIMALS),
            row.get("Clip"),
            row.get("Span") not in ("teacher", "clip"),
            tuple(filter(None, (row.get("Raters") or "").split(","))),
        )


def write_dcase(path: Path, selections: pl.DataFrame, files: SoundFiles, label: Label) -> None:
    """Write the strong labels of DCASE's task 4: filename, onset, offset, event_label."""
    columns = (
        _mapped("file", files.names.__getitem__),
        pl.col("start"),
        pl.col("end"),
        _mapped("class_id", label),
    )
    _write_tsv(path, selections.select(c.alias(n) for c, n in zip(columns, DCASE, strict=True)))


def read_dcase(path: Path) -> Iterator[Selection]:
    """Read strong labels, with or without a header; files without an event are passed over."""
    has_header = set(DCASE) <= set(read_header(path)[0])
    source = read_source(path, None if has_header else DCASE)
    _check_columns(source, DCASE)
    for row in source.rows.iter_rows(named=True):
        where = source.at(row[LINE])
        if all(row[name] is None for name in DCASE[1:]):
            continue
        start, end = (_seconds(row, name, where) for name in ("onset", "offset"))
        label = _first(row, ("event_label",), where)
        yield Selection(where, _first(row, ("filename",), where), label, start, end)


def write_audacity(folder: Path, selections: pl.DataFrame, files: SoundFiles, label: Label) -> None:
    """Write a label track for each sound file, named as it is and ``.txt``: ``rain.wav.txt``."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise EarmarkError(
            f"{folder}: Audacity's labels are a folder with a file for each sound file, and this "
            "is there already; give the name of a new folder"
        )
    for (file,), rows in selections.group_by("file", maintain_order=True):
        lines = (
            f"{row['start']:.{_DECIMALS}f}\t{row['end']:.{_DECIMALS}f}\t{label(row['class_id'])}\n"
            for row in rows.iter_rows(named=True)
        )
        write_text(folder / f"{files.names[str(file)]}.txt", "".join(lines))


def read_audacity(path: Path) -> Iterator[Selection]:
    """Read a label track, or all those in a folder; each is named like its sound file."""
    tracks = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not tracks:
        raise EarmarkError(f"{path}: there is no label track in this folder: no file named *.txt")
    for track in tracks:
        file = track.relative_to(path).as_posix() if path.is_dir() else track.name
        for number, line in enumerate(_lines(track), start=1):
            if line.strip() and not line.startswith("\\"):  # a backslash: the line before's bands
                yield _audacity_label(line, file.removesuffix(".txt"), f"{track}, line {number}")


def _audacity_label(line: str, file: str, where: str) -> Selection:
    cells = line.split("\t")
    if len(cells) != 3 or not cells[2].strip():
        raise EarmarkError(
            f"{where}: expected start, end and label with tabs between them, got {line!r}"
        )
    row = dict(zip(("start", "end", "label"), cells, strict=True))
    start, end = (_seconds(row, name, where) for name in ("start", "end"))
    return Selection(where, file, cells[2].strip(), start, end)


def _lines(path: Path) -> list[str]:
    with reading(path, "text in UTF-8"):
        return path.read_text(encoding="utf-8-sig").splitlines()


def _write_tsv(path: Path, table: pl.DataFrame) -> None:
    write_text(path, table.write_csv(separator="\t", float_precision=_DECIMALS))


def _mapped(column: str, named: Callable[[str], str]) -> pl.Expr:
    return pl.col(column).map_elements(named, pl.String)


def _check_columns(source: SourceTable, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in source.columns]
    if missing:
        raise EarmarkError(
            f"{source.path}: there is no column {missing[0]!r}; expected {', '.join(names)}, got "
            f"{', '.join(source.columns)}"
        )


def _first(row: Mapping[str, Any], columns: list[str] | tuple[str, ...], where: str) -> str:
    """Return the first of some cells that has a value."""
    found = next((row[name] for name in columns if row[name] is not None), None)
    if found is None:
        raise EarmarkError(f"{where}: {columns[0]} is empty")
    return str(found)


def _seconds(row: Mapping[str, Any], column: str, where: str) -> float:
    try:
        seconds = float(row[column])
    except (KeyError, TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise EarmarkError(
            f"{where}: {column} is {row.get(column)!r}; expected seconds, such as 1.25"
        )
    return seconds
