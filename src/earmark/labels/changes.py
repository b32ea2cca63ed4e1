"""What changed from one label set to another: added, removed and changed labels.

A label is *added* where it became explicit, *removed* where it is no longer, and *changed* where
its state is another. Beside present and not_present a set may have rulings of raters about implicit
labels, ``cleared`` and ``ignored``: these are states, too. A clip or class that only one side knows
has no state on the other; there its labels are added or removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from earmark.labels.label_set import LabelSet

KINDS = ("added", "removed", "changed")

_KEY = ["clip_id", "class_id"]
_EXPLICIT = ("present", "not_present")


@dataclass(frozen=True)
class LabelChanges:
    """Two label sets side by side.

    ``table``: clip_id, class_id, kind (added, removed, changed), before, after. A state is present,
    not_present, cleared, ignored or implicit; null where the clip or class is not on that side.
    """

    table: pl.DataFrame
    clips_before: pl.Series
    clips_after: pl.Series
    classes_before: pl.Series
    classes_after: pl.Series

    @property
    def is_none(self) -> bool:
        """Whether labels, clips and classes are all the same."""
        only = (*self.only_before, *self.only_after)
        return self.table.is_empty() and not any(map(len, only))

    @cached_property
    def only_before(self) -> tuple[pl.Series, pl.Series]:
        """The clips and the classes that only the first set knows."""
        return (
            _without(self.clips_before, self.clips_after),
            _without(self.classes_before, self.classes_after),
        )

    @cached_property
    def only_after(self) -> tuple[pl.Series, pl.Series]:
        """The clips and the classes that only the second set knows."""
        return (
            _without(self.clips_after, self.clips_before),
            _without(self.classes_after, self.classes_before),
        )

    def n_of(self, kind: str) -> int:
        """Return how many labels were added, removed or changed."""
        return int((self.table["kind"] == kind).sum())

    @cached_property
    def by_class(self) -> pl.DataFrame:
        """class_id, added, removed, changed: the classes with changes, those with most first."""
        counts = {kind: (pl.col("kind") == kind).sum().cast(pl.Int64) for kind in KINDS}
        table = self.table.group_by("class_id", maintain_order=True).agg(**counts)
        total = pl.sum_horizontal(KINDS)
        return table.sort(total, "class_id", descending=[True, False])

    @cached_property
    def by_states(self) -> pl.DataFrame:
        """before, after, n: how often each change of state came, the most frequent first."""
        table = self.table.group_by("before", "after").agg(n=pl.len().cast(pl.Int64))
        return table.sort("n", "before", "after", descending=[True, False, False], nulls_last=True)


def find_changes(
    before: LabelSet,
    after: LabelSet,
    rulings_before: LabelSet | None = None,
    rulings_after: LabelSet | None = None,
) -> LabelChanges:
    """Find what changed from one label set to another, whatever the order of clips and classes.

    In rulings +1 stands for an implicit label that is ignored, -1 for one that was cleared.

    >>> one, other = LabelSet.from_dense([[1, 0], [0, -1]]), LabelSet.from_dense([[1, 1], [0, 1]])
    >>> find_changes(one, other).by_states.rows()
    [('implicit', 'present', 1), ('not_present', 'present', 1)]
    """
    first, second = _states(before, rulings_before), _states(after, rulings_after)
    both = first.rename({"state": "before"}).join(
        second.rename({"state": "after"}), on=_KEY, how="full", coalesce=True
    )
    table = both.with_columns(_filled("before", before), _filled("after", after)).filter(
        pl.col("before").ne_missing(pl.col("after"))
    )
    was, now = (
        pl.col(name).is_in(_EXPLICIT).fill_null(value=False) for name in ("before", "after")
    )
    kind = (
        pl.when(now & ~was)
        .then(pl.lit("added"))
        .when(was & ~now)
        .then(pl.lit("removed"))
        .otherwise(pl.lit("changed"))
    )
    table = table.with_columns(kind=kind).select(*_KEY, "kind", "before", "after").sort(_KEY)
    return LabelChanges(
        table,
        before.clip_ids,
        after.clip_ids,
        pl.Series(before.class_ids, dtype=pl.String),
        pl.Series(after.class_ids, dtype=pl.String),
    )


def _states(labels: LabelSet, rulings: LabelSet | None) -> pl.DataFrame:
    """Return clip_id, class_id and state of all labels that somebody spoke of."""
    said = pl.when("present").then(pl.lit("present")).otherwise(pl.lit("not_present"))
    ruled = pl.when("present").then(pl.lit("ignored")).otherwise(pl.lit("cleared"))
    explicit = labels.rows().select(*_KEY, state=said)
    if rulings is None:
        return explicit
    return pl.concat([explicit, rulings.rows().select(*_KEY, state=ruled)])


def _filled(column: str, labels: LabelSet) -> pl.Expr:
    """Return the state where it is none: implicit if the set knows clip and class, else null."""
    knows_clip = pl.col("clip_id").is_in(labels.clip_ids.implode())
    knows_class = pl.col("class_id").is_in(list(labels.class_ids))
    implicit = pl.when(knows_clip & knows_class).then(pl.lit("implicit"))
    return pl.col(column).fill_null(implicit)


def _without(names: pl.Series, others: pl.Series) -> pl.Series:
    return names.filter(~names.is_in(others.implode()))
