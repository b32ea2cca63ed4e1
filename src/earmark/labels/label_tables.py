"""Tables of labels, in the forms that people have: long, lists and multi-hot.

*Long*: a row for a clip and a class, perhaps with whether it is present. *Lists*: a cell with all
classes of a clip, perhaps another with those that are not in it. *Multi-hot*: a column for each
class, with 1, 0 or -1 in its cells. Users name the column of each role, or it is guessed from
_COLUMN_NAMES. Every command that reads a table of labels reads it here, by these rules:

- a row without a column ``present`` is a positive; false, 0 and -1 in it are explicit negatives;
  unsure and empty cells stay implicit
- a multi-hot 1 is present, -1 is not present, and 0 is implicit unless ``zeros`` are absent
- repeated labels count once; contradictory labels are refused (see ``LabelSet.from_table``)
- an empty cell of classes is a clip without labels; a table without one label is refused
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, nearest, quoted
from earmark.storage import AUDIO_SUFFIXES, LINE, PRESENCE, TABLE_ERRORS, SourceTable, read_source

_ZEROS = ("0", "0.0", "false", "no", "n")
_ABSENT, _PRESENT, _UNSURE, _ZERO, _ODD, _EMPTY = range(6)
"""What a cell says; a zero is one that says nothing, and odd is what no state is."""

_CELLS_AT_ONCE = 5_000_000


def _state_blocks(
    table: SourceTable, names: Sequence[str], *, has_unknown: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int8]]]:
    """Yield numbers of columns and what their cells say [column, row], some columns at a time."""
    state_of = {text: _UNSURE if said is None else int(said) for text, said in PRESENCE.items()}
    if has_unknown:
        state_of |= dict.fromkeys(_ZEROS, _ZERO)
    numbers_of: dict[pl.DataType, list[int]] = {}
    for number, name in enumerate(names):
        numbers_of.setdefault(table.rows[name].dtype, []).append(number)
    step = max(_CELLS_AT_ONCE // max(len(table.rows), 1), 1)
    for numbers in numbers_of.values():
        for start in range(0, len(numbers), step):
            block = numbers[start : start + step]
            cells = pl.concat([table.rows[names[number]].rename("") for number in block])
            said = cells.unique().drop_nulls()  # a few words, said millions of times
            words = state_words(said)
            states = words.replace_strict(state_of, default=_ODD, return_dtype=pl.Int8)
            states = states.set(words.is_null(), _EMPTY)
            codes = cells.replace_strict(said, states, default=_EMPTY, return_dtype=pl.Int8)
            yield np.array(block), codes.to_numpy().reshape(len(block), -1)


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
    "labels": (
        "labels", "classes", "tags", "categories", "positive_labels", "positives", "events", "mids",
    ),
    "negatives": ("negatives", "negative_labels", "absent_labels"),
    "present": ("present", "is_present", "value", "answer", "rating", "vote", "state"),
}  # fmt: skip
"""What a table may call the columns that we know, best guess first, in any letter case."""

NO_COLUMN = "-"
"""Given in place of a column's name: no column plays this role, whatever they are called."""

LABEL_ROLES = ("clip_id", "class_id", "labels", "negatives", "present")
CLIP_ROLES = ("clip_id", "audio", "start_seconds", "end_seconds", "split", "source")

Zeros = Literal["implicit", "absent"]
"""What a multi-hot 0 means: nobody said anything, or somebody said that the class is absent."""

_STATES = ("0", "1", "-1", "+1", "0.0", "1.0", "-1.0", "false", "true")

_N_FIRST = 1_000
"""Cells that are looked at before all are."""

_MANY_CLASSES, _CLASSES_PER_CLIP = 50, 5
"""From so many classes, and so many for each clip, on the two columns seem to be swapped."""


