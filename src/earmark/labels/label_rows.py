"""Rows of labels: check them, and number their clips and classes.

A row ``clip_id, class_id, present`` says whether somebody found a class present in a clip. Every
mistake in a row is reported with its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, nearest
from earmark.storage import LINE, PRESENCE, SourceTable, are_distinct


@dataclass(frozen=True)
class NumberedNames:
    """Rows of names: ``names`` are the distinct ones in order, ``numbers`` [row] index them."""

    names: pl.Series
    numbers: NDArray[np.uint32]


def number_names(rows: pl.Series) -> NumberedNames:
    """Number the names of rows in order of appearance; null counts as a name.

    >>> number_names(pl.Series(["b", "a", "b"])).numbers
    array([0, 1, 0], dtype=uint32)
    """
    names = rows.unique(maintain_order=True)
    return NumberedNames(names, _join(rows, names, nulls_equal=True).to_numpy())


def rows_of(clip_ids: pl.Series, among: pl.Series) -> pl.Series:
    """Return the row of each clip among others; null where it is not one of them.

    >>> rows_of(pl.Series(["b", "x"]), pl.Series(["a", "b"])).to_list()
    [1, None]
    """
    return _join(clip_ids, among)


def _join(names: pl.Series, among: pl.Series, *, nulls_equal: bool = False) -> pl.Series:
    rows = among.to_frame("name").with_row_index("row")
    joined = names.to_frame("name").join(
        rows, on="name", how="left", nulls_equal=nulls_equal, maintain_order="left"
    )
    return joined["row"]


ROW_SCHEMA = {"clip_id": pl.String, "class_id": pl.String, "present": pl.Boolean}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing, about a label file."""

    kind: Literal[
        "unknown clip", "unknown class", "duplicate row", "contradictory rows",
        "class without positives", "no explicit negatives",
    ]  # fmt: skip
    line: int | None
    message: str

    @property
    def is_error(self) -> bool:
        """Whether the labels cannot be used as they are."""
        return self.line is not None and self.kind != "duplicate row"


def find_problems(
    table: SourceTable, clip_ids: Iterable[str], class_ids: Iterable[str]
) -> list[Finding]:
    """List what is wrong with a table of labels.

    Finds unknown clips and classes, repeated and contradictory rows, classes without positives,
    and a label set without a single explicit negative.
    """
    table = checked_table(table)
    classes = class_tuple(class_ids)
    placed = place_rows(table, clip_series(clip_ids), classes)
    findings = wrong_rows(placed, classes, table.unit)
    with_positives = set(placed.filter(pl.col("present"))["class_id"].unique().to_list())
    findings += [
        Finding("class without positives", None, f"class {class_id!r} has no explicit positive")
        for class_id in classes
        if class_id not in with_positives
    ]
    if placed["present"].all():
        message = "no label is an explicit negative: every absent class counts as implicit"
        findings.append(Finding("no explicit negatives", None, message))
    return sorted(findings, key=lambda finding: (finding.line is None, finding.line or 0))


def checked_table(table: SourceTable) -> SourceTable:
    """Return the columns clip_id, class_id and present with their types; null is unsure.

    Names the column that is missing, or the line of a name that is empty or a word that says
    nothing of presence.
    """
    for column in ROW_SCHEMA:
        if column not in table.columns:
            hint = nearest(column, table.columns)
            raise EarmarkError(f"{table.path}: there is no column {column!r}{hint}")
        is_empty = table.rows[column].is_null()
        if column != "present" and is_empty.any():
            raise EarmarkError(f"{table.at_first(is_empty)}: {column} is empty")
    rows = table.rows.select(LINE, *ROW_SCHEMA)
    rows = rows.with_columns(presence(table, "present"))
    return replace(table, rows=rows.cast({"clip_id": pl.String, "class_id": pl.String}))


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


