"""Labels in three states, kept sparse.

A person was asked whether a class is present in a clip: the label is *explicit*, +1 (present) or
-1 (not present). Nobody was asked: it is *implicit*, 0, and ordinary training takes it for a
negative. Only explicit labels are stored; everything else is implicit, so 2.5 million clips x 527
classes fit in the memory of a laptop.

On disk a label set is a table with the columns ``clip_id, class_id, present`` (Parquet or CSV).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.errors import EarmarkError, nearest
from earmark.runs.artefacts import read_table, write_table

PRESENT, NOT_PRESENT, IMPLICIT = 1, -1, 0
"""The three states of a label."""

ROW_SCHEMA = {"clip_id": pl.String, "class_id": pl.String, "present": pl.Boolean}

_YES = ("true", "1", "1.0", "+1", "present", "yes")
_NO = ("false", "0", "0.0", "-1", "-1.0", "not_present", "not present", "absent", "no")


@dataclass(frozen=True, eq=False)
class LabelSet:
    """The explicit labels of some clips, sorted by clip and class; all others are implicit.

    ``starts[i]:starts[i + 1]`` are the places of clip i's labels in ``columns`` (the class) and
    ``present``. Build one with :meth:`from_dense`, :meth:`from_rows` or :meth:`read`.
    """

    clip_ids: pl.Series
    class_ids: tuple[str, ...]
    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    present: NDArray[np.bool_]

    @classmethod
    def from_dense(
        cls,
        states: ArrayLike,
        clip_ids: Iterable[str] | None = None,
        class_ids: Iterable[str] | None = None,
    ) -> LabelSet:
        """Build from a matrix of states [clip, class] holding +1, -1 and 0.

        Clips and classes are named by their numbers where no identifiers are given.

        >>> LabelSet.from_dense([[1, 0], [0, -1]]).n_implicit
        array([1, 1])
        """
        dense = np.asarray(states)
        if dense.ndim != 2:
            raise EarmarkError(f"states must be a matrix [clip, class], got shape {dense.shape}")
        is_odd = ~np.isin(dense, (PRESENT, NOT_PRESENT, IMPLICIT))
        if is_odd.any():
            row, column = np.argwhere(is_odd)[0]
            raise EarmarkError(
                f"states must be +1, -1 or 0, got {dense[row, column]!r} at clip {row}, class "
                f"{column}; scores or probabilities given in place of labels?"
            )
        n_clips, n_classes = dense.shape
        rows, columns = np.nonzero(dense)
        return cls._from_sorted(
            _clip_series(range(n_clips) if clip_ids is None else clip_ids, n_clips),
            _class_tuple(range(n_classes) if class_ids is None else class_ids, n_classes),
            rows,
            columns,
            dense[rows, columns] == PRESENT,
        )

    @classmethod
    def from_rows(
        cls,
        rows: pl.DataFrame,
        clip_ids: Iterable[str] | None = None,
        class_ids: Iterable[str] | None = None,
        origin: str = "labels",
    ) -> LabelSet:
        """Build from rows clip_id, class_id, present.

        ``clip_ids`` and ``class_ids`` name all clips and classes, those without a row included;
        by default the ones that occur, in order of appearance. Rows that name others, or that
        contradict or repeat one another, are refused with their line (counted from 2, after the
        header); ``lint`` lists them all.
        """
        rows = checked_rows(rows, origin)
        clips = rows["clip_id"].unique(maintain_order=True) if clip_ids is None else clip_ids
        classes = rows["class_id"].unique(maintain_order=True) if class_ids is None else class_ids
        clip_series, class_tuple = _clip_series(clips), _class_tuple(classes)
        placed = _place(rows, clip_series, class_tuple)
        for finding in (*_unknown(placed, class_tuple), *_repeated(placed)):
            raise EarmarkError(f"{origin}, {finding.message}; `earmark lint` lists every such line")
        placed = placed.sort("clip", "class")
        return cls._from_sorted(
            clip_series,
            class_tuple,
            placed["clip"].to_numpy(),
            placed["class"].to_numpy(),
            placed["present"].to_numpy(),
        )

    @classmethod
    def read(
        cls,
        path: str | Path,
        clip_ids: Iterable[str] | None = None,
        class_ids: Iterable[str] | None = None,
    ) -> LabelSet:
        """Read explicit labels from a Parquet or CSV file (see :meth:`from_rows`)."""
        return cls.from_rows(read_table(path), clip_ids, class_ids, origin=str(path))

    @classmethod
    def _from_sorted(
        cls,
        clip_ids: pl.Series,
        class_ids: tuple[str, ...],
        rows: NDArray[np.integer],
        columns: NDArray[np.integer],
        present: NDArray[np.bool_],
    ) -> LabelSet:
        starts = np.zeros(len(clip_ids) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(clip_ids)), out=starts[1:])
        return cls(clip_ids, class_ids, starts, columns.astype(np.int32), present.copy())

    def write(self, path: str | Path) -> None:
        """Write the explicit labels as Parquet or CSV, by the name's ending."""
        write_table(path, self.rows())

    def rows(self) -> pl.DataFrame:
        """Return the explicit labels as a table clip_id, class_id, present."""
        classes = pl.Series(self.class_ids, dtype=pl.String)
        return pl.DataFrame(
            {
                "clip_id": self.clip_ids.gather(self.clip_rows),
                "class_id": classes.gather(self.columns),
                "present": self.present,
            },
            schema=ROW_SCHEMA,
        )

    def __len__(self) -> int:
        return len(self.clip_ids)

    @property
    def n_clips(self) -> int:
        """Number of clips, those without explicit labels included."""
        return len(self.clip_ids)

    @property
    def n_classes(self) -> int:
        """Number of classes, those without explicit labels included."""
        return len(self.class_ids)

    @cached_property
    def clip_rows(self) -> NDArray[np.int64]:
        """The clip (row) of each explicit label, parallel to ``columns`` and ``present``."""
        return np.repeat(np.arange(self.n_clips), np.diff(self.starts))

    @cached_property
    def n_positives(self) -> NDArray[np.int64]:
        """Explicit positives of each class."""
        return np.bincount(self.columns[self.present], minlength=self.n_classes)

    @cached_property
    def n_negatives(self) -> NDArray[np.int64]:
        """Explicit negatives of each class."""
        return np.bincount(self.columns[~self.present], minlength=self.n_classes)

    @property
    def n_implicit(self) -> NDArray[np.int64]:
        """Implicit labels of each class."""
        return self.n_clips - self.n_positives - self.n_negatives

    @property
    def priors(self) -> NDArray[np.float64]:
        """Share of clips in which each class is an explicit positive."""
        return self.n_positives / max(self.n_clips, 1)

    def states(self, rows: ArrayLike | slice = slice(None)) -> NDArray[np.int8]:
        """Return the states [len(rows), class] of some clips: +1, -1, 0."""
        chosen = self._chosen(rows)
        starts, lengths = self.starts[chosen], np.diff(self.starts)[chosen]
        out_rows = np.repeat(np.arange(len(chosen)), lengths)
        first = np.cumsum(lengths) - lengths
        places = np.arange(len(out_rows)) + np.repeat(starts - first, lengths)
        states = np.zeros((len(chosen), self.n_classes), np.int8)
        states[out_rows, self.columns[places]] = np.where(
            self.present[places], PRESENT, NOT_PRESENT
        )
        return states

    def _chosen(self, rows: ArrayLike | slice) -> NDArray[np.int64]:
        """Return the numbers of clips named by numbers, a mask or a slice."""
        places = rows if isinstance(rows, slice) else np.asarray(rows)
        return np.arange(self.n_clips)[places]

    def select(self, rows: ArrayLike | slice) -> LabelSet:
        """Return the label set of some clips, in the given order."""
        chosen = self._chosen(rows)
        lengths = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], lengths)
        return LabelSet(
            self.clip_ids.gather(chosen),
            self.class_ids,
            starts,
            self.columns[places],
            self.present[places],
        )

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits identifying clips, classes and labels."""
        content = hashlib.sha256()
        for text in ("\0".join(self.clip_ids.to_list()), "\0".join(self.class_ids)):
            content.update(text.encode() + b"\1")
        for array in (self.starts, self.columns, self.present):
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()[:16]


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


def lint(
    rows: pl.DataFrame, clip_ids: Iterable[str], class_ids: Iterable[str], origin: str = "labels"
) -> list[Finding]:
    """List what is wrong with label rows; lines count from 2, after a CSV's header.

    Finds unknown clips and classes, repeated and contradictory rows, classes without positives,
    and a label set without a single explicit negative.
    """
    rows = checked_rows(rows, origin)
    clips, classes = _clip_series(clip_ids), _class_tuple(class_ids)
    placed = _place(rows, clips, classes)
    findings = [*_unknown(placed, classes), *_repeated(placed)]
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


def checked_rows(rows: pl.DataFrame, origin: str) -> pl.DataFrame:
    """Return the columns clip_id, class_id and present with their types.

    Names the column that is missing, or the line of a value that is empty or malformed.
    """
    for column in ROW_SCHEMA:
        if column not in rows.columns:
            hint = nearest(column, rows.columns)
            raise EarmarkError(f"{origin}: there is no column {column!r}{hint}")
    rows = rows.select("clip_id", "class_id", "present")
    for column in ROW_SCHEMA:
        if rows[column].null_count():
            line = int(rows[column].is_null().arg_max() or 0) + 2
            raise EarmarkError(f"{origin}, line {line}: {column} is empty")
    if rows["present"].dtype != pl.Boolean:
        rows = rows.with_columns(_as_boolean(rows["present"], origin))
    return rows.cast({"clip_id": pl.String, "class_id": pl.String})


def _as_boolean(present: pl.Series, origin: str) -> pl.Series:
    text = present.cast(pl.String).str.strip_chars().str.to_lowercase()
    is_yes, is_no = text.is_in(_YES), text.is_in(_NO)
    is_odd = ~(is_yes | is_no)
    if is_odd.any():
        line = int(is_odd.arg_max() or 0)
        raise EarmarkError(
            f"{origin}, line {line + 2}: present must be true or false (also 1/-1, 1/0, "
            f"present/not_present), got {present[line]!r}"
        )
    return is_yes.alias("present")


def _place(rows: pl.DataFrame, clips: pl.Series, classes: Sequence[str]) -> pl.DataFrame:
    """Add ``line`` and the numbers of clip and class, null where unknown."""
    clip_table = pl.DataFrame({"clip_id": clips}).with_row_index("clip")
    class_table = pl.DataFrame({"class_id": list(classes)}, schema={"class_id": pl.String})
    class_table = class_table.with_row_index("class")
    placed = rows.with_row_index("line", offset=2)
    placed = placed.join(clip_table, on="clip_id", how="left", maintain_order="left")
    return placed.join(class_table, on="class_id", how="left", maintain_order="left")


def _unknown(placed: pl.DataFrame, classes: Sequence[str]) -> list[Finding]:
    findings = []
    for row in placed.filter(pl.col("clip").is_null()).iter_rows(named=True):
        message = f"line {row['line']}: clip {row['clip_id']!r} is not in the list of clips"
        findings.append(Finding("unknown clip", row["line"], message))
    for row in placed.filter(pl.col("class").is_null()).iter_rows(named=True):
        hint = nearest(row["class_id"], classes) if len(classes) < 10_000 else ""
        message = f"line {row['line']}: there is no class {row['class_id']!r}{hint}"
        findings.append(Finding("unknown class", row["line"], message))
    return findings


def _repeated(placed: pl.DataFrame) -> list[Finding]:
    """Name every second mention of a clip and class: a duplicate, or a contradiction."""
    keys = ["clip_id", "class_id"]
    repeats = placed.filter(~pl.struct(keys).is_first_distinct())
    if repeats.is_empty():
        return []
    firsts = placed.unique(keys, keep="first").select(
        *keys, first_line="line", first_present="present"
    )
    findings = []
    for row in repeats.join(firsts, on=keys, maintain_order="left").iter_rows(named=True):
        what = f"clip {row['clip_id']!r}, class {row['class_id']!r}"
        if row["present"] == row["first_present"]:
            message = f"line {row['line']}: repeats line {row['first_line']} ({what})"
            findings.append(Finding("duplicate row", row["line"], message))
        else:
            message = f"line {row['line']}: contradicts line {row['first_line']} ({what})"
            findings.append(Finding("contradictory rows", row["line"], message))
    return findings


def _clip_series(clip_ids: Iterable[object], n_expected: int | None = None) -> pl.Series:
    if not isinstance(clip_ids, pl.Series):
        clip_ids = pl.Series([str(clip_id) for clip_id in clip_ids], dtype=pl.String)
    series = clip_ids.cast(pl.String).alias("clip_id")
    _check_identifiers(series, n_expected, "clip")
    return series


def _class_tuple(class_ids: Iterable[object], n_expected: int | None = None) -> tuple[str, ...]:
    series = pl.Series([str(class_id) for class_id in class_ids], dtype=pl.String)
    _check_identifiers(series, n_expected, "class")
    return tuple(series.to_list())


def _check_identifiers(series: pl.Series, n_expected: int | None, what: str) -> None:
    if n_expected is not None and len(series) != n_expected:
        raise EarmarkError(f"{len(series)} {what} identifiers given for {n_expected} labels' rows")
    if series.n_unique() < len(series):
        twice = series.filter(series.is_duplicated())[0]
        raise EarmarkError(f"{what} {twice!r} is listed twice")