@dataclass(frozen=True)
class Reading:
    """How a table of labels is to be read, where guesses would be wrong.

    ``columns`` go from our name to the table's, such as ``{"class_id": "bird"}``; ``-`` stands for
    none. ``separator`` cuts a cell into classes. ``zeros`` says what a multi-hot 0 means.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    separator: str | None = None
    zeros: Zeros = "implicit"


GUESSED = Reading()
"""Everything is guessed, and told."""


@dataclass(frozen=True)
class LabelTable:
    """Labels in the long form, whichever form their table has.

    ``long``: LINE, clip_id, class_id, present (null where unsure). ``clip_ids``: all clips of the
    table, as they come; ``class_ids``: all classes. ``has_row_per_clip``: whether no clip has two
    rows; ``lists_classes``: whether every class has a column, so that they have an order.
    """

    long: SourceTable
    clip_ids: pl.Series
    class_ids: tuple[str, ...]
    has_row_per_clip: bool
    lists_classes: bool
    notes: tuple[str, ...]


def read_label_table(path: str | Path, reading: Reading = GUESSED) -> LabelTable:
    """Read a CSV, TSV or Parquet table of labels; ``notes`` say how it was read."""
    table = read_source(path)
    check_given(reading.columns, table)
    return form_labels(table, reading)


def form_labels(table: SourceTable, reading: Reading = GUESSED) -> LabelTable:
    """Bring the labels of a table into the long form, whichever form they have.

    A table without one label is refused, and so is one whose columns seem to be swapped, unless
    ``reading`` names the column of the classes.
    """
    if table.rows.is_empty():
        raise EarmarkError(f"{table.path}: there is not one label in it, only a line of names")
    roles = guess_columns(table, reading.columns)
    clips = row_clips(table, roles)
    if "class_id" in roles or "labels" in roles:
        formed = _from_long_or_lists(table, clips, roles, reading)
    else:
        formed = _from_multi_hot(table, clips, roles, reading.zeros)
    if not formed.long.rows["present"].count():
        raise EarmarkError(f"{table.path}: there is not one label in it")
    if not {"class_id", "labels"} & reading.columns.keys():
        _refuse_swapped(table, roles, formed)
    return replace(formed, notes=(*column_notes(table, roles, LABEL_ROLES), *formed.notes))


def guess_columns(table: SourceTable, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the column that plays each role, as given or guessed; roles without one are left out.

    Where a table has both a class and a list of labels, the class counts. Columns of 0 and 1 beside
    others of 0 and 1 are multi-hot: they play no role, though a class is called ``event``.
    """
    given = given or {}
    by_plain_name = {_plain(name): name for name in reversed(table.columns)}
    roles = {}
    for role, names in _COLUMN_NAMES.items():
        guesses = [by_plain_name[name] for name in names if name in by_plain_name]
        guesses = [name for name in guesses if name not in given.values()]
        if given.get(role) in table.columns:
            roles[role] = given[role]
        elif guesses and given.get(role) != NO_COLUMN:
            roles[role] = guesses[0]
    if "class_id" in roles and "labels" in roles:
        del roles["class_id" if "labels" in given else "labels"]
    for role in _multi_hot_roles(table, roles, given):
        del roles[role]
    return roles


def _multi_hot_roles(
    table: SourceTable, roles: Mapping[str, str], given: Mapping[str, str]
) -> list[str]:
    """Return the guessed roles whose columns are classes of a multi-hot table."""
    of_classes = [role for role in ("class_id", "labels") if role in roles]
    if set(of_classes) & given.keys() or (of_classes and "present" in roles):
        return []
    is_speaker = _plain(roles.get("source", "")) == "speaker"
    guessed = [*of_classes, "present", *(["source"] if is_speaker else [])]
    guessed = [role for role in guessed if role in roles and role not in given]
    found = [role for role in guessed if _is_binary(table.rows[roles[role]])]
    if not found or not set(of_classes) <= set(found):
        return []
    others = (name for name in table.columns if name not in roles.values())
    is_beside = len(found) > 1 or any(_is_binary(table.rows[name]) for name in others)
    return found if is_beside else []


def _is_binary(cells: pl.Series) -> bool:
    """Tell whether a column holds 0 and 1 (or -1), and nothing else but empty cells."""
    if cells.dtype.is_nested():
        return False
    for part in (cells.head(_N_FIRST), cells):  # mostly the first tell
        words = state_words(part.unique()).drop_nulls()
        if not words.is_in(_STATES).all():
            return False
    return bool(len(words))


