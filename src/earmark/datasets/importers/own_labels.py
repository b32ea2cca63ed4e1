"""What an owner's file tells: clips, labels, splits and times, checked line by line.

Every importer of tables reads them here, in any of the forms of
:mod:`earmark.labels.label_tables`, or from an export of Label Studio. Rows may come from several
packed files (Parquet, Arrow, tars), whose names may say which split their rows are in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated

import polars as pl

from earmark.datasets.importers.class_lists import ChosenClasses, choose_classes
from earmark.datasets.importers.label_studio import is_label_studio, read_label_studio
from earmark.datasets.workspace import SPLITS, ImportSummary, write_dataset
from earmark.errors import EarmarkError
from earmark.labels import (
    CLIP_ROLES,
    LABEL_ROLES,
    LabelTable,
    Ontology,
    Reading,
    check_given,
    column_notes,
    complete_splits,
    form_labels,
    guess_columns,
    row_clips,
)
from earmark.options import Option
from earmark.storage import AUDIO_SUFFIXES, LINE, AudioAccess, SourceTable, check_size, read_source

ClassList = Annotated[Path | None, Option("List of classes: their names, parents and order.")]

_SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("tune", "val", "valid", "validation"), "tune"),
    **dict.fromkeys(("eval", "evaluation", "test", "testing"), "eval"),
}
"""What other datasets call the splits. ``dev`` is train to some and tune to others: refused."""


@dataclass(frozen=True)
class OwnLabels:
    """What a file of labels holds: labels, and a table from which clips can be taken.

    ``columns`` of that table are given, or made here; all others are guessed.
    """

    table: SourceTable
    labels: LabelTable
    columns: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_own_labels(path: Path, clip_tables: Sequence[SourceTable], reading: Reading) -> OwnLabels:
    """Read a table of labels, or Label Studio's tasks; ``clip_tables`` may have named columns too.

    Without a table of clips, stretches of one recording become clips of their own.
    """
    if is_label_studio(path):
        return _read_export(path, clip_tables, reading)
    table = read_source(path)
    check_given(reading.columns, table, *clip_tables)
    return form_own_labels(table, reading, names_clips=not clip_tables)


def form_own_labels(table: SourceTable, reading: Reading, *, names_clips: bool = True) -> OwnLabels:
    """Take labels from a table that was read; see :func:`read_own_labels`."""
    if names_clips:
        table, columns = _named_by_stretch(table, reading.columns)
        reading = replace(reading, columns=columns)
    return OwnLabels(table, form_labels(table, reading), reading.columns)


def _read_export(path: Path, clip_tables: Sequence[SourceTable], reading: Reading) -> OwnLabels:
    export = read_label_studio(path)
    table = SourceTable(path, export.clips, "task")
    check_given(reading.columns, table, *clip_tables)
    names = tuple(dict.fromkeys([*export.labels["class_id"].to_list(), *export.parents]))
    long = SourceTable(path, export.labels, "task")
    labels = LabelTable(long, export.clips["clip_id"], names, True, False, export.notes)
    return OwnLabels(table, labels, reading.columns, export.parents)


def _named_by_stretch(
    table: SourceTable, columns: Mapping[str, str]
) -> tuple[SourceTable, Mapping[str, str]]:
    """Name stretches of recordings where the table has names of recordings only: ``x.wav@10``.

    Where two begin at the same time, the end is named too: ``x.wav@10-12.5``. A table with names
    of clips, or with one stretch of each recording, is returned as it is.
    """
    roles = guess_columns(table, columns)
    file, start = roles.get("audio", roles.get("clip_id")), roles.get("start_seconds")
    if file is None or start is None or roles.get("clip_id", file) != file:
        return table, columns
    end = roles.get("end_seconds", start)
    stretches = table.rows.select(list(dict.fromkeys((file, start, end))))
    if stretches.dtypes[0].is_nested() or stretches[file].null_count():
        return table, columns  # refused later, with its line
    if "clip_id" in roles and stretches.unique().height == stretches[file].n_unique():
        return table, columns
    begins, ends = (pl.col(name).cast(pl.String).fill_null("0") for name in (start, end))
    by_start = pl.format("{}@{}", pl.col(file), begins)
    is_alone = pl.col(end).n_unique().over(file, start) == 1
    name = f"{file}@{start}"
    stretch = pl.when(is_alone).then(by_start).otherwise(pl.format("{}-{}", by_start, ends))
    is_whole = pl.col(start).is_null() & pl.col(end).is_null()
    stretch = pl.when(is_whole).then(pl.col(file).cast(pl.String)).otherwise(stretch)
    rows = table.rows.with_columns(stretch.alias(name))
    return replace(table, rows=rows), {**columns, "clip_id": name, "audio": file}


def read_clips(table: SourceTable, roles: Mapping[str, str], *, may_repeat: bool) -> pl.DataFrame:
    """Return the clips with LINE and all columns of CLIP_SCHEMA, null where the table has none.

    Where clips ``may_repeat`` (a table of labels) their rows must say the same of them.
    """
    rows = pl.DataFrame([row_clips(table, roles), table.rows[LINE].cast(pl.Int64)])
    rows = rows.with_columns(
        pl.lit(None, pl.String).alias(role)
        if role not in roles
        else table.rows[roles[role]].cast(pl.String).alias(role)
        for role in CLIP_ROLES
        if role != "clip_id"
    )
    if "audio" not in roles:
        rows = rows.with_columns(audio=_if_sound_file("clip_id"))
    if may_repeat:
        rows = rows.unique(pl.exclude(LINE), keep="first", maintain_order=True)
    _check_repeated(table, rows)
    rows = rows.with_columns(_splits(table, rows))
    for role in ("start_seconds", "end_seconds"):
        rows = rows.with_columns(_seconds(table, rows, role))
    default = "audio" if "start_seconds" in roles else "clip_id"
    return rows.with_columns(pl.coalesce("source", default, "clip_id").alias("source"))


def _check_repeated(table: SourceTable, rows: pl.DataFrame) -> None:
    twice = rows.filter(~pl.col("clip_id").is_first_distinct())
    if twice.is_empty():
        return
    clip_id = twice["clip_id"][0]
    first = rows.filter(pl.col("clip_id") == clip_id)[LINE][0]
    raise EarmarkError(
        f"{table.at(twice[LINE][0])}: clip {clip_id!r} is listed before, in {table.unit} {first}; "
        "every clip needs a name of its own, and one file, time, split and source"
    )


def _splits(table: SourceTable, rows: pl.DataFrame) -> pl.Series:
    """Return the splits under our names; refuse unknown ones, and clips without where some have."""
    given = rows["split"].str.to_lowercase()
    split = given.replace_strict(_SPLIT_NAMES, default=None, return_dtype=pl.String)
    is_odd = split.is_null()
    if is_odd.any() and given.count():
        line, text = rows[LINE].filter(is_odd)[0], rows["split"].filter(is_odd)[0]
        raise EarmarkError(
            f"{table.at(line)}: split must be one of {', '.join(SPLITS)} (or "
            f"{', '.join(_SPLIT_NAMES.keys() - set(SPLITS))}), got {text or 'nothing'!r}; to have "
            "none, say --column split=-"
        )
    return split


def _seconds(table: SourceTable, rows: pl.DataFrame, role: str) -> pl.Series:
    seconds = rows[role].cast(pl.Float64, strict=False)
    is_odd = rows[role].is_not_null() & (seconds.is_null() | ~seconds.is_finite())
    if is_odd.any():
        line, text = rows[LINE].filter(is_odd)[0], rows[role].filter(is_odd)[0]
        raise EarmarkError(f"{table.at(line)}: {role} must be a number, got {text!r}")
    return seconds


def _if_sound_file(column: str) -> pl.Expr:
    """Return a column's names where they have the ending of a sound file, else null."""
    endings = "|".join(suffix.removeprefix(".") for suffix in sorted(AUDIO_SUFFIXES))
    return pl.when(pl.col(column).str.contains(rf"(?i)\.({endings})$")).then(pl.col(column))


_SPLIT_WORDS = {**_SPLIT_NAMES, "dev": "tune"}
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
    listed = listed.with_columns(complete_splits(labels, listed["source"], listed["split"]))
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
