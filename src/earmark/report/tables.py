"""The tables of the paper and ours: numbers as CSV, and LaTeX for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from earmark.errors import EarmarkError
from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology
from earmark.metrics import wilson_interval
from earmark.metrics.intervals import Interval
from earmark.report import figures
from earmark.report.figures import METRIC_NAMES, mean_over_seeds
from earmark.report.verdict import (
    Verdict,
    at_point,
    best_point,
    by_line,
    number_text,
    signed_text,
)
from earmark.runs.artefacts import write_table, write_text

TABLE_METRICS = ("d_prime_explicit", "lwlrap", "d_prime_all", "map")

BASIS_NAMES = {
    "given": "the labels as given",
    "ignored": "the labels as given, flagged ones left out",
    "corrected": "the labels as corrected by judgements",
    "truth": "the complete labels of the simulator",
}
"""How the labels that students are judged by are called, in the order in which they are shown."""


@dataclass(frozen=True)
class Table:
    """One table: ``values`` for programs (CSV), ``shown`` as text for people (LaTeX, the page)."""

    name: str
    caption: str
    values: pl.DataFrame
    shown: pl.DataFrame
    n_text_columns: int = 2


def performance_table(results: pl.DataFrame, labels: str = "given") -> pl.DataFrame:
    """Return Table II: baseline, best point, difference and relative gain on ``eval``.

    One row per student, train set and metric that could be computed. The best point is chosen
    on ``tune``; ``best_on_eval`` is the paper's choice, on ``eval`` itself.
    """
    return pl.DataFrame(
        [
            _performance_row(own, metric, labels)
            for own in by_line(results)
            for metric in TABLE_METRICS
            if _has(own, metric, "tune", "given") and _has(own, metric, "eval", labels)
        ]
    )


def controls_table(found: Iterable[Verdict]) -> pl.DataFrame:
    """Return the gain in lwlrap beside the gains of the two controls, and the shares left."""
    return pl.DataFrame(
        [
            {
                "student": verdict.student,
                "train_set": verdict.train_set,
                "discard_percent": verdict.percent,
                **_spread("gain", verdict.gain),
                "random_percent": verdict.random_percent,
                **_spread("random_gain", verdict.random_gain),
                "left_after_random": verdict.left_after_random,
                **_spread("calibrated_gain", verdict.calibrated_gain),
                "left_after_calibration": verdict.left_after_calibration,
                "survives_both": verdict.survives,
            }
            for verdict in found
        ],
        infer_schema_length=None,
    )


def class_summary(labels: LabelSet, ontology: Ontology) -> pl.DataFrame:
    """Return names and label counts of all classes: class_id, name, n_total, ..., prior."""
    return pl.DataFrame(
        {
            "class_id": list(labels.class_ids),
            "name": [ontology.name(class_id) for class_id in labels.class_ids],
            "n_total": [labels.n_clips] * labels.n_classes,
            "n_positives": labels.n_positives,
            "n_negatives": labels.n_negatives,
            "n_implicit": labels.n_implicit,
            "prior": labels.priors,
        }
    )


def label_counts(thresholds: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """Return the supplement's table for every operating point and class.

    Columns: discard_percent, class_id, name, total, explicit (present or not), implicit and
    to_ignore.
    """
    names = classes.select("class_id", "name", total="n_total")
    joined = thresholds.join(names, on="class_id", maintain_order="left")
    explicit = pl.col("total") - pl.col("n_implicit")
    return joined.select(
        "discard_percent", "class_id", "name", "total", explicit.alias("explicit"),
        implicit="n_implicit", to_ignore="n_ignored",
    )  # fmt: skip


def class_changes(
    per_class: pl.DataFrame,
    classes: pl.DataFrame,
    percent: float,
    cutoffs: tuple[float, float] | None = None,
) -> pl.DataFrame:
    """Return every class's lwlrap on ``eval`` at baseline and at a point, and its size group.

    ``per_class`` holds one student and train set; values are means over seeds. Classes whose
    lwlrap is undefined (no positives) are left out. Columns: class_id, name, prior, group,
    baseline, chosen, change.
    """
    rows = per_class.filter(kind="mask", split="eval", labels="given")
    priors = classes["prior"].to_numpy()
    groups = figures.prior_groups(priors, cutoffs or figures.prior_cutoffs(priors))
    changes = classes.select("class_id", "name", "prior", group=pl.Series(groups, dtype=pl.String))
    for name, point in (("baseline", 0.0), ("chosen", percent)):
        at_point = rows.filter(discard_percent=point).group_by("class_id")
        means = at_point.agg(pl.col("lwlrap").mean().alias(name))
        changes = changes.join(means, on="class_id", maintain_order="left")
    changes = changes.filter(pl.col("baseline").is_finite() & pl.col("chosen").is_finite())
    return changes.with_columns(change=pl.col("chosen") - pl.col("baseline"))


def group_table(changes: pl.DataFrame) -> pl.DataFrame:
    """Return, for large, medium and small classes, how many improved and by how much.

    ``mean_change_improved`` averages over the improved classes only: the paper's "average
    improvement", which cannot be negative. ``mean_change`` averages over all of the group.
    A group without (improved) classes has null means.
    """
    change, is_improved = pl.col("change"), pl.col("change") > 0
    found = changes.group_by("group").agg(
        n_classes=pl.len().cast(pl.Int64),
        n_improved=is_improved.sum().cast(pl.Int64),
        improved_percent=100 * is_improved.mean(),
        mean_change=change.mean(),
        mean_change_improved=change.filter(is_improved).mean(),
    )
    order = pl.DataFrame({"group": figures.PRIOR_GROUPS})
    table = order.join(found, on="group", how="left", maintain_order="left")
    return table.with_columns(pl.col("n_classes", "n_improved").fill_null(0))


def flags_judged_table(judged: pl.DataFrame) -> pl.DataFrame:
    """Return precision and recall of the flags at every point, with 90 % Wilson intervals."""
    table = judged.filter(pl.col("n_flags") > 0).sort("discard_percent")
    for name, total in (("precision", "n_flags"), ("recall", "n_missing")):
        low, high = wilson_interval(table["n_right"].to_numpy(), table[total].to_numpy())
        share = pl.col("n_right") / pl.col(total)
        ends = {f"{name}_low": pl.Series(low), f"{name}_high": pl.Series(high)}
        table = table.with_columns(share.alias(name), **ends)
    return table


def to_latex(table: Table) -> str:
    """Return a table as LaTeX for the booktabs package, every name escaped."""
    rows = [table.shown.columns, *table.shown.rows()]
    lines = [" & ".join(_latex(str(cell)) for cell in row) + r" \\" for row in rows]
    n_numbers = table.shown.width - table.n_text_columns
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_latex(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{'l' * table.n_text_columns}{'r' * n_numbers}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def write_tables(folder: str | Path, tables: Iterable[Table]) -> None:
    """Write every table as ``NAME.csv`` (all numbers) and ``NAME.tex`` (as shown)."""
    for table in tables:
        write_table(Path(folder) / f"{table.name}.csv", table.values)
        write_text(Path(folder) / f"{table.name}.tex", to_latex(table))


def show_performance(results: pl.DataFrame, labels: str) -> Table:
    """Return Table II for files and the page."""
    values = performance_table(results, labels)
    shown = [
        {
            "Student": row["student"],
            "Train set": row["train_set"],
            "Metric": METRIC_NAMES[row["metric"]],
            "Baseline": ranged_text(row, "baseline"),
            "Best": f"{ranged_text(row, 'best')} at {row['best_percent']:g} %",
            "Change": ranged_text(row, "difference", signed_text),
            "Relative": f"{signed_text(row['relative_gain_percent'], 1)} %",
            "Chosen on eval": number_text(row["best_on_eval"])
            + f" at {row['best_on_eval_percent']:g} %",
        }
        for row in values.iter_rows(named=True)
    ]
    caption = (
        "Baseline and best operating point, chosen on tune and measured on eval by "
        f"{BASIS_NAMES[labels]}, with 90 % intervals; the last column chooses on eval itself, as "
        "the paper did."
    )
    return Table(
        named_by(labels, "performance"), caption, values, pl.DataFrame(shown), n_text_columns=3
    )


def named_by(labels: str, name: str) -> str:
    """Return the name of a table or figure, with the labels in it unless they are as given."""
    return name if labels == "given" else f"{name}_{labels}"


def show_controls(values: pl.DataFrame) -> Table:
    """Return the table of the two controls for files and the page."""
    shown = [
        {
            "Student": row["student"],
            "Train set": row["train_set"],
            "at": f"{row['discard_percent']:g} %",
            "Gain in lwlrap": ranged_text(row, "gain", signed_text),
            "Random control": ranged_text(row, "random_gain", signed_text),
            "Left after random": _percentage(row["left_after_random"]),
            "Gain when calibrated": ranged_text(row, "calibrated_gain", signed_text),
            "Left after calibration": _percentage(row["left_after_calibration"]),
            "Survives both": "yes" if row["survives_both"] else "no",
        }
        for row in values.iter_rows(named=True)
    ]
    caption = (
        "The gain in lwlrap and what two controls leave of it: as many labels ignored at random, "
        "and every student, the baseline included, given its best offset by class prior."
    )
    return Table("controls", caption, values, pl.DataFrame(shown))


def show_groups(values: pl.DataFrame, cutoffs: tuple[float, float]) -> Table:
    """Return the table of size groups for files and the page."""
    shown = [
        {
            "Student": row["student"],
            "Train set": row["train_set"],
            "Group": row["group"],
            "at": f"{row['discard_percent']:g} %",
            "Classes": str(row["n_classes"]),
            "Improved": f"{row['n_improved']} ({number_text(row['improved_percent'], 1)} %)",
            "Mean change": signed_text(row["mean_change"]),
            "of the improved": signed_text(row["mean_change_improved"]),
        }
        for row in values.iter_rows(named=True)
    ]
    caption = (
        f"Classes whose lwlrap improved, by prior (small: below {cutoffs[0]:.3g}, large: above "
        f"{cutoffs[1]:.3g}), with the mean change over all classes of the group and over the "
        "improved ones (the paper's average improvement)."
    )
    return Table("groups", caption, values, pl.DataFrame(shown), n_text_columns=3)


def show_flags_judged(values: pl.DataFrame) -> Table:
    """Return the table of judged flags for files and the page."""
    shown = [
        {
            "Ignored": f"{row['discard_percent']:g} %",
            "Flags": f"{row['n_flags']:,}",
            "Missing labels": f"{row['n_right']:,}",
            "Decoys": f"{row['n_flags'] - row['n_right']:,}",
            "Precision": ranged_text(row, "precision"),
            "Recall": ranged_text(row, "recall"),
        }
        for row in values.iter_rows(named=True)
    ]
    caption = "Flags judged by the simulator's truth, with 90 % Wilson intervals."
    return Table("flags_judged", caption, values, pl.DataFrame(shown), n_text_columns=0)


def show_label_counts(values: pl.DataFrame, percent: float) -> Table:
    """Return the label counts of all points, shown at one of them."""
    points = values["discard_percent"].unique().to_list()
    if percent not in points:
        raise EarmarkError(
            f"flag_percent is {percent:g}, which is not one of the operating points in the table "
            f"of thresholds: {', '.join(f'{point:g}' for point in sorted(points))}"
        )
    shown = values.filter(discard_percent=percent).select(
        pl.col("name").alias("Class"),
        *(
            pl.col(name).map_elements("{:,}".format, pl.String).alias(heading)
            for name, heading in (
                ("total", "Total"), ("explicit", "Explicit"),
                ("implicit", "Implicit"), ("to_ignore", "To ignore"),
            )
        ),
    )  # fmt: skip
    caption = f"Labels of every class in the train split at the operating point of {percent:g} %."
    return Table("label_counts", caption, values, shown, n_text_columns=1)


def ranged_text(row: Mapping[str, Any], name: str, write: Any = number_text) -> str:
    """Return the number ``name`` of a row with its interval in brackets."""
    if row[name] is None:
        return "–"
    return f"{write(row[name])} [{write(row[f'{name}_low'])}, {write(row[f'{name}_high'])}]"


def _has(own: pl.DataFrame, metric: str, split: str, labels: str) -> bool:
    rows = own.filter(kind="mask", metric=metric, split=split, labels=labels)
    return bool(rows["value"].is_finite().any())


def _spread(name: str, interval: Interval | None) -> dict[str, float | None]:
    value, low, high = interval or (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _performance_row(own: pl.DataFrame, metric: str, labels: str) -> dict[str, Any]:
    rows = own.filter(kind="mask", split="eval", labels=labels, metric=metric)
    means = mean_over_seeds(rows)
    percent = best_point(own, metric)
    papers_percent = best_point(own, metric, split="eval", labels=labels)
    baseline, difference = at_point(means, 0.0), at_point(means, percent, "difference")
    return {
        "student": own["student"][0],
        "train_set": own["train_set"][0],
        "metric": metric,
        **_spread("baseline", baseline),
        "best_percent": percent,
        **_spread("best", at_point(means, percent)),
        **_spread("difference", difference),
        "relative_gain_percent": 100 * difference.value / baseline.value,
        "best_on_eval_percent": papers_percent,
        "best_on_eval": at_point(means, papers_percent).value,
    }


def _percentage(share: float | None) -> str:
    return "–" if share is None else f"{number_text(100 * share, 0)} %"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "−": "$-$", "–": "--", "′": "$'$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
