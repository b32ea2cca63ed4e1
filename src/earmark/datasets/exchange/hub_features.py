"""What the library ``datasets`` notes of columns: which hold sound, and the names of classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from earmark.errors import EarmarkError
from earmark.runs import SourceTable

METADATA_KEY = "huggingface"
"""Where a Parquet or Arrow file keeps the features of its columns."""

_LISTS = ("List", "LargeList", "Sequence")
_NO_CLASS = -1
"""What ClassLabel has where nobody knows the class, as in hidden test sets."""


@dataclass(frozen=True)
class HubFeatures:
    """Columns of sound, and for columns of class numbers the names, in the numbers' order."""

    audio: tuple[str, ...] = ()
    class_names: Mapping[str, tuple[str, ...]] | None = None

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the classes, by column; empty where no column has any."""
        return self.class_names or {}


def features_of(described: object) -> HubFeatures:
    """Read what ``datasets`` wrote about columns; of anything else nothing is known."""
    if not isinstance(described, dict):
        return HubFeatures()
    of_sound = [name for name, each in described.items() if _kind(each) == "Audio"]
    named = {name: _class_names(each) for name, each in described.items()}
    return HubFeatures(tuple(of_sound), {name: own for name, own in named.items() if own})


def features_in_metadata(text: str | bytes | None) -> HubFeatures:
    """Read the features from the metadata of a Parquet or Arrow file."""
    try:
        return features_of(json.loads(text or "null")["info"]["features"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return HubFeatures()


def with_class_names(table: SourceTable, names: Mapping[str, Sequence[str]]) -> SourceTable:
    """Put names in the place of class numbers; -1 stands for a class that nobody knows."""
    for column, own in names.items():
        if column in table.columns:
            table = _named(table, column, own)
    return table


def _named(table: SourceTable, column: str, names: Sequence[str]) -> SourceTable:
    cells = table.rows[column]
    number = cells.dtype.inner if isinstance(cells.dtype, pl.List) else cells.dtype
    if number is None or not number.is_integer():
        return table  # names already
    every = cells.explode() if isinstance(cells.dtype, pl.List) else cells
    odd = every.filter((every < _NO_CLASS) | (every >= len(names))).drop_nulls()
    if len(odd):
        has = pl.col(column).list.contains(odd[0]) if cells.dtype == pl.List else None
        is_odd = table.rows.select(pl.col(column) == odd[0] if has is None else has).to_series()
        raise EarmarkError(
            f"{table.at_first(is_odd)}, column {column!r}: class {odd[0]}, but only "
            f"{len(names):,} classes have names (0 to {len(names) - 1})"
        )
    numbers = pl.Series([*range(len(names))], dtype=number)
    texts = pl.Series(list(names), dtype=pl.String)
    if isinstance(cells.dtype, pl.List):
        decoded = pl.element().replace_strict(numbers, texts, default=None, return_dtype=pl.String)
        named = pl.col(column).list.eval(decoded).list.drop_nulls()
    else:
        named = pl.col(column).replace_strict(numbers, texts, default=None, return_dtype=pl.String)
    return replace(table, rows=table.rows.with_columns(named))


def _kind(described: Any) -> str:
    return str(described.get("_type", "")) if isinstance(described, dict) else ""


def _class_names(described: Any) -> tuple[str, ...]:
    """Return the names of a ClassLabel, or of a list of them; none for any other column."""
    if isinstance(described, list) and len(described) == 1:
        return _class_names(described[0])
    if _kind(described) in _LISTS:
        return _class_names(described.get("feature"))
    names = described.get("names") if _kind(described) == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else ()
