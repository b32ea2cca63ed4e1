"""Labels in three states, kept sparse.

A person was asked whether a class is present in a clip: the label is *explicit*, +1 (present) or
-1 (not present). Nobody was asked: it is *implicit*, 0, and ordinary training takes it for a
negative. Only explicit labels are stored; everything else is implicit, so 2.5 million clips x 527
classes fit in the memory of a laptop.

On disk a label set is a table with the columns ``clip_id, class_id, present`` (Parquet or CSV). An
answer that is unsure says nothing: the label stays implicit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.errors import EarmarkError, nearest, reader
from earmark.labels.label_tables import form_labels, presence
from earmark.storage import LINE, SourceTable, are_distinct, as_array, read_source, write_table

PRESENT, NOT_PRESENT, IMPLICIT = 1, -1, 0
"""The three states of a label."""

ROW_SCHEMA = {"clip_id": pl.String, "class_id": pl.String, "present": pl.Boolean}

_CLIPS_AT_ONCE, _LABELS_AT_ONCE = 1 << 14, 1 << 24


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
    def of(cls, labels: LabelSet | ArrayLike) -> LabelSet:
        """Return a label set as it is, or make one of a matrix of states [clip, class]."""
        return labels if isinstance(labels, LabelSet) else cls.from_dense(labels)

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
        dense = as_array(states)
        if dense.ndim != 2:
            raise EarmarkError(f"states must be a matrix [clip, class], got shape {dense.shape}")
        step = block_rows(dense.shape)
        blocks = (dense[start : start + step] for start in range(0, len(dense), step))
        return cls.from_blocks(blocks, dense.shape, clip_ids, class_ids)

    @classmethod
    def from_blocks(
        cls,
        blocks: Iterable[NDArray[Any]],
        shape: Sequence[int],
        clip_ids: Iterable[str] | None = None,
        class_ids: Iterable[str] | None = None,
    ) -> LabelSet:
        """Build as :meth:`from_dense` does from some rows of the matrix after others."""
        rows, columns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        present = [np.empty(0, np.bool_)]
        start = 0
        for block in blocks:
            if block.dtype.kind not in "biuf":
                raise EarmarkError(f"states must be numbers, got {block.dtype}")
            is_odd = (block != PRESENT) & (block != NOT_PRESENT) & (block != IMPLICIT)
            if is_odd.any():
                row, column = np.argwhere(is_odd)[0]
                raise EarmarkError(
                    f"states must be +1, -1 or 0, got {block[row, column]} at clip "
                    f"{start + row}, class {column}; scores or probabilities given in place of "
                    "labels?"
                )
            explicit = np.nonzero(block)
            rows.append(explicit[0] + start)
            columns.append(explicit[1])
            present.append(block[explicit] == PRESENT)
            start += len(block)
        n_clips, n_classes = shape
        return cls.from_numbers(
            _clip_series(range(n_clips) if clip_ids is None else clip_ids, n_clips),
            _class_tuple(range(n_classes) if class_ids is None else class_ids, n_classes),
            np.concatenate(rows),
            np.concatenate(columns),
            np.concatenate(present),
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
        by default the ones that occur, in order of appearance. What is said twice counts once.
        Rows that name others, or that contradict one another, are refused with their line (counted
        from 2, after the header); ``lint`` lists them all.
        """
        return cls.from_table(SourceTable.of(rows, origin), clip_ids, class_ids)

    @classmethod
    def from_table(
        cls,
        table: SourceTable,
        clip_ids: Iterable[str] | None = None,
        class_ids: Iterable[str] | None = None,
    ) -> LabelSet:
        """Build from a table of such rows that was read from a file (see :meth:`from_rows`)."""
        table = _checked_table(table)
        if clip_ids is None:
            clip_ids = table.rows["clip_id"].unique(maintain_order=True)
        if class_ids is None:
            class_ids = table.rows["class_id"].unique(maintain_order=True)
        clips, classes = _clip_series(clip_ids), _class_tuple(class_ids)
        rows = _number_rows(table, clips, classes)
        firsts = _first_answers(rows)
        n_unknown = rows["clip"].null_count() + rows["class"].null_count()
        if n_unknown or len(firsts) < rows["present"].count():
            for finding in _wrong_rows(rows, classes, table.unit):
                if finding.is_error:
                    raise EarmarkError(
                        f"{table.path}, {finding.message}; "
                        f"`earmark check` lists every such {table.unit}"
                    )
        numbers = (firsts[name].to_numpy() for name in ("clip", "class", "present"))
        return cls.from_numbers(clips, classes, *numbers)

    @classmethod
    @reader("labels", at=1)
    def read(
        cls,
        path: str | Path,
        clip_ids: Iterable[str] | None = None,
        class_ids: Iterable[str] | None = None,
    ) -> LabelSet:
        """Read explicit labels from a Parquet, CSV or TSV table, in any form.

        Without ``clip_ids`` the clips come in the order of the table, which need not be that of
        the scores; see :meth:`from_rows` for the rest.
        """
        table = read_source(path)
        if set(table.columns) == set(ROW_SCHEMA):  # our own form, be it empty
            return cls.from_table(table, clip_ids, class_ids)
        formed = form_labels(table)
        clips = formed.clip_ids if clip_ids is None else clip_ids
        return cls.from_table(
            formed.long, clips, formed.class_ids if class_ids is None else class_ids
        )

    @classmethod
    def from_numbers(
        cls,
        clip_ids: pl.Series,
        class_ids: Sequence[str],
        rows: NDArray[np.integer],
        columns: NDArray[np.integer],
        present: NDArray[np.bool_],
    ) -> LabelSet:
        """Build from the clip and class numbers of the explicit labels, in any order."""
        rows, columns, present = _in_order(len(class_ids), rows, columns, present)
        starts = np.zeros(len(clip_ids) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(clip_ids)), out=starts[1:])
        names = clip_ids.alias("clip_id")
        return cls(names, tuple(class_ids), starts, columns.astype(np.int32), present.copy())

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

    def __repr__(self) -> str:
        n_present, n_labels = int(self.present.sum()), len(self.present)
        return (
            f"LabelSet({self.n_clips:,} clips, {self.n_classes:,} classes; explicit labels: "
            f"{n_present:,} present, {n_labels - n_present:,} not present)"
        )

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
    def clips_without_labels(self) -> pl.Series:
        """The clips of which no label is explicit."""
        return self.clip_ids.filter(np.diff(self.starts) == 0)

    @property
    def priors(self) -> NDArray[np.float64]:
        """Share of clips in which each class is an explicit positive."""
        return self.n_positives / max(self.n_clips, 1)

    def states(self, rows: ArrayLike | slice = slice(None)) -> NDArray[np.int8]:
        """Return the states [len(rows), class] of some clips: +1, -1, 0.

        ``rows`` are numbers of clips (a list, an array or a tensor), a mask of all clips, a slice,
        or one number, which gives one row [1, class]. The cost goes by the rows, not by all clips.

        >>> LabelSet.from_dense([[1, 0], [0, -1]]).states(1)
        array([[ 0, -1]], dtype=int8)
        """
        chosen = self._chosen(rows)
        starts, lengths = self.starts[chosen], self._lengths(chosen)
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
        if isinstance(rows, slice):
            return np.arange(*rows.indices(self.n_clips))
        places = np.atleast_1d(as_array(rows))
        if places.dtype == bool and places.shape == (self.n_clips,):
            return np.flatnonzero(places)
        if places.ndim != 1 or (places.dtype.kind not in "iu" and len(places)):
            raise EarmarkError(
                f"rows are numbers of clips, a mask of all {self.n_clips:,} clips or a slice, got "
                f"{places.dtype} of shape {places.shape}"
            )
        chosen = places.astype(np.int64)
        is_outside = (chosen < -self.n_clips) | (chosen >= self.n_clips)
        if is_outside.any():
            raise EarmarkError(
                f"there is no clip {chosen[is_outside][0]} among {self.n_clips:,}, counted from 0"
            )
        return np.where(chosen < 0, chosen + self.n_clips, chosen)

    def _lengths(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many explicit labels each of some clips has."""
        return np.asarray(self.starts[chosen + 1] - self.starts[chosen])

    def select(self, rows: ArrayLike | slice) -> LabelSet:
        """Return the label set of some clips, in the given order."""
        chosen = self._chosen(rows)
        lengths = self._lengths(chosen)
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
        for start in range(0, self.n_clips, _CLIPS_AT_ONCE):
            names = self.clip_ids.slice(start, _CLIPS_AT_ONCE).str.join("\0", ignore_nulls=False)
            content.update(b"\0" * (start > 0) + names.item().encode())
        content.update(b"\1" + "\0".join(self.class_ids).encode() + b"\1")
        for array in (self.starts, self.columns, self.present):
            content.update(np.ascontiguousarray(array).data)
        return content.hexdigest()[:16]


def _in_order(
    n_classes: int,
    rows: NDArray[np.integer],
    columns: NDArray[np.integer],
    present: NDArray[np.bool_],
) -> tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.bool_]]:
    """Sort labels by clip and class; what stands in order is returned as it is.

    Sorting one number for each label takes far less time than sorting places and picking.
    """
    n_bits = n_classes.bit_length()
    labels = rows.astype(np.int64)
    labels <<= n_bits
    labels |= columns
    if (labels[1:] > labels[:-1]).all():
        return rows, columns, present
    labels <<= 1
    labels |= present
    labels.sort()
    is_present = (labels & 1).astype(bool)
    labels >>= 1
    sorted_columns = (labels & ((1 << n_bits) - 1)).astype(np.int32)
    labels >>= n_bits
    return labels, sorted_columns, is_present


def block_rows(shape: Sequence[int]) -> int:
    """Return how many rows of a matrix are looked at together: of many classes, few."""
    return max(1, min(_CLIPS_AT_ONCE, _LABELS_AT_ONCE // max(math.prod(shape[1:]), 1)))


def rows_of(clip_ids: pl.Series, among: pl.Series) -> pl.Series:
    """Return the row of each clip among others; null where it is not one of them.

    >>> rows_of(pl.Series(["b", "x"]), pl.Series(["a", "b"])).to_list()
    [1, None]
    """
    rows = among.to_frame("name").with_row_index("row")
    return clip_ids.to_frame("name").join(rows, on="name", how="left", maintain_order="left")["row"]


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
    table = _checked_table(table)
    classes = _class_tuple(class_ids)
    rows = _number_rows(table, _clip_series(clip_ids), classes)
    findings = _wrong_rows(rows, classes, table.unit)
    with_positives = set(rows.filter(pl.col("present"))["class_id"].unique().to_list())
    findings += [
        Finding("class without positives", None, f"class {class_id!r} has no explicit positive")
        for class_id in classes
        if class_id not in with_positives
    ]
    if rows["present"].all():
        message = "no label is an explicit negative: every absent class counts as implicit"
        findings.append(Finding("no explicit negatives", None, message))
    return sorted(findings, key=lambda finding: (finding.line is None, finding.line or 0))


def _checked_table(table: SourceTable) -> SourceTable:
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


def _number_rows(table: SourceTable, clips: pl.Series, classes: Sequence[str]) -> pl.DataFrame:
    """Add to a checked table its rows' clip and class numbers; null where a name is unknown."""
    rows = table.rows
    class_list = pl.Series(list(classes), dtype=pl.String)
    return rows.rename({LINE: "line"}).with_columns(
        rows_of(rows["clip_id"], clips).alias("clip"),
        rows_of(rows["class_id"], class_list).alias("class"),
    )


def _first_answers(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first decided answer on each clip and class of numbered rows."""
    pair = pl.col("clip").cast(pl.UInt64) * 2**32 + pl.col("class")
    return rows.drop_nulls("present").filter(pair.is_first_distinct())


def _wrong_rows(rows: pl.DataFrame, classes: Sequence[str], unit: str) -> list[Finding]:
    """List the numbered rows that name unknown clips or classes, or repeat or contradict others."""
    findings = []
    for row in rows.filter(pl.col("clip").is_null()).iter_rows(named=True):
        message = f"{unit} {row['line']}: clip {row['clip_id']!r} is not in the list of clips"
        findings.append(Finding("unknown clip", row["line"], message))
    for row in rows.filter(pl.col("class").is_null()).iter_rows(named=True):
        hint = nearest(row["class_id"], classes) if len(classes) < 10_000 else ""
        message = f"{unit} {row['line']}: there is no class {row['class_id']!r}{hint}"
        findings.append(Finding("unknown class", row["line"], message))
    answers = rows.drop_nulls(["clip", "class", "present"])
    first = pl.col("line", "present").first().over("clip", "class").name.prefix("first_")
    again = answers.with_columns(first).filter(pl.col("line") != pl.col("first_line"))
    for row in again.iter_rows(named=True):
        what = f"{unit} {row['first_line']} (clip {row['clip_id']!r}, class {row['class_id']!r})"
        if row["present"] == row["first_present"]:
            message = f"{unit} {row['line']}: repeats {what}"
            findings.append(Finding("duplicate row", row["line"], message))
        else:
            message = f"{unit} {row['line']}: contradicts {what}"
            findings.append(Finding("contradictory rows", row["line"], message))
    return findings


def _clip_series(clip_ids: Iterable[object], n_expected: int | None = None) -> pl.Series:
    """Return the names of clips as a series; refuse two of one name, or another number of them."""
    if not isinstance(clip_ids, pl.Series):
        clip_ids = pl.Series([str(clip_id) for clip_id in clip_ids], dtype=pl.String)
    series = clip_ids.cast(pl.String).alias("clip_id")
    _check_identifiers(series, n_expected, "clip")
    return series


def _class_tuple(class_ids: Iterable[object], n_expected: int | None = None) -> tuple[str, ...]:
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
