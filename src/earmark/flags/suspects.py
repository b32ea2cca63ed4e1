"""Flagged labels: as numbers, twelve bytes each, and as the table that people read.

A policy may flag a share of all labels, which are many: millions of rows of names would take
gigabytes. So flags travel as :class:`Suspects`, and :class:`FlagTable` makes rows of them, a block
at a time for those who write them, or all at once for those who ask for the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import short_repr
from earmark.labels import LabelSet, Ontology

FLAG_SCHEMA = {
    "clip_id": pl.String,
    "class_id": pl.String,
    "logit": pl.Float32,
    "rank": pl.Int32,
    "chance": pl.Float32,
}

FLAGS_AT_ONCE = 1 << 16
"""Rows of a table that are made at a time."""

UNKNOWN = np.float32(np.nan)
"""The chance of a label of which nobody knows it."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Suspects:
    """Labels that were flagged, by class and in each class by rank.

    ``rows`` uint32, ``logits`` and ``chances`` float32 [flag]: the clip of each, its score and how
    likely it is, NaN where unknown. The flags of a class lie between two neighbours of ``starts``
    int64 [class + 1].
    """

    labels: LabelSet
    starts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    logits: Floats
    chances: Floats

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_each(self) -> NDArray[np.int64]:
        """Number of flags [class]."""
        return np.diff(self.starts)

    @property
    def lowest(self) -> pl.Series:
        """The lowest score that was flagged [class], null without any."""
        has_any = self.n_each > 0
        found = np.full(len(has_any), UNKNOWN)
        if has_any.any():
            found[has_any] = np.fmin.reduceat(self.logits, self.starts[:-1][has_any])
        return pl.Series(found).fill_nan(None)

    def columns(self, places: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the classes of some flags, which are given by their places."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def where(self, is_kept: NDArray[np.bool_]) -> Suspects:
        """Return some of them."""
        starts = np.append(0, np.cumsum(is_kept))[self.starts]
        rows, logits, chances = self.rows[is_kept], self.logits[is_kept], self.chances[is_kept]
        return Suspects(self.labels, starts, rows, logits, chances)

    def table(
        self, places: NDArray[np.integer] | None = None, names: pl.Series | None = None
    ) -> pl.DataFrame:
        """Return clip_id, class_id, logit, rank and chance of some flags, or of all of them.

        ``names`` [class], where they are given, stand after the classes' identifiers.
        """
        places = np.arange(len(self)) if places is None else places
        columns = self.columns(places)
        class_ids = pl.Series(self.labels.class_ids, dtype=pl.String)
        table = pl.DataFrame(
            {
                "clip_id": self.labels.clip_ids.gather(self.rows[places]),
                "class_id": class_ids.gather(columns),
                "logit": self.logits[places],
                "rank": places - self.starts[columns] + 1,
                "chance": pl.Series(self.chances[places]).fill_nan(None),
            },
            schema=FLAG_SCHEMA,
        )
        return table if names is None else table.insert_column(2, names.gather(columns))

    def first_of_each(self, n_most: int) -> NDArray[np.int64]:
        """Return the places of the likeliest of each class; of those as likely, the first."""
        falling = np.nan_to_num(-self.chances, nan=np.inf)
        edges = zip(self.starts[:-1], self.starts[1:], strict=True)
        parts = (np.arange(start, stop) for start, stop in edges)
        lowest = (lowest_places(own, falling[own], n_most) for own in parts)
        return np.concatenate([np.empty(0, np.int64), *lowest])

    def likeliest_first(self) -> NDArray[np.uint32]:
        """Return their places by chance, those without one last; equal ones by class and rank."""
        bits = self.chances.view(np.uint32)  # which order as the chances do, from 0 on
        falling = np.where(np.isnan(self.chances), np.uint32(0xFFFFFFFF), 0x7FFFFFFF - bits)
        return sort_with_places(falling).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class FlagTable:
    """A table of flags, the likeliest first, whose rows are made when they are asked for.

    ``n_expected`` is the sum of the chances, None where not one is known; ``rows`` makes the rows
    from one number to another, and ``first_of_each`` so many rows of each class, by chance and
    then by rank.
    """

    n_flags: int
    n_expected: float | None
    rows: Callable[[int, int], pl.DataFrame]
    first_of_each: Callable[[int], pl.DataFrame]

    __repr__ = short_repr

    @classmethod
    def of(cls, table: pl.DataFrame) -> FlagTable:
        """Take a table that is there."""
        return cls(
            len(table),
            _sum_of(table["chance"]),
            partial(_rows_of, table),
            partial(_first_of_each, table),
        )

    @classmethod
    def named(cls, suspects: Suspects, ontology: Ontology) -> FlagTable:
        """Order flags and name their classes: clip_id, class_id, name, logit, rank, chance.

        Chances are rounded to four digits; the order goes by them as they were.
        """
        order = suspects.likeliest_first()
        chances = pl.Series(suspects.chances).round(4)
        rounded = replace(suspects, chances=chances.to_numpy())
        names = pl.Series("name", map(ontology.name, suspects.labels.class_ids), pl.String)
        return cls(
            len(suspects),
            _sum_of(chances),
            partial(_ordered_rows, rounded, order, names),
            partial(_named_first_of_each, rounded, names),
        )

    @cached_property
    def table(self) -> pl.DataFrame:
        """All rows, which takes over a hundred bytes each."""
        return self.rows(0, self.n_flags)

    def blocks(self) -> Iterator[pl.DataFrame]:
        """Yield the rows, some at a time; where there are none, a table without rows."""
        for start in range(0, max(self.n_flags, 1), FLAGS_AT_ONCE):
            yield self.rows(start, min(start + FLAGS_AT_ONCE, self.n_flags))


def sort_with_places(values: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return numbers in order, each in the upper half of a key; the lower half is its place.

    Equal ones stay in their order. One array of eight bytes each is sorted where it lies.

    >>> keys = sort_with_places(np.array([7, 5, 7], np.uint32))
    >>> (keys >> 32).tolist(), keys.astype(np.uint32).tolist()
    ([5, 7, 7], [1, 0, 2])
    """
    keys = values.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(len(values), dtype=np.uint32)
    keys.sort()
    return keys


def lowest_places(places: NDArray[np.int64], values: Floats, n_most: int) -> NDArray[np.int64]:
    """Return the places of the lowest values, from the lowest on; of equal ones the first."""
    if 0 < n_most < len(places):
        is_low = values <= np.partition(values, n_most - 1)[n_most - 1]
        places, values = places[is_low], values[is_low]
    return places[np.argsort(values, kind="stable")[:n_most]]


def are_among(values: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which numbers, from 0 on, are among others, which ascend."""
    places = np.searchsorted(ascending, values)
    return np.asarray(np.append(ascending, -1)[places] == values)


def _rows_of(table: pl.DataFrame, start: int, stop: int) -> pl.DataFrame:
    return table.slice(start, stop - start)


def _ordered_rows(
    suspects: Suspects, order: NDArray[np.uint32], names: pl.Series, start: int, stop: int
) -> pl.DataFrame:
    return suspects.table(order[start:stop].astype(np.int64), names)


def _named_first_of_each(suspects: Suspects, names: pl.Series, n_most: int) -> pl.DataFrame:
    return suspects.table(suspects.first_of_each(n_most), names)


def _first_of_each(flags: pl.DataFrame, n_most: int) -> pl.DataFrame:
    ordered = flags.sort(
        "chance", "rank", descending=[True, False], nulls_last=True, maintain_order=True
    )
    return ordered.filter(pl.int_range(pl.len()).over("class_id") < n_most)


def _sum_of(chances: pl.Series) -> float | None:
    known = chances.fill_nan(None).drop_nulls()
    return None if known.is_empty() else float(known.sum())
