"""What a rater is told of the answers: how a block went, and how every class stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from earmark.review.judgements import ANSWERS, Conflict
from earmark.review.precision import (
    PRECISION_SCHEMA,
    Scope,
    controls,
    curve,
    flags_asked,
    precision_table,
)
from earmark.review.queue_items import QueueSnapshot
from earmark.review.server.session import FORECAST_SECONDS, ReviewSession

_NOT_JUDGED = {"n_judged": 0} | dict.fromkeys(("low", "high", "interval_low", "interval_high"))


@dataclass(frozen=True, eq=False)
class Figures:
    """The numbers of a review, for its raters; no rater sees a block's before it is finished."""

    session: ReviewSession

    def summary(self, rater: str, number: int) -> dict[str, Any]:
        """Return how a finished block went, and the precision of the class's flags so far.

        Of a block with several classes, that of all labels heard.
        """
        items, own = self.session.items_of(rater, number), self.session.answers_of(rater)
        answered = own.filter(pl.col("block") == number)
        if len(answered) < len(items):
            raise Conflict(
                f"block {number}: {len(answered)} of {len(items)} items have an answer; "
                "its summary comes when all have"
            )
        class_id = items["class_id"][0] if items["class_id"].n_unique() == 1 else None
        queue = self.session.queue.snapshot if class_id is None else self._only(class_id)
        finished = self.session.finished_of(rater)
        table = precision_table(queue, finished, self.flags)
        flags = table.filter(pl.col("class_id").eq_missing(class_id), scope="flags")
        is_sample = self.session.queue.aim == "measure"
        points = curve(queue, finished, class_id) if is_sample else PRECISION_SCHEMA.to_frame()
        known = controls(self.session.queue.snapshot, answered).filter(block=number)
        return {
            "name": self.session.describe_classes(dict.fromkeys(items["class_id"])),
            "answers": {name: int((answered["answer"] == name).sum()) for name in ANSWERS},
            "flags": self.flags.told,
            "is_sample": is_sample,
            **(_precision(flags.row(0, named=True)) if len(flags) else _NOT_JUDGED),
            "gold": {
                "passed": int(known["n_passed"].sum()),
                "total": int(known.select(pl.sum_horizontal("^n_.*$").sum()).item()),
                "is_failed": bool(known["is_failed"].any()),
            },
            "points": [
                {"percent": row["discard_percent"], **_precision(row)}
                for row in points.iter_rows(named=True)
            ],
        }

    def overview(self, rater: str) -> dict[str, Any]:
        """Return a row for each class: flags, progress, precision.

        Of a queue that grows: what was judged, how many of the next labels would be present, and
        the class's part of the total.
        """
        if self.session.queue.grows:
            return self._forecast(rater)
        counts = self.session.answers_of(rater).group_by("class_id").agg(n_answered=pl.len())
        own = self.session.queue.items.join(
            self.session.queue.plan_of(rater), on="block", how="semi"
        )
        own = own.sort("block", "place")
        classes = own.group_by("class_id", maintain_order=True).agg(n_items=pl.len())
        found = precision_table(
            self.session.queue.snapshot, self.session.finished_of(rater), self.flags
        )
        found = found.filter(pl.col("class_id").is_not_null(), scope="flags").drop("scope")
        table = classes
        found = found.rename({"n_labels": "n_flags"})
        for more in (counts, found):
            table = table.join(more, on="class_id", how="left", maintain_order="left")
        rows = [self._class_row(row) for row in table.iter_rows(named=True)]
        is_sample = self.session.queue.aim == "measure"
        return {"flags": self.flags.told, "is_sample": is_sample, "classes": rows}

    def _forecast(self, rater: str) -> dict[str, Any]:
        """Return a row for each class that may be asked about."""
        present = (pl.col("answer") == "present").sum()
        answers = self.session.answers_of(rater).group_by("class_id")
        judged = answers.agg(n_answered=pl.len(), n_present=present)
        drawer = self.session.queue.drawer
        columns = list(drawer.population.class_ids)
        forecast, ids = drawer.forecast, list(drawer.population.class_ids.values())
        table = pl.DataFrame(
            {
                "class_id": ids,
                "name": [self.session.workspace.ontology.name(one) for one in ids],
                "n_next": forecast.n_asked[columns],
                "n_next_found": forecast.n_found[columns],
            }
        )
        gains, _ = drawer.latest_gains(FORECAST_SECONDS)
        totals = {} if gains is None else gains.estimates.class_totals
        table = table.with_columns(
            n_missing=pl.Series([totals.get(class_id) for class_id in ids], dtype=pl.Float64)
        ).join(judged, on="class_id", how="left", maintain_order="left")
        rows = table.with_columns(pl.col("n_answered", "n_present").fill_null(0)).to_dicts()
        only = self.session.describe_only(rater)
        return {"classes": rows, "only": only}

    @cached_property
    def flags(self) -> Scope:
        """The flags that are summed up: those that `earmark flag` wrote, if there are any."""
        return flags_asked(self.session.workspace, self.session.queue.snapshot)

    def _only(self, class_id: str) -> QueueSnapshot:
        is_own = pl.col("class_id") == class_id
        queue = self.session.queue.snapshot
        return replace(queue, items=queue.items.filter(is_own), sizes=queue.sizes.filter(is_own))

    def _class_row(self, row: dict[str, Any]) -> dict[str, Any]:
        return {
            "class_id": row["class_id"],
            "name": self.session.workspace.ontology.name(row["class_id"]),
            "n_flags": row["n_flags"] or 0,
            "n_items": row["n_items"],
            "n_answered": row["n_answered"] or 0,
            **_precision(row),
        }


def _precision(row: dict[str, Any]) -> dict[str, Any]:
    """Return bounds and interval of a row of a precision table; null where nothing was judged."""
    if not row["n_judged"]:
        return _NOT_JUDGED
    return {
        "n_judged": row["n_judged"],
        "low": row["precision_low"],
        "high": row["precision_high"],
        "interval_low": row["low"],
        "interval_high": row["high"],
    }
