"""The tables of a comparison of strategies, and what they say in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from earmark.figures import METRIC_NAMES
from earmark.tables import BASIS_NAMES, Table, named_by, ranged_text
from earmark.verdict import number_text, signed_text

SHOWN_METRICS = ("lwlrap", "lwlrap_calibrated", "d_prime_all", "map")
"""The metrics of a comparison that people read; the CSV file has all."""

_ALPHA = 0.1  # as the 90 % intervals


def show_comparison(choices: pl.DataFrame, labels: str) -> Table:
    """Return what every strategy is worth on eval by some labels, at its point chosen on tune."""
    values = choices.filter(labels=labels)
    shown = [
        _shown({row["metric"]: row for row in own.iter_rows(named=True)})
        for own in values.partition_by("student", "train_set", "strategy", maintain_order=True)
    ]
    caption = (
        "Strategies at the operating points chosen on tune, measured on eval by "
        f"{BASIS_NAMES[labels]}: differences from the baseline with 90 % intervals over clips and "
        "seeds, and of lwlrap over classes; p is corrected for the number of strategies (Holm); "
        "the last column chooses the point on eval itself, as the paper did."
    )
    return Table(
        named_by(labels, "comparison"), caption, values, pl.DataFrame(shown), n_text_columns=3
    )


def show_rounds(rounds: pl.DataFrame) -> Table:
    """Return the rounds in which students became teachers, on eval."""
    values = rounds.filter(split="eval")
    keys = ("student", "train_set", "labels", "round")
    shown = []
    for own in values.partition_by(*keys, maintain_order=True):
        cells = {row["metric"]: row for row in own.iter_rows(named=True)}
        first = own.row(0, named=True)
        shown.append(
            {
                "Student": f"{first['student']}, {first['train_set']}",
                "Judged by": BASIS_NAMES[first["labels"]],
                "Round": str(first["round"]),
                **_changes(cells),
            }
        )
    strategy = f"{rounds['strategy'][0]} at {rounds['point'][0]:g}" if len(rounds) else ""
    caption = (
        f"The student as the next teacher ({strategy}), round by round: differences from the "
        "baseline on eval, with 90 % intervals over clips and seeds."
    )
    return Table("rounds", caption, values, pl.DataFrame(shown), n_text_columns=2)


def comparison_told(choices: pl.DataFrame) -> str:
    """Say which strategies gain beyond chance in lwlrap, once calibrated, in d' and in mAP.

    A gain counts if its p-value, corrected for the number of strategies, is below 0.1, as befits
    90 % intervals. Several students or train sets are counted each for itself.
    """
    given = choices.filter(labels="given")
    told = [
        f"{METRIC_NAMES[metric]}: {_names(given.filter(metric=metric))}"
        for metric in SHOWN_METRICS
        if metric in given["metric"]
    ]
    return (
        "Strategies that gain beyond chance by the labels as given (Holm-corrected p below "
        f"{_ALPHA:g}): {'; '.join(told)}."
    )


def _names(rows: pl.DataFrame) -> str:
    gained = rows.filter((pl.col("p_holm") < _ALPHA) & (pl.col("difference") > 0))
    best_first = gained.sort("difference", descending=True)["strategy"]
    return ", ".join(best_first.unique(maintain_order=True)) or "none"


def _shown(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    row = cells["lwlrap"]
    point = "none" if row["point"] is None else f"{row['point']:g}"
    by_class = (row["classes_low"], row["classes_high"])
    over = "–" if None in by_class else f"[{', '.join(signed_text(end) for end in by_class)}]"
    return {
        "Strategy": row["strategy"],
        "Student": row["student"],
        "Train set": row["train_set"],
        "Point": point,
        **_changes(cells),
        "lwlrap over classes": over,
        "p (Holm)": number_text(row["p_holm"]),
        "Chosen on eval": f"{number_text(row['chosen_on_eval'])} at "
        f"{row['chosen_on_eval_point']:g}",
    }


def _changes(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    there: Sequence[str] = [metric for metric in SHOWN_METRICS if metric in cells]
    return {
        METRIC_NAMES[metric]: ranged_text(cells[metric], "difference", signed_text)
        for metric in there
    }
