"""Tables whose rows come from packed files (Parquet, Arrow, tars): from rows to a workspace.

Rows hold whatever their files do: labels in any form of :mod:`earmark.labels.label_tables`, splits,
sources and times. Labels may be vectors: one list of 0 and 1 (or -1) for each clip, a place for
each class. Files' names may say which split their rows are in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
import polars as pl

from earmark.datasets.importer import ImportSummary
from earmark.datasets.importers.class_lists import ChosenClasses, choose_classes
from earmark.datasets.importers.own_labels import form_own_labels, read_clips
from earmark.datasets.workspace import write_dataset
from earmark.errors import EarmarkError, counted
from earmark.labels import (
    CLIP_ROLES,
    LABEL_ROLES,
    LabelSet,
    LabelTable,
    Ontology,
    Reading,
    check_given,
    column_notes,
    complete_splits,
    form_labels,
    guess_columns,
)
from earmark.storage import LINE, AudioAccess, SourceTable

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


def unknown_splits(names: Sequence[str]) -> list[str]:
    """Return the names of splits that are none of ours, where others are."""
    unknown = [name for name in names if split_named(name) is None]
    return unknown if len(unknown) < len(names) else []


_FILE_NAME, _NUMBER = "file name", "split and row"
"""What names clips where no column of the dataset does, as the notes call it."""


@dataclass(frozen=True)
class ClassChoice:
    """How classes are named: a list of them (a file), or names in the order of their numbers."""

    listed: Path | None = None
    names: tuple[str, ...] = ()


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


def write_gathered(
    table: PackedTable,
    reading: Reading,
    choice: ClassChoice,
    work: Path,
    notes: Sequence[str],
    *,
    access: AudioAccess | None = None,
    replace: bool,
) -> ImportSummary:
    """Write a workspace from rows whose column ``audio`` holds places of sound, or null.

    ``access`` says where sound outside the workspace may be read from.
    """
    own = form_own_labels(table, reading)
    roles = guess_columns(own.table, own.columns)
    listed = read_clips(own.table, roles, may_repeat=True)
    chosen = _classes(own.labels, choice)
    labels = _label_set(own.labels, listed["clip_id"], chosen)
    given = None if listed["split"].is_null().all() else listed["split"]
    listed = listed.with_columns(complete_splits(labels, listed["source"], given))
    workspace = write_dataset(work, listed, chosen.ontology, labels, access=access, replace=replace)
    n_found = listed["audio"].count()
    in_part = column_notes(own.table, roles, LABEL_ROLES)  # once is enough
    of_labels = [note for note in own.labels.notes if note not in in_part]
    told = (
        *column_notes(own.table, roles, (*CLIP_ROLES, *LABEL_ROLES[1:])),
        *of_labels,
        *chosen.notes,
    )
    n_again = own.labels.long.rows["present"].count() - len(labels.columns)
    again = [f"{counted(n_again, 'label')} said twice, counted once"] if n_again else []
    notes = (*told, *again, *notes)
    return ImportSummary(workspace, len(listed), n_found, len(listed) - n_found, notes)


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


def _classes(labels: LabelTable, choice: ClassChoice) -> ChosenClasses:
    used = labels.class_ids
    if choice.listed is not None or not choice.names:
        return choose_classes(used, {}, choice.listed)
    unlisted = sorted(set(used) - set(choice.names))
    return ChosenClasses(Ontology((*dict.fromkeys(choice.names), *unlisted)), {})


def _label_set(labels: LabelTable, clips: pl.Series, chosen: ChosenClasses) -> LabelSet:
    long = labels.long
    if not labels.class_ids:
        raise EarmarkError(f"{long.path}: there is not one label in it")
    if chosen.class_of:
        named = pl.col("class_id").replace(dict(chosen.class_of))
        long = replace(long, rows=long.rows.with_columns(named))
    return LabelSet.from_table(long, clips, chosen.ontology.class_ids)


ABSENT_COLUMN = "absent in the vector"


def with_vectors_as_lists(table: PackedTable, reading: Reading) -> tuple[PackedTable, Reading]:
    """Put lists of class numbers in the place of vectors, if the labels are such.

    A vector is an array, or a list of true and false or of numbers with a fraction; a list of
    whole numbers names classes. Places count from 0.
    """
    roles = guess_columns(table, reading.columns)
    column = roles.get("labels", roles.get("class_id", ""))
    kind = table.rows.schema.get(column)
    if not isinstance(kind, pl.List | pl.Array) or not _is_vector(kind):
        return table, reading
    vectors = _stacked(table, column)
    _check_states(table, column, vectors)
    absent = vectors == -1 if reading.zeros == "implicit" else vectors <= 0
    rows = table.rows.with_columns(_places(column, vectors == 1), _places(ABSENT_COLUMN, absent))
    columns = {**reading.columns, "labels": column, "negatives": ABSENT_COLUMN}
    return replace(table, rows=rows), replace(reading, columns=columns)


def _is_vector(kind: pl.List | pl.Array) -> bool:
    inner = pl.DataType.from_python(object) if kind.inner is None else kind.inner
    return isinstance(kind, pl.Array) or inner == pl.Boolean or _is_float(inner)


def _is_float(inner: object) -> bool:
    return isinstance(inner, pl.DataType) and inner.is_float()


def _stacked(table: PackedTable, column: str) -> np.ndarray:
    """Return the vectors as a matrix [row, class]; refuse one that is shorter or longer."""
    cells = table.rows[column].cast(pl.List(pl.Float64))
    lengths = cells.list.len().fill_null(0)
    longest = int(lengths.cast(pl.Int64).to_numpy().max())
    is_odd = lengths != longest
    if is_odd.any():
        raise EarmarkError(
            f"{table.at_first(is_odd)}, column {column!r}: a vector of {lengths.filter(is_odd)[0]} "
            f"numbers, where others have {longest}"
        )
    return cells.explode().to_numpy().reshape(len(cells), -1)


def _check_states(table: PackedTable, column: str, vectors: np.ndarray) -> None:
    is_odd = ~np.isin(vectors, (-1, 0, 1)).all(axis=1)
    if is_odd.any():
        row = vectors[is_odd][0]
        raise EarmarkError(
            f"{table.at_first(pl.Series(is_odd))}, column {column!r}: a vector of labels holds 1, "
            f"0 and -1, got {row[~np.isin(row, (-1, 0, 1))][0]:g}"
        )


def _places(name: str, chosen: np.ndarray) -> pl.Series:
    """Return the places that are chosen in each row, as texts."""
    lists: Sequence[list[str]] = [[str(place) for place in np.flatnonzero(row)] for row in chosen]
    return pl.Series(name, lists, pl.List(pl.String))