def place_rows(table: SourceTable, clips: pl.Series, classes: Sequence[str]) -> pl.DataFrame:
    """Return a checked table's rows with ``line`` and the numbers ``clip`` and ``class``.

    The numbers are the places in the lists of clips and classes, null where unknown.
    """
    rows = table.rows
    class_list = pl.Series(list(classes), dtype=pl.String)
    return rows.rename({LINE: "line"}).with_columns(
        rows_of(rows["clip_id"], clips).alias("clip"),
        rows_of(rows["class_id"], class_list).alias("class"),
    )


def wrong_rows(placed: pl.DataFrame, classes: Sequence[str], unit: str) -> list[Finding]:
    """List the rows that name unknown clips or classes, or that come again; ``unit``: of places."""
    return [*_unknown(placed, classes, unit), *_repeated(placed, unit)]


def _unknown(placed: pl.DataFrame, classes: Sequence[str], unit: str) -> list[Finding]:
    findings = []
    for row in placed.filter(pl.col("clip").is_null()).iter_rows(named=True):
        message = f"{unit} {row['line']}: clip {row['clip_id']!r} is not in the list of clips"
        findings.append(Finding("unknown clip", row["line"], message))
    for row in placed.filter(pl.col("class").is_null()).iter_rows(named=True):
        hint = nearest(row["class_id"], classes) if len(classes) < 10_000 else ""
        message = f"{unit} {row['line']}: there is no class {row['class_id']!r}{hint}"
        findings.append(Finding("unknown class", row["line"], message))
    return findings


def _repeated(placed: pl.DataFrame, unit: str) -> list[Finding]:
    """Name every second answer on a clip and class: a duplicate, or a contradiction."""
    placed = placed.drop_nulls(["clip", "class", "present"])
    repeats = placed.filter(~is_first_said(placed))
    if repeats.is_empty():
        return []
    keys = ["clip", "class"]
    firsts = placed.filter(is_first_said(placed)).select(
        *keys, first_line="line", first_present="present"
    )
    findings = []
    for row in repeats.join(firsts, on=keys, maintain_order="left").iter_rows(named=True):
        what = f"{unit} {row['first_line']} (clip {row['clip_id']!r}, class {row['class_id']!r})"
        if row["present"] == row["first_present"]:
            message = f"{unit} {row['line']}: repeats {what}"
            findings.append(Finding("duplicate row", row["line"], message))
        else:
            message = f"{unit} {row['line']}: contradicts {what}"
            findings.append(Finding("contradictory rows", row["line"], message))
    return findings


def is_first_said(placed: pl.DataFrame) -> pl.Series:
    """Tell which placed rows are the first to speak of their clip and class."""
    pair = pl.col("clip").cast(pl.UInt64) * 2**32 + pl.col("class")
    return placed.select(pair.is_first_distinct()).to_series()


def clip_series(clip_ids: Iterable[object], n_expected: int | None = None) -> pl.Series:
    """Return the names of clips as a series; refuse two of one name, or another number of them."""
    if not isinstance(clip_ids, pl.Series):
        clip_ids = pl.Series([str(clip_id) for clip_id in clip_ids], dtype=pl.String)
    series = clip_ids.cast(pl.String).alias("clip_id")
    _check_identifiers(series, n_expected, "clip")
    return series


def class_tuple(class_ids: Iterable[object], n_expected: int | None = None) -> tuple[str, ...]:
    """Return the names of classes; refuse two of one name, or another number of them."""
    series = pl.Series([str(class_id) for class_id in class_ids], dtype=pl.String)
    _check_identifiers(series, n_expected, "class")
    return tuple(series.to_list())


def _check_identifiers(series: pl.Series, n_expected: int | None, what: str) -> None:
    if n_expected is not None and len(series) != n_expected:
        raise EarmarkError(f"{len(series)} {what} identifiers given for {n_expected} labels' rows")
    if not are_distinct(series):
        twice = series.filter(series.is_duplicated())[0]
        raise EarmarkError(f"{what} {twice!r} is listed twice")
