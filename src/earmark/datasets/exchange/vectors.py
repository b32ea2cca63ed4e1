"""Labels as vectors: one list of 0 and 1 (or -1) for each clip, a place for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from earmark.datasets.exchange.packed_rows import PackedTable
from earmark.errors import EarmarkError
from earmark.labels import Reading, guess_columns

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
