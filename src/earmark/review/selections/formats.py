"""Which of the formats a file is in, and who reads and writes it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from earmark.errors import EarmarkError, reader
from earmark.labels import Ontology
from earmark.review.selections.aoef import read_aoef, write_aoef
from earmark.review.selections.heard import Selection
from earmark.review.selections.sound_files import SoundFiles
from earmark.review.selections.tables import (
    BEGIN,
    DCASE,
    read_audacity,
    read_dcase,
    read_raven,
    write_audacity,
    write_dcase,
    write_raven,
)
from earmark.runs import read_json

SelectionFormat = Literal["raven", "audacity", "dcase", "aoef"]

SELECTION_FORMATS: tuple[SelectionFormat, ...] = get_args(SelectionFormat)

_READERS = {
    "raven": read_raven,
    "audacity": read_audacity,
    "dcase": read_dcase,
    "aoef": read_aoef,
}


def write_selections(
    path: str | Path,
    written_as: SelectionFormat,
    selections: pl.DataFrame,
    files: SoundFiles,
    ontology: Ontology,
    bands_hz: tuple[float, float],
    name: str,
) -> int:
    """Write selections (see ``make_selections``), and return how many of them were written.

    A class is called by its name, or by its identifier where other classes share the name.
    ``bands_hz`` are the frequencies of Raven's table, ``name`` is that of AOEF's project.
    """
    path = Path(path)
    where = (path, selections, files)

    def label(class_id: str) -> str:
        given = ontology.name(class_id)
        return given if ontology.find(given) == class_id else class_id

    match written_as:
        case "raven":
            write_raven(*where, label, bands_hz)
        case "audacity":
            write_audacity(*where, label)
        case "dcase":
            write_dcase(*where, label)
        case "aoef":
            return write_aoef(*where, label, name)
    return len(selections)


@reader("selections")
def read_selections(path: str | Path, written_as: SelectionFormat) -> list[Selection]:
    """Read the selections of a file, or of a folder of Audacity's labels."""
    path = Path(path)
    if not path.exists():
        raise EarmarkError(f"{path}: no such file or folder")
    if path.is_dir() and written_as != "audacity":
        raise EarmarkError(f"{path}: a folder; only Audacity's labels are read from folders")
    return list(_READERS[written_as](path))


def selection_format(path: str | Path) -> SelectionFormat | None:
    """Tell in which format a file or folder is by what is in it; None if in none of these."""
    path = Path(path)
    if path.is_dir():
        return "audacity"
    ending = path.suffix.lower()
    if ending == ".json":
        return "aoef" if _is_aoef(path) else None
    return _table_format(path) if ending in (".txt", ".tsv", ".csv") and path.is_file() else None


def _is_aoef(path: Path) -> bool:
    try:
        found = read_json(path)
    except EarmarkError:
        return False
    content = found.get("data") if isinstance(found, dict) else None
    return isinstance(content, dict) and "collection_type" in content


def _table_format(path: Path) -> SelectionFormat | None:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline().rstrip("\r\n").split("\t")
    if BEGIN in first:
        return "raven"
    if set(DCASE) <= set(first) or (len(first) == len(DCASE) and _are_seconds(first[1:3])):
        return "dcase"
    return "audacity" if len(first) == 3 and _are_seconds(first[:2]) else None


def _are_seconds(cells: Iterable[str]) -> bool:
    try:
        return all(float(cell) >= 0 for cell in cells)
    except ValueError:
        return False
