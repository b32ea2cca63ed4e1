"""The last part of an import of packed data: from gathered rows to a workspace.

Rows hold whatever their files do: labels in any form of :mod:`earmark.labels.label_tables`, splits,
sources and times. Which column is taken for what is told, as for any other table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from earmark.datasets.exchange.packed_rows import PackedTable
from earmark.datasets.importer import ImportSummary
from earmark.datasets.own_tables.class_lists import ChosenClasses, choose_classes
from earmark.datasets.own_tables.own_labels import form_own_labels, read_clips
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
from earmark.runs import LINE

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
    replace: bool,
) -> ImportSummary:
    """Write a workspace from rows whose column ``audio`` holds places of sound, or null."""
    own = form_own_labels(table, reading)
    roles = guess_columns(own.table, own.columns)
    listed = read_clips(own.table, roles, may_repeat=True)
    chosen = _classes(own.labels, choice)
    labels = _label_set(own.labels, listed["clip_id"], chosen)
    given = None if listed["split"].is_null().all() else listed["split"]
    listed = listed.with_columns(complete_splits(labels, listed["source"], given))
    workspace = write_dataset(work, listed, chosen.ontology, labels, replace=replace)
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
