"""What the paper says, and what was found here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from earmark.metrics import wilson_interval
from earmark.report.numerals import ranged_text, signed_text
from earmark.report.results import BASIS_NAMES, METRIC_NAMES
from earmark.report.tables.table import Table

SAID = {
    "gain": "Ignoring flagged labels improves the student",
    "random": "... more than ignoring as many at random (our control)",
    "calibrated": "... also when each class has its best offset (our control)",
    "first_percent": "Most of the gain comes from the first 1 %",
    "first_fifth": "Half of the gain comes from the first 0.2 %",
    "best_point": "The best point is at 3 to 6 % (d'), 1 to 4 % (lwlrap)",
    "smaller_set": "The gain is larger for the smaller train set",
    "alike": "Both networks gain alike",
    "decay": "Beyond the best point lwlrap falls more than d'",
    "large_classes": "Classes with many positives get slightly worse",
    "small_classes": "Classes with few positives gain more than those with many",
    "flags": "The top flags are mostly missing labels",
}
"""The paper's findings in our words."""

_MEANING = {
    "gain": "the gain at the point chosen on tune",
    "random": "what the mask gains beyond it",
    "calibrated": "the calibrated gain",
    "first_percent": "the gain at 1 % less half of that at the best point",
    "first_fifth": "the gain at 0.2 % less half of that at the best point",
    "best_point": "the best point in per cent",
    "smaller_set": "its gain less that of the larger",
    "alike": "how far apart they are; alike within half of their mean",
    "decay": "how much more, relative to the baseline",
    "large_classes": "the mean loss of the third with most positives",
    "small_classes": "the third with fewest less the third with most",
}


def show_claims(claims: pl.DataFrame, judged: pl.DataFrame | None) -> list[Table]:
    """Return the verdict on each finding, and the numbers behind all of them."""
    if claims.is_empty():
        return []
    values = summarise(claims, judged)
    shown = [
        {
            "The paper says": SAID[row["finding"]],
            "Judged by": BASIS_NAMES.get(row["labels"], row["labels"]),
            "Found here": row["verdict"],
            "In": f"{row['n_holds']} of {row['n_rows']}",
        }
        for row in values.iter_rows(named=True)
    ]
    caption = (
        "What the paper says, and what was found here: in how many networks, train sets and "
        "metrics a finding is established (p below 0.05 after Holm's correction over all rows by "
        "the same labels)."
    )
    summary = Table("claims", caption, values, pl.DataFrame(shown), 3)
    return [summary, _details(claims)]


def summarise(claims: pl.DataFrame, judged: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return one row for each finding and labels: in how many rows it holds, and the verdict."""
    found: list[dict[str, Any]] = []
    for labels in claims["labels"].unique(maintain_order=True):
        for finding in SAID:
            verdicts = claims.filter(finding=finding, labels=labels)["verdict"].to_list()
            if verdicts:
                found.append(_told(finding, labels, verdicts))
    if judged is not None:
        found.append(_told("flags", "truth", _flag_verdicts(judged)))
    return pl.DataFrame(found)


def _told(finding: str, labels: str, verdicts: Sequence[str]) -> dict[str, Any]:
    counts = {"n_holds": list(verdicts).count("holds"), "n_rows": len(verdicts)}
    return {"finding": finding, "labels": labels, **counts, "verdict": _in_all(verdicts)}


def _in_all(verdicts: Sequence[str]) -> str:
    """Return the verdict of a finding over its rows."""
    kinds = set(verdicts)
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds & {"holds", "holds in part"}:
        return "holds in part"
    return "does not hold"


def _flag_verdicts(judged: pl.DataFrame) -> list[str]:
    """Judge the flags of every point up to 1 %: more than half right, fewer, or unsure."""
    top = judged.filter((pl.col("discard_percent") <= 1) & (pl.col("n_flags") > 0))
    low, high = wilson_interval(top["n_right"].to_numpy(), top["n_flags"].to_numpy())
    ends = zip(low, high, strict=True)
    return [
        "holds" if start > 0.5 else "does not hold" if end < 0.5 else "cannot be told"
        for start, end in ends
    ]


def _details(claims: pl.DataFrame) -> Table:
    shown = [
        {
            "The paper says": SAID[row["finding"]],
            "Number": _MEANING[row["finding"]],
            "Judged by": BASIS_NAMES.get(row["labels"], row["labels"]),
            "Metric": METRIC_NAMES[row["metric"]],
            "Student": row["student"],
            "Train set": row["train_set"],
            "Value": _value(row),
            "p": "" if row["p_holm"] is None else f"{row['p_holm']:.3f}",
            "Found here": row["verdict"],
        }
        for row in claims.iter_rows(named=True)
    ]
    caption = "The numbers behind the verdicts, with 90 % intervals over clips and seeds."
    return Table("claims_details", caption, claims, pl.DataFrame(shown), 6)


def _value(row: dict[str, Any]) -> str:
    if row["finding"] == "best_point":
        return f"{row['value']:g} % [{row['low']:g}, {row['high']:g}]"
    return ranged_text(
        {"x": row["value"], "x_low": row["low"], "x_high": row["high"]}, "x", signed_text
    )
