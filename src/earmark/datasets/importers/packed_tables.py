"""Tables whose rows come from packed files (Parquet, Arrow, tars): from rows to a workspace.

Rows hold whatever their files do: labels in any form of :mod:`earmark.labels.label_tables`, splits,
sources and times. Files' names may say which split their rows are in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import polars as pl

from earmark.datasets.importers.class_lists import ChosenClasses, choose_classes
from earmark.datasets.importers.own_labels import form_own_labels, read_clips
from earmark.datasets.workspace import ImportSummary, write_dataset
from earmark.labels import (
    CLIP_ROLES,
    LABEL_ROLES,
    Ontology,
    Reading,
    check_given,
    column_notes,
    complete_splits,
    form_labels,
    guess_columns,
)
from earmark.storage import LINE, AudioAccess, SourceTable, check_size

_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "tune"), "tune"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "eval"),
}
"""What Hugging Face and WebDataset call splits; with both, ``dev`` is for tuning."""


@dataclass(frozen=True)
class Part:
    """One file of rows: where it is, how many it has, and the split that its name tells of."""

    path: Path
    n_rows: int
    split: str | None = None


@dataclass(frozen=True)
class PackedTable(SourceTable):
    """Rows of several files, one after another; LINE counts through all of them, from 1."""

    parts: tuple[Part, ...] = ()

    def at(self, line: int) -> str:
        """Return the place of a row: its own file, and the row in it."""
        for part in self.parts:
            if line <= part.n_rows:
                return f"{part.path}, {self.unit} {line}"
            line -= part.n_rows
        return super().at(line)


def split_named(name: str) -> str | None:
    """Return the split that a path tells of, by its file before its folders; None where none.

    >>> split_named("data/train-00000-of-00004.parquet"), split_named("dev/00.tar")
    ('train', 'tune')
    >>> split_named("trains.parquet") is None
    True
    """
    for part in reversed(PurePosixPath(name).parts):
        words = [word for word in re.split(r"[^a-z]+", part.lower()) if word in _SPLIT_WORDS]
        if words:
            return _SPLIT_WORDS[words[0]]
    return None


def pack_rows(
    path: Path, rows: pl.DataFrame, unit: str, parts: Sequence[Part], reading: Reading
) -> tuple[PackedTable, Reading]:
    """Number the rows of all parts; where their names tell splits, these are a column."""
    if any(part.split for part in parts) and "split" not in reading.columns:
        splits = [part.split or "train" for part in parts for _ in range(part.n_rows)]
        rows = rows.with_columns(pl.Series("split", splits, pl.String))
        reading = replace(reading, columns={**reading.columns, "split": "split"})
    table = PackedTable(path, rows.with_row_index(LINE, offset=1), unit, tuple(parts))
    check_size(table)
    return table, reading


_FILE_NAME, _NUMBER = "file name", "split and row"
"""What names clips where no column of the dataset does, as the notes call it."""


def check_labels_early(table: PackedTable, reading: Reading) -> None:
    """Refuse labels that cannot be read, before any sound is unpacked."""
    check_given(reading.columns, table)
    numbered = table.rows.with_columns(pl.col(LINE).cast(pl.String).alias(_NUMBER))
    columns = {**reading.columns, "clip_id": _NUMBER}
    form_labels(replace(table, rows=numbered), replace(reading, columns=columns))


def with_clip_names(
    table: PackedTable, columns: Mapping[str, str], file_names: Sequence[str | None]
) -> tuple[PackedTable, dict[str, str]]:
    """Name the clips: by the column given or guessed, else by files, else by split and row.

    A guessed column that does not tell rows apart, such as numbers that start anew in each split,
    is passed over. ``file_names`` are without their endings.
    """
    guessed = guess_columns(table, columns).get("clip_id")
    if "clip_id" in columns or (guessed is not None and _tells_apart(table.rows[guessed])):
        return table, {**columns, "clip_id": columns.get("clip_id", guessed or "")}
    names = pl.Series(_FILE_NAME, file_names, pl.String)
    if not _tells_apart(names):
        names = _numbered(table).alias(_NUMBER)
    rows = table.rows.with_columns(names)
    return replace(table, rows=rows), {**columns, "clip_id": names.name}


def write_packed(
    table: PackedTable,
    reading: Reading,
    work: Path,
    notes: Sequence[str],
    *,
    classes: Path | None = None,
    names: Sequence[str] = (),
    access: AudioAccess | None = None,
    replace: bool,
) -> ImportSummary:
    """Write a workspace from rows whose column ``audio`` holds places of sound, or null.

    ``classes`` is a list of classes, ``names`` the classes in the order of their numbers.
    ``access`` says where sound outside the workspace may be read from.
    """
    own = form_own_labels(table, reading)
    roles = guess_columns(own.table, own.columns)
    listed = read_clips(own.table, roles, may_repeat=True)
    used = own.labels.class_ids
    if names and classes is None:
        unlisted = sorted(set(used) - set(names))
        chosen = ChosenClasses(Ontology((*dict.fromkeys(names), *unlisted)), {})
    else:
        chosen = choose_classes(used, {}, classes)
    labels, repeated = chosen.label_set(own.labels.long, listed["clip_id"])
    given = None if listed["split"].is_null().all() else listed["split"]
    listed = listed.with_columns(complete_splits(labels, listed["source"], given))
    workspace = write_dataset(work, listed, chosen.ontology, labels, access=access, replace=replace)
    in_part = column_notes(own.table, roles, LABEL_ROLES)  # once is enough
    told = (
        *column_notes(own.table, roles, (*CLIP_ROLES, *LABEL_ROLES[1:])),
        *(note for note in own.labels.notes if note not in in_part),
        *chosen.notes,
        *repeated,
        *notes,
    )
    n_found = listed["audio"].count()
    return ImportSummary(workspace, len(listed), n_found, len(listed) - n_found, told)


def _tells_apart(names: pl.Series) -> bool:
    if names.dtype.is_nested() or names.dtype == pl.Binary:
        return False
    return names.null_count() == 0 and names.n_unique() == len(names)


def _numbered(table: PackedTable) -> pl.Series:
    """Name rows by the split of their file, where it has one, and their number in it, from 0."""
    names = {None: "row", "tune": "validation", "eval": "test"}
    splits = [names.get(part.split, part.split) for part in table.parts for _ in range(part.n_rows)]
    own = pl.DataFrame({"split": pl.Series(splits, dtype=pl.String)})
    number = pl.int_range(pl.len()).over("split")
    return own.select(pl.format("{}/{}", "split", number)).to_series()
