"""What changed between two label sets, in words."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from earmark.errors import counted, first_few
from earmark.labels import KINDS, LabelChanges, LabelSet

_N_CLASSES_SHOWN = 5
_N_STATES_SHOWN = 5
_N_RATERS_SHOWN = 3
_NAME_WIDTH = 40


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


def class_lines(changes: LabelChanges, table: pl.DataFrame) -> list[str]:
    """Return the classes with most changes as lines of a small table."""
    names = dict(table.select("class_id", "name").unique().iter_rows())
    shown = changes.by_class.head(_N_CLASSES_SHOWN)
    if shown.is_empty():
        return []
    labelled = [names.get(row[0]) or row[0] for row in shown.rows()]
    width = min(max(map(len, [*labelled, "class"])), _NAME_WIDTH)
    lines = [f"{'class':{width}}" + "".join(f"{kind:>9}" for kind in KINDS)]
    for name, row in zip(labelled, shown.rows(), strict=True):
        short = name if len(name) <= width else name[: width - 1] + "…"
        lines.append(f"{short:{width}}" + "".join(f"{n:>9,}" for n in row[1:]))
    more = len(changes.by_class) - len(shown)
    return [*lines, *([f"and {counted(more, 'other class', 'other classes')}"] if more else [])]


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
