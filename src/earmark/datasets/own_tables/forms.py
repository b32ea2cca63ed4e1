"""The forms in which tables hold labels: long, lists and multi-hot.

*Long*: a row for a clip and a class, perhaps with whether it is present. *Lists*: a cell with all
classes of a clip. *Multi-hot*: a column for each class. Which column plays which role is given or
guessed from _COLUMN_NAMES.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from earmark.errors import EarmarkError, nearest
from earmark.runs import LINE, PRESENCE, SourceTable

_COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "clip_id": (
        "clip_id", "clip", "clipid", "sample_key", "segment_id", "ytid", "youtube_id", "item_id",
        "itemid", "sound_id", "audio_id", "id", "fname", "filename", "file_name", "file",
    ),
    "audio": (
        "audio", "audio_path", "audio_file", "audio_filename", "path", "filepath", "file_path",
        "wav", "filename", "file_name", "fname", "file",
    ),
    "start_seconds": ("start_seconds", "start", "start_time", "start_time_seconds", "onset"),
    "end_seconds": ("end_seconds", "end", "end_time", "end_time_seconds", "offset"),
    "split": ("split", "set", "subset", "partition"),
    "source": (
        "source", "recording", "recording_id", "src_file", "uploader", "group", "video_id",
        "speaker", "session", "site",
    ),
    "class_id": (
        "class_id", "class", "label", "class_name", "category", "tag", "event_label", "event",
        "species", "instrument", "mid", "target",
    ),
    "labels": ("labels", "classes", "tags", "categories", "positive_labels", "events", "mids"),
    "present": ("present", "is_present", "value", "answer", "rating", "vote"),
}  # fmt: skip
"""What a table may call the columns that we know, best guess first, in any letter case."""

_NO_COLUMN = "-"
"""Given in place of a column's name: no column plays this role, whatever they are called."""

LABEL_ROLES = ("clip_id", "class_id", "labels", "present")
CLIP_ROLES = ("clip_id", "audio", "start_seconds", "end_seconds", "split", "source")

Zeros = Literal["implicit", "absent"]
"""What a multi-hot 0 means: nobody said anything, or somebody said that the class is absent."""

_ZEROS = ("0", "0.0", "false", "no", "n")


@dataclass(frozen=True)
class FormedLabels:
    """Labels in the long form: clip_id, class_id, present, LINE; and all classes there are."""

    rows: pl.DataFrame
    class_ids: frozenset[str]
    notes: tuple[str, ...]


def guess_columns(table: SourceTable, given: Mapping[str, str]) -> dict[str, str]:
    """Return the column that plays each role, as given or guessed; roles without one are left out.

    Where a table has both a class and a list of labels, the class counts.
    """
    by_plain_name = {_plain(name): name for name in reversed(table.columns)}
    roles = {}
    for role, names in _COLUMN_NAMES.items():
        guesses = [by_plain_name[name] for name in names if name in by_plain_name]
        guesses = [name for name in guesses if name not in given.values()]
        if given.get(role) in table.columns:
            roles[role] = given[role]
        elif guesses and given.get(role) != _NO_COLUMN:
            roles[role] = guesses[0]
    if "class_id" in roles and "labels" in roles:
        del roles["class_id" if "labels" in given else "labels"]
    return roles


def check_given(given: Mapping[str, str], *tables: SourceTable) -> None:
    """Refuse roles that do not exist, and columns that no table has."""
    for role, column in given.items():
        if role not in _COLUMN_NAMES:
            raise EarmarkError(f"no column is known as {role!r}{nearest(role, _COLUMN_NAMES)}")
        there = [name for table in tables for name in table.columns]
        if column not in (*there, _NO_COLUMN):
            where = " and ".join(str(table.path) for table in tables)
            raise EarmarkError(f"{where}: there is no column {column!r}{nearest(column, there)}")


def column_note(table: SourceTable, roles: Mapping[str, str], wanted: tuple[str, ...]) -> str:
    """Say which column was taken for what."""
    taken = (f"{role} from {roles[role]!r}" for role in wanted if role in roles)
    return f"{table.path.name}: {', '.join(taken)}"


def clip_ids(table: SourceTable, roles: Mapping[str, str]) -> pl.Series:
    """Return the clip of each row; a table of sound files without names is named by its files.

    Several clips of one file are told apart by their start.
    """
    column = roles.get("clip_id", roles.get("audio"))
    if column is None:
        raise EarmarkError(
            f"{table.path}: no column names the clips (clip_id, filename, ...) among "
            f"{', '.join(table.columns)}; is the header line missing? Otherwise say which it is"
        )
    names = table.rows[column].cast(pl.String).alias("clip_id")
    if names.null_count():
        line = table.rows[LINE].filter(names.is_null())[0]
        raise EarmarkError(f"{table.at(line)}: {column} is empty")
    if "clip_id" not in roles and "start_seconds" in roles:
        start = table.rows[roles["start_seconds"]].cast(pl.String).fill_null("0")
        names = pl.select(pl.format("{}@{}", names, start).alias("clip_id")).to_series()
    return names