def check_given(given: Mapping[str, str], *tables: SourceTable) -> None:
    """Refuse roles that do not exist, and columns that no table has."""
    for role, column in given.items():
        if role not in _COLUMN_NAMES:
            raise EarmarkError(f"no column is known as {role!r}{nearest(role, _COLUMN_NAMES)}")
        there = [name for table in tables for name in table.columns]
        if column not in (*there, NO_COLUMN):
            where = " and ".join(str(table.path) for table in tables)
            raise EarmarkError(f"{where}: there is no column {column!r}{nearest(column, there)}")


def column_notes(
    table: SourceTable, roles: Mapping[str, str], wanted: Sequence[str]
) -> tuple[str, ...]:
    """Say which column was taken for what, unless each has our own name for it."""
    taken = {role: roles[role] for role in wanted if role in roles}
    if all(role == column for role, column in taken.items()):
        return ()
    told = ", ".join(f"{role} from {column!r}" for role, column in taken.items())
    return (f"{table.path.name}: {told}",)


def row_clips(table: SourceTable, roles: Mapping[str, str]) -> pl.Series:
    """Return the clip of each row; a table of sound files without names is named by its files.

    Several clips of one file are told apart by their start.
    """
    column = roles.get("clip_id", roles.get("audio"))
    if column is None:
        raise EarmarkError(
            f"{table.path}: no column names the clips (clip_id, filename, ...) among "
            f"{', '.join(table.columns)}; is the header line missing? Otherwise say which it is "
            "(--column clip_id=NAME)"
        )
    names = _texts(table, column).alias("clip_id")
    if names.null_count():
        raise EarmarkError(f"{table.at_first(names.is_null())}: {column} is empty")
    if "clip_id" not in roles and "start_seconds" in roles:
        start = table.rows[roles["start_seconds"]].cast(pl.String).fill_null("0")
        names = pl.select(pl.format("{}@{}", names, start).alias("clip_id")).to_series()
    return names


def _texts(table: SourceTable, column: str) -> pl.Series:
    """Return a column as texts; refuse one of lists, bytes or the like."""
    cells = table.rows[column]
    try:
        if cells.dtype.is_nested():
            raise TypeError
        return cells.cast(pl.String)
    except (TypeError, *TABLE_ERRORS):
        raise EarmarkError(
            f"{table.path}: column {column!r} holds {cells.dtype}, expected texts or numbers"
        ) from None


def _from_long_or_lists(
    table: SourceTable, clips: pl.Series, roles: Mapping[str, str], reading: Reading
) -> LabelTable:
    column = roles.get("class_id", roles.get("labels", ""))
    cells, notes = _class_cells(table, roles, reading.separator)
    clip_rows = pl.DataFrame([table.rows[LINE], clips])
    rows = _long_rows(clip_rows, cells, _presence(table, roles))
    is_empty = _is_empty(rows["class_id"])
    is_odd = is_empty & rows["present"].is_not_null()
    if "present" in roles and not isinstance(cells.dtype, pl.List) and is_odd.any():
        raise EarmarkError(f"{table.at_first(is_odd)}: {column} is empty")
    rows = rows.filter(~is_empty)
    if "negatives" in roles:
        rows = pl.concat([rows, _negatives(table, clip_rows, roles, rows, reading.separator)])
    n_unsure = rows["present"].null_count()
    if n_unsure:
        notes.append(f"{n_unsure:,} answers are unsure or empty: these labels stay implicit")
    all_clips = clips.unique(maintain_order=True)
    return LabelTable(
        replace(table, rows=rows),
        all_clips,
        tuple(rows["class_id"].unique(maintain_order=True).to_list()),
        has_row_per_clip=len(all_clips) == len(clips),
        lists_classes=False,
        notes=tuple(notes),
    )


def _is_empty(names: pl.Series) -> pl.Series:
    return names.is_null() | (names == "")


