"""The table of classes: what was known of each, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from earmark.report.tables import Table
from earmark.report.verdict import number_text, signed_text


def class_table(
    changes: pl.DataFrame, per_class: pl.DataFrame, counts: pl.DataFrame, percent: float
) -> pl.DataFrame:
    """Return everything that is known of the classes of one student and train set.

    ``changes`` come from :func:`class_changes`, ``counts`` (class_id, positives, to_ignore) from
    the train split. d' (over all labels) and AP are added where ``per_class`` has them: at the
    baseline and how they change, by the labels as given.
    """
    table = counts.join(changes, on="class_id", how="left", maintain_order="left")
    rows = per_class.filter(kind="mask", split="eval", labels="given")
    for metric in ("d_prime_all", "ap"):
        if metric not in rows.columns:
            continue
        at = [
            rows.filter(discard_percent=point)
            .group_by("class_id")
            .agg(pl.col(metric).mean().alias(f"{metric}_{name}"))
            for name, point in (("baseline", 0.0), ("chosen", percent))
        ]
        for means in at:
            table = table.join(means, on="class_id", how="left", maintain_order="left")
        change = pl.col(f"{metric}_chosen") - pl.col(f"{metric}_baseline")
        table = table.with_columns(change.alias(f"{metric}_change"))
    return table


def show_classes(values: pl.DataFrame, percents: Mapping[str, float]) -> Table:
    """Return the table of classes of all students; ``percents`` are their points by name."""
    has_one = values["line"].n_unique() == 1
    measures = {
        "lwlrap": ("baseline", "change"),
        "d′": ("d_prime_all_baseline", "d_prime_all_change"),
        "AP": ("ap_baseline", "ap_change"),
    }
    there = {name: pair for name, pair in measures.items() if pair[0] in values.columns}
    shown = [
        {
            "Class": row["name"],
            **({} if has_one else {"Student": row["line"]}),
            "Prior": row["group"] or "–",
            "Positives": f"{row['positives']:,}",
            "To ignore": f"{row['to_ignore']:,}",
            **{name: number_text(row[base]) for name, (base, _) in there.items()},
            **{f"{name} change": signed_text(row[by]) for name, (_, by) in there.items()},
        }
        for row in values.iter_rows(named=True)
    ]
    at = ", ".join(f"{line} at {percent:g} %" for line, percent in percents.items())
    caption = (
        "Every class: its positives and labels to ignore in the train split, its metrics on eval "
        f"at the baseline, and how they change ({at}). A dash: no positives to measure by."
    )
    return Table("per_class", caption, values, pl.DataFrame(shown), 2 if has_one else 3)