def form_labels(
    table: SourceTable, roles: Mapping[str, str], separator: str | None, zeros: Zeros
) -> FormedLabels:
    """Bring the labels of a table into the long form, whichever form they have."""
    clips = clip_ids(table, roles)
    if "class_id" in roles or "labels" in roles:
        return _from_long_or_lists(table, clips, roles, separator)
    return _from_multi_hot(table, clips, roles, zeros)


def _from_long_or_lists(
    table: SourceTable, clips: pl.Series, roles: Mapping[str, str], separator: str | None
) -> FormedLabels:
    column = roles.get("class_id", roles.get("labels", ""))
    cells, notes = table.rows[column], []
    if not isinstance(cells.dtype, pl.List):
        cells = cells.cast(pl.String)
        # Names of classes have commas of their own: only a column called a list is cut at them.
        choices = (";", "|", ",") if "labels" in roles else (";", "|")
        found = [text for text in choices if cells.str.contains(text, literal=True).any()]
        separator = separator or next(iter(found), None)
        if separator:
            cells = cells.str.split(separator)
            notes.append(f"{column!r} holds lists of classes, separated by {separator!r}")
    rows = pl.DataFrame(
        {
            "clip_id": clips,
            "class_id": cells,
            "present": _presence(table, roles),
            LINE: table.rows[LINE].cast(pl.Int64),
        }
    )
    rows = rows.explode("class_id") if isinstance(cells.dtype, pl.List) else rows
    rows = rows.with_columns(pl.col("class_id").cast(pl.String).str.strip_chars())
    rows = rows.filter(pl.col("class_id").fill_null("") != "")
    n_unsure = rows["present"].null_count()
    if n_unsure:
        notes.append(f"{n_unsure:,} answers are unsure or empty: these labels stay implicit")
    names = frozenset(rows["class_id"].unique().to_list())
    return FormedLabels(rows.drop_nulls("present"), names, tuple(notes))


def _presence(table: SourceTable, roles: Mapping[str, str]) -> pl.Series:
    """Return whether each row says present; without such a column every row does."""
    if "present" not in roles:
        return pl.repeat(True, len(table.rows), eager=True)
    said = table.rows[roles["present"]].cast(pl.String).str.to_lowercase()
    _check_states(table, roles["present"], said, PRESENCE)
    return said.replace_strict(PRESENCE, default=None, return_dtype=pl.Boolean)


def _from_multi_hot(
    table: SourceTable, clips: pl.Series, roles: Mapping[str, str], zeros: Zeros
) -> FormedLabels:
    meanings = {
        text: None if zeros == "implicit" and text in _ZEROS else present
        for text, present in PRESENCE.items()
    }
    texts = {
        name: table.rows[name].cast(pl.String).str.to_lowercase()
        for name in table.columns
        if name not in roles.values() and not table.rows[name].dtype.is_nested()
    }
    # Most of a class's column are states; a few that are not are mistakes, and told below.
    classes = [
        n for n, text in texts.items() if 2 * text.is_in(list(meanings)).sum() > text.count()
    ]
    if not classes:
        raise EarmarkError(
            f"{table.path}: no column of classes (class_id, label, labels, ...) and no column of 0 "
            f"and 1 among {', '.join(table.columns)}; is the header line missing? Otherwise say "
            "which column holds the classes"
        )
    for name in classes:
        _check_states(table, name, texts[name], meanings)
    wide = pl.DataFrame(
        [clips, table.rows[LINE].cast(pl.Int64), *(texts[c].alias(c) for c in classes)]
    )
    rows = wide.unpivot(index=["clip_id", LINE], variable_name="class_id", value_name="present")
    rows = rows.with_columns(
        pl.col("present").replace_strict(meanings, default=None, return_dtype=pl.Boolean)
    ).drop_nulls("present")
    notes = [f"{len(classes):,} columns of classes, from {classes[0]!r} to {classes[-1]!r}"]
    if zeros == "implicit":
        notes.append("0 is taken as implicit (nobody was asked), -1 as an explicit negative")
    passed_over = [name for name in texts if name not in classes]
    if passed_over:
        notes.append(f"columns passed over: {', '.join(passed_over)}")
    return FormedLabels(rows, frozenset(classes), tuple(notes))


def _check_states(
    table: SourceTable, column: str, texts: pl.Series, meanings: Mapping[str, bool | None]
) -> None:
    is_odd = texts.is_not_null() & ~texts.is_in(list(meanings))
    if is_odd.any():
        line, text = table.rows[LINE].filter(is_odd)[0], texts.filter(is_odd)[0]
        raise EarmarkError(
            f"{table.at(line)}: {column} must say whether the class is present (1 or 0, true or "
            f"false, present or not_present, 1 or -1, unsure), got {text!r}"
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