def _long_rows(clip_rows: pl.DataFrame, cells: pl.Series, present: pl.Series) -> pl.DataFrame:
    """Return a row for each clip and class of cells that hold one class, or lists of them."""
    rows = clip_rows.with_columns(cells.alias("class_id"), present.alias("present"))
    if isinstance(cells.dtype, pl.List):
        rows = rows.explode("class_id")
        rows = rows.with_columns(pl.col("class_id").cast(pl.String).str.strip_chars())
    return rows


def _negatives(
    table: SourceTable,
    clip_rows: pl.DataFrame,
    roles: Mapping[str, str],
    positives: pl.DataFrame,
    separator: str | None,
) -> pl.DataFrame:
    """Return the classes that a column says are not in a clip; refuse those that are in it, too."""
    column = roles["negatives"]
    cells, _ = _class_cells(table, {"labels": column}, separator)
    rows = _long_rows(clip_rows, cells, pl.repeat(False, len(clip_rows), eager=True))
    rows = rows.filter(pl.col("class_id") != "")
    both = rows.join(positives.filter("present"), on=[LINE, "class_id"], how="semi")
    if len(both):
        other = roles.get("class_id", roles.get("labels"))
        raise EarmarkError(
            f"{table.at(both[LINE][0])}: class {both['class_id'][0]!r} is in {other!r} and in "
            f"{column!r}: it cannot be present and absent"
        )
    return rows


def _class_cells(
    table: SourceTable, roles: Mapping[str, str], separator: str | None
) -> tuple[pl.Series, list[str]]:
    """Return the class of each row, or its list of classes, and notes on how it was read."""
    column = roles.get("class_id", roles.get("labels", ""))
    if isinstance(table.rows[column].dtype, pl.List):
        return table.rows[column], []
    cells = _texts(table, column)
    texts = cells.unique()  # a few names, millions of times
    if separator is None:
        separator = _separator_in(texts, roles)
    if separator is not None:
        note = f"{column!r} holds lists of classes, separated by {separator!r}"
        return cells.str.split(separator), [note]
    has_blanks = (texts != texts.str.strip_chars()).any()
    return cells.str.strip_chars() if has_blanks else cells, []


def _separator_in(texts: pl.Series, roles: Mapping[str, str]) -> str | None:
    """Return what separates classes in a cell, if anything does.

    Names of classes have commas of their own: only a column called a list is cut at them. A row
    that says whether its class is present speaks of one class, whatever is in the name.
    """
    if "present" in roles and "labels" not in roles:
        return None
    choices = (";", "|", ",") if "labels" in roles else (";", "|")
    found = (text for text in choices if texts.str.contains(text, literal=True).any())
    return next(found, None)


def _presence(table: SourceTable, roles: Mapping[str, str]) -> pl.Series:
    """Return whether each row says present; without such a column every row does."""
    if "present" not in roles:
        return pl.repeat(True, len(table.rows), eager=True)
    column = roles["present"]
    hint = "" if column == "present" else "; if it says something else: --column present=-"
    return presence(table, column, PRESENCE, hint)


