"""What changed between two label sets, in words."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from earmark.errors import counted, first_few
from earmark.labels import KINDS, LabelChanges, LabelSet

_N_STATES_SHOWN = 5
_N_RATERS_SHOWN = 3


def labels_told(told: str, labels: LabelSet) -> str:
    """Say how large a label set is."""
    n_present = int(labels.present.sum())
    return (
        f"{told}: {counted(labels.n_clips, 'clip')}, "
        f"{counted(labels.n_classes, 'class', 'classes')}, {n_present:,} present, "
        f"{len(labels.present) - n_present:,} not present."
    )


def changes_told(changes: LabelChanges, table: pl.DataFrame) -> list[str]:
    """Say what was added, removed and changed, by whom and how likely, and what one side lacks.

    ``table`` has the changes with name, rater and chance, where these are known.
    """
    if changes.is_none:
        return ["No difference: the same labels of the same clips and classes."]
    n_classes = len(changes.by_class)
    counts = ", ".join(f"{changes.n_of(kind):,} {kind}" for kind in KINDS)
    head = f"{counts}, in {counted(n_classes, 'class', 'classes')}."
    lines = [_state_told(table, *row) for row in changes.by_states.head(_N_STATES_SHOWN).rows()]
    more = len(changes.by_states) - len(lines)
    lines += (
        [f"and {counted(more, 'other change of state', 'other changes of state')}"]
        if more > 0
        else []
    )
    only = (("A", changes.only_before), ("B", changes.only_after))
    return [head, *lines, *(told for side in only for told in _only_told(*side))]


def changed_classes(
    changes: LabelChanges, table: pl.DataFrame
) -> tuple[list[str], list[list[str]]]:
    """Return the headings and rows of a small table: every class and its changes, most first."""
    names = dict(table.select("class_id", "name").unique().iter_rows())
    rows = [
        [names.get(class_id) or class_id, *(f"{n:,}" for n in counts)]
        for class_id, *counts in changes.by_class.rows()
    ]
    return ["class", *KINDS], rows


def _state_told(table: pl.DataFrame, before: str | None, after: str | None, n: int) -> str:
    same = pl.col("before").eq_missing(pl.lit(before)) & pl.col("after").eq_missing(pl.lit(after))
    rows = table.filter(same)
    told = [f"{before or 'not there'} -> {after or 'not there'}: {n:,}", *_by_whom(rows)]
    chances = rows["chance"].drop_nulls()
    if len(chances):
        mean = float(chances.to_numpy().mean())
        told.append(f"{len(chances):,} flagged, chance {mean:.2f} on average")
    return "; ".join(told)


def _by_whom(rows: pl.DataFrame) -> Sequence[str]:
    raters = rows["rater"].drop_nulls().str.split(",").explode()
    if raters.is_empty():
        return []
    counts = raters.value_counts(sort=True).head(_N_RATERS_SHOWN)
    return [f"by ear, {', '.join(f'{rater!s} {n:,}' for rater, n in counts.iter_rows())}"]


def _only_told(side: str, only: tuple[pl.Series, pl.Series]) -> list[str]:
    clips, classes = only
    told = [
        f"{counted(len(names), noun, plural)} ({first_few(names)})"
        for names, noun, plural in ((clips, "clip", ""), (classes, "class", "classes"))
        if len(names)
    ]
    return [f"Only in {side}: {', '.join(told)}."] if told else []
