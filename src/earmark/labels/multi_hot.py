"""Multi-hot tables: a column for each class, with 1, 0 or -1 in its cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from earmark.errors import EarmarkError
from earmark.labels.lint import presence, state_words
from earmark.runs import LINE, PRESENCE, SourceTable

_ZEROS = ("0", "0.0", "false", "no", "n")


@dataclass(frozen=True)
class MultiHot:
    """Explicit labels of a multi-hot table, in the long form, and its classes in their order."""

    rows: pl.DataFrame
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def multi_hot_rows(
    table: SourceTable, clips: pl.Series, taken: Sequence[str], *, has_unknown: bool
) -> MultiHot:
    """Read every column that mostly holds states, those ``taken`` for something else left out.

    ``clips`` names the clip of each row. With ``has_unknown`` a 0 says nothing; else it is absent.
    """
    unknown = frozenset(_ZEROS if has_unknown else ())
    meanings = {text: None if text in unknown else said for text, said in PRESENCE.items()}
    others = [
        name
        for name in table.columns
        if name not in taken and not table.rows[name].dtype.is_nested()
    ]
    # Most of a class's column are states; a few that are not are mistakes, and told.
    classes = [name for name in others if _is_mostly(table.rows[name], meanings)]
    if not classes:
        raise EarmarkError(
            f"{table.path}: no column of classes (class_id, label, labels, ...) and no column of 0 "
            f"and 1 among {', '.join(table.columns)}; is the header line missing? Otherwise say "
            "which column holds the classes (--column class_id=NAME)"
        )
    notes = [f"{len(classes):,} columns of classes, from {classes[0]!r} to {classes[-1]!r}"]
    if has_unknown and _has_zeros(table, classes):
        notes.append("0 is taken as implicit (nobody was asked), -1 as an explicit negative")
    passed_over = [name for name in others if name not in classes]
    if passed_over:
        notes.append(f"columns passed over: {', '.join(passed_over)}")
    return MultiHot(_unpivoted(table, clips, classes, meanings), tuple(classes), tuple(notes))


def _unpivoted(
    table: SourceTable,
    clips: pl.Series,
    classes: Sequence[str],
    meanings: Mapping[str, bool | None],
) -> pl.DataFrame:
    """Return the explicit labels of a multi-hot table, one column at a time: most are implicit."""
    rows, columns, present = [], [], []
    for column, name in enumerate(classes):
        said = presence(table, name, meanings)
        chosen = np.flatnonzero(said.is_not_null().to_numpy())
        rows.append(chosen)
        columns.append(np.full(len(chosen), column))
        present.append(said.drop_nulls().to_numpy())
    order = np.argsort(np.concatenate(rows), kind="stable")
    places = np.concatenate(rows)[order]
    return pl.DataFrame(
        {
            LINE: table.rows[LINE].gather(places),
            "clip_id": clips.gather(places),
            "class_id": pl.Series(classes, dtype=pl.String).gather(np.concatenate(columns)[order]),
            "present": np.concatenate(present)[order],
        }
    )


def _is_mostly(cells: pl.Series, meanings: Iterable[str]) -> bool:
    """Tell whether more than half of a column's cells that are not empty are states."""
    counts = state_words(cells).drop_nulls().value_counts()
    is_state = counts.to_series(0).is_in(list(meanings))
    return 2 * int(counts["count"].filter(is_state).sum()) > int(counts["count"].sum())


def _has_zeros(table: SourceTable, classes: Iterable[str]) -> bool:
    return any(state_words(table.rows[name].unique()).is_in(_ZEROS).any() for name in classes)