def _from_multi_hot(
    table: SourceTable, clips: pl.Series, roles: Mapping[str, str], zeros: Zeros
) -> LabelTable:
    """Read every column that mostly holds states, those that play a role left out."""
    others = [
        name
        for name in table.columns
        if name not in roles.values() and not table.rows[name].dtype.is_nested()
    ]
    is_class = np.zeros(len(others), np.bool_)
    has_zeros, parts = False, []
    for columns, states in _state_blocks(table, others, has_unknown=zeros == "implicit"):
        # Most cells of a class's column are states; a few that are not are mistakes.
        is_state = states < _ODD
        is_class[columns] = 2 * is_state.sum(axis=1) > (states != _EMPTY).sum(axis=1)
        columns, states = columns[is_class[columns]], states[is_class[columns]]
        for column in columns[(states == _ODD).any(axis=1)][:1]:
            presence(table, others[column])  # raises
        has_zeros |= bool((states == _ZERO).any())
        number, row = np.nonzero(states <= _PRESENT)
        parts.append((row, columns[number], states[number, row] == _PRESENT))
    classes = [name for name, is_meant in zip(others, is_class, strict=True) if is_meant]
    if not classes:
        raise EarmarkError(
            f"{table.path}: no column of classes (class_id, label, labels, ...) and no column of 0 "
            f"and 1 among {', '.join(table.columns)}; is the header line missing? Otherwise say "
            "which column holds the classes (--column class_id=NAME)"
        )
    notes = [f"{len(classes):,} columns of classes, from {classes[0]!r} to {classes[-1]!r}"]
    if has_zeros:
        notes.append("0 is taken as implicit (nobody was asked), -1 as an explicit negative")
    passed_over = [name for name, is_meant in zip(others, is_class, strict=True) if not is_meant]
    if passed_over:
        notes.append(f"columns passed over: {', '.join(passed_over)}")
    rows, columns, present = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort((columns, rows))
    long = pl.DataFrame(
        {
            LINE: table.rows[LINE].gather(rows[order]),
            "clip_id": clips.gather(rows[order]),
            "class_id": pl.Series(others, dtype=pl.String).gather(columns[order]),
            "present": present[order],
        }
    )
    all_clips = clips.unique(maintain_order=True)
    return LabelTable(
        replace(table, rows=long),
        all_clips,
        tuple(classes),
        has_row_per_clip=len(all_clips) == len(clips),
        lists_classes=True,
        notes=tuple(notes),
    )


def _refuse_swapped(table: SourceTable, roles: Mapping[str, str], formed: LabelTable) -> None:
    """Refuse clips in the column of the classes, and classes in that of the clips."""
    column = roles.get("class_id")
    if column is None:
        return
    n_classes, n_clips = len(formed.class_ids), len(formed.clip_ids)
    dotted = [name for name in formed.class_ids if "." in name]
    files = [name for name in dotted if Path(name).suffix.lower() in AUDIO_SUFFIXES]
    if 2 * len(files) > n_classes:
        what = f"column {column!r} holds sound files, such as {files[0]!r}"
    elif n_classes >= _MANY_CLASSES and n_classes >= _CLASSES_PER_CLIP * n_clips:
        what = (
            f"column {column!r} holds {n_classes:,} classes, such as {formed.class_ids[0]!r}, of "
            f"{n_clips:,} clips, such as {formed.clip_ids[0]!r}"
        )
    else:
        return
    clip_column = roles.get("clip_id", roles.get("audio"))
    raise EarmarkError(
        f"{table.path}: {what}; are the columns swapped? Then read them by --column "
        f"{quoted(f'clip_id={column}')} --column {quoted(f'class_id={clip_column}')}; if not, by "
        f"--column {quoted(f'class_id={column}')}"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def presence(
    table: SourceTable,
    column: str,
    meanings: Mapping[str, bool | None] = PRESENCE,
    hint: str = "",
) -> pl.Series:
    """Return what people said of being present in a column; null where unsure or empty.

    ``meanings`` are those of the words, ``hint`` ends the message about any other.
    """
    cells = table.rows[column]
    if cells.dtype == pl.Boolean and meanings is PRESENCE:
        return cells.alias("present")
    said = cells.unique().drop_nulls()  # a few words, said millions of times
    words = state_words(said)
    odd = said.filter(words.is_not_null() & ~words.is_in(list(meanings)))
    if len(odd):
        is_odd = cells.is_in(odd.implode())
        raise EarmarkError(
            f"{table.at_first(is_odd)}: {column} must say whether the class is present (true or "
            "false, 1 or 0, 1 or -1, yes or no, present or not_present) or unsure, got "
            f"{cells.filter(is_odd)[0]!r}{hint}"
        )
    values = words.replace_strict(dict(meanings), default=None, return_dtype=pl.Boolean)
    said_so = cells.replace_strict(said, values, default=None, return_dtype=pl.Boolean)
    return said_so.alias("present")


def state_words(cells: pl.Series) -> pl.Series:
    """Return cells as the words of PRESENCE are written; null where they are empty."""
    words = cells.cast(pl.String).str.strip_chars().str.to_lowercase()
    return words.set(words == "", None)
