"""Names as numbers: which are the same, and which row of a list each one is.

Millions of names are compared by their keys, hashes of 64 bits. Different keys are different names;
names of one key are compared as they are, and where two differ the plain way is taken. So results
are exact, and the same by either way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.labels.loops import find_keys, number_keys
from earmark.runs import has_twins, key_names


@dataclass(frozen=True)
class NumberedNames:
    """Rows of names: ``names`` are the different ones, as they come, ``numbers`` [row] theirs."""

    names: pl.Series
    numbers: NDArray[np.uint32]


def number_names(rows: pl.Series) -> NumberedNames:
    """Number the names of rows as they come; null counts as a name.

    >>> number_names(pl.Series(["b", "a", "b"])).numbers
    array([0, 1, 0], dtype=uint32)
    """
    rows = rows.rechunk()  # or picking among them would be slow
    keys = key_names(rows)
    numbers, firsts = np.empty(len(rows), np.uint32), np.empty(len(rows), np.uint32)
    n_names = number_keys(keys, numbers.view(np.int32), firsts.view(np.int32), np.empty_like(keys))
    names = rows.gather(firsts[:n_names])
    is_sure = names.gather(numbers).equals(rows)
    return NumberedNames(names, numbers) if is_sure else _number_plainly(rows)


def _number_plainly(rows: pl.Series) -> NumberedNames:
    names = rows.unique(maintain_order=True)
    numbers = _join(rows, names, nulls_equal=True)
    return NumberedNames(names, numbers.to_numpy())


def rows_of(clip_ids: pl.Series, among: pl.Series) -> pl.Series:
    """Return the row of each clip among others; null where it is not one of them.

    >>> rows_of(pl.Series(["b", "x"]), pl.Series(["a", "b"])).to_list()
    [1, None]
    """
    if clip_ids.dtype != among.dtype or clip_ids.null_count() or among.null_count():
        return _join(clip_ids, among)
    among_keys = key_names(among)
    if has_twins(among_keys):
        return _join(clip_ids, among)
    places = np.empty(len(clip_ids), np.int32)
    find_keys(key_names(clip_ids), among_keys, places)
    is_there = places >= 0
    found = clip_ids if is_there.all() else clip_ids.filter(is_there)
    if not among.rechunk().gather(places[is_there]).equals(found):
        return _join(clip_ids, among)
    rows = pl.DataFrame({"row": places, "is_there": is_there})
    return rows.select(pl.when("is_there").then("row").cast(pl.UInt32)).to_series()


def _join(names: pl.Series, among: pl.Series, *, nulls_equal: bool = False) -> pl.Series:
    """Return the row of each name among others; null is one where ``nulls_equal``."""
    places = among.to_frame("name").with_row_index("row")
    found = names.to_frame("name").join(
        places, on="name", how="left", nulls_equal=nulls_equal, maintain_order="left"
    )
    return found["row"]
