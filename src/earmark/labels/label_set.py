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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.errors import EarmarkError, reader
from earmark.labels.label_rows import (
    ROW_SCHEMA,
    checked_table,
    class_tuple,
    clip_series,
    is_first_said,
    place_rows,
    wrong_rows,
)
from earmark.labels.label_tables import LabelTable, form_labels
from earmark.storage import LINE, SourceTable, as_array, read_source, write_table

PRESENT, NOT_PRESENT, IMPLICIT = 1, -1, 0
"""The three states of a label."""

_CLIPS_AT_ONCE = 1 << 14


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
        is_odd = ~np.isin(dense, (PRESENT, NOT_PRESENT, IMPLICIT))
        if is_odd.any():
            row, column = np.argwhere(is_odd)[0]
            raise EarmarkError(
                f"states must be +1, -1 or 0, got {dense[row, column]!r} at clip {row}, class "
                f"{column}; scores or probabilities given in place of labels?"
            )
        n_clips, n_classes = dense.shape
        rows, columns = np.nonzero(dense)
        return cls.from_sorted(
            clip_series(range(n_clips) if clip_ids is None else clip_ids, n_clips),
            class_tuple(range(n_classes) if class_ids is None else class_ids, n_classes),
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
        table = checked_table(table)
        clips = table.rows["clip_id"].unique(maintain_order=True) if clip_ids is None else clip_ids
        classes = (
            table.rows["class_id"].unique(maintain_order=True) if class_ids is None else class_ids
        )
        clip_names, class_names = clip_series(clips), class_tuple(classes)
        placed = place_rows(table, clip_names, class_names)
        return cls._from_placed(table, placed, clip_names, class_names)

    @classmethod
    def from_formed(cls, formed: LabelTable) -> LabelSet:
        """Build from a table in the long form, by the numbers that it has of clips and classes."""
        table, numbers = formed.long, formed.numbers
        if numbers is None:
            return cls.from_table(table, formed.clip_ids, formed.class_ids)
        placed = table.rows.rename({LINE: "line"}).hstack(numbers)
        return cls._from_placed(table, placed, formed.clip_ids, formed.class_ids)

    @classmethod
    def _from_placed(
        cls, table: SourceTable, placed: pl.DataFrame, clips: pl.Series, classes: tuple[str, ...]
    ) -> LabelSet:
        labels = cls._from_answers(placed, clips, classes)
        if labels is not None:
            return labels
        for finding in wrong_rows(placed, classes, table.unit):
            if finding.is_error:
                raise EarmarkError(
                    f"{table.path}, {finding.message}; "
                    f"`earmark check` lists every such {table.unit}"
                )
        placed = placed.drop_nulls("present")
        labels = cls._from_answers(placed.filter(is_first_said(placed)), clips, classes)
        assert labels is not None
        return labels

    @classmethod
    def _from_answers(
        cls, placed: pl.DataFrame, clips: pl.Series, classes: tuple[str, ...]
    ) -> LabelSet | None:
        """Build from placed rows; None where one is unknown, or comes again."""
        said = placed.select("clip", "class", "present")
        if said["clip"].null_count() or said["class"].null_count():
            return None
        said = said.drop_nulls() if said["present"].null_count() else said
        rows, columns, present = in_order(len(classes), *(each.to_numpy() for each in said))
        if ((rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])).any():
            return None
        return cls.from_sorted(clips.alias("clip_id"), classes, rows, columns, present)

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
    def from_sorted(
        cls,
        clip_ids: pl.Series,
        class_ids: tuple[str, ...],
        rows: NDArray[np.integer],
        columns: NDArray[np.integer],
        present: NDArray[np.bool_],
    ) -> LabelSet:
        """Build from the numbers of clips and classes, sorted by both; :func:`in_order` sorts."""
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


def in_order(
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
