"""The tables of the paper and ours: numbers as CSV for programs, and LaTeX for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from earmark.errors import EarmarkError
from earmark.metrics import wilson_interval
from earmark.report.numerals import number_text, ranged_text, signed_text
from earmark.report.results import (
    BASIS_NAMES,
    METRIC_NAMES,
    SHOWN_METRICS,
    LineChanges,
    ReportContents,
    bases_of,
    flags_judged_table,
    group_table,
    label_counts,
    named_by_role,
    performance_table,
    prior_cutoffs,
    spread,
)
from earmark.report.verdict import Verdict, verdicts
from earmark.storage import write_table, write_text

_N_ROWS_TO_FILTER = 13


@dataclass(frozen=True)
class Table:
    """One table: ``values`` for programs (CSV), ``shown`` as text for people (LaTeX, the page)."""

    name: str
    caption: str
    values: pl.DataFrame
    shown: pl.DataFrame
    n_text_columns: int = 2

    @property
    def is_long(self) -> bool:
        """Whether it needs a field to filter it by."""
        return self.shown.height >= _N_ROWS_TO_FILTER

    def kind_of(self, column: int) -> str:
        """Return ``text`` or ``number``, which the page shows from the left or from the right."""
        return "text" if column < self.n_text_columns else "number"


def write_tables(folder: str | Path, tables: Iterable[Table]) -> None:
    """Write every table as ``NAME.csv`` (all numbers) and ``NAME.tex`` (as shown)."""
    for table in tables:
        write_table(Path(folder) / f"{table.name}.csv", table.values, for_people=True)
        write_text(Path(folder) / f"{table.name}.tex", to_latex(table))


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


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "−": "$-$", "–": "--", "′": "$'$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


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


def report_tables(contents: ReportContents) -> list[Table]:
    """Return all tables of the report, in the order in which the page shows them."""
    tables: list[Table] = []
    if contents.results is not None:
        results = contents.results
        tables += [show_performance(results, labels) for labels in bases_of(results)]
        tables.append(show_controls(controls_table(verdicts(results))))
    if contents.claims is not None:
        tables += show_claims(contents.claims, contents.judged)
    if contents.choices is not None:
        tables += [show_comparison(contents.choices, by) for by in bases_of(contents.choices)]
    if contents.judged is not None:
        tables.append(show_flags_judged(flags_judged_table(contents.judged)))
    counts = label_counts(contents.thresholds, contents.classes)
    counted = show_label_counts(counts, contents.flag_percent)
    if contents.per_class is not None:
        lines = contents.line_changes()
        tables.append(_show_groups(lines, contents.classes["prior"]))
        tables.append(_show_classes(contents, lines))
    return [*tables, counted]


def named_by(labels: str, name: str) -> str:
    """Return the name of a table or figure, with the labels in it unless they are as given."""
    return name if labels == "given" else f"{name}_{labels}"


def controls_table(found: Iterable[Verdict]) -> pl.DataFrame:
    """Return the gain in lwlrap beside the gains of the two controls, and the shares left."""
    return pl.DataFrame(
        [
            {
                "student": verdict.student,
                "train_set": verdict.train_set,
                "discard_percent": verdict.percent,
                **spread("gain", verdict.gain),
                "random_percent": verdict.random_percent,
                **spread("random_gain", verdict.random_gain),
                "left_after_random": verdict.shares_left["random"],
                **spread("calibrated_gain", verdict.calibrated_gain),
                "left_after_calibration": verdict.shares_left["calibration"],
                "survives_both": verdict.survives,
            }
            for verdict in found
        ],
        infer_schema_length=None,
    )


def show_performance(results: pl.DataFrame, labels: str) -> Table:
    """Return Table II for files and the page."""
    values = performance_table(results, labels)
    shown = [
        {
            "Student": row["student"],
            "Train set": row["train_set"],
            "Metric": METRIC_NAMES[row["metric"]],
            "Baseline": ranged_text(row, "baseline"),
            "At the point": f"{ranged_text(row, 'best')} at {row['best_percent']:g} %",
            "Change": ranged_text(row, "difference", signed_text),
            "Relative": f"{signed_text(row['relative_gain_percent'], 1)} %",
            "Chosen on eval": number_text(row["best_on_eval"])
            + f" at {row['best_on_eval_percent']:g} %",
        }
        for row in values.iter_rows(named=True)
    ]
    caption = (
        "Baseline and operating point, chosen by lwlrap on tune and measured on eval by "
        f"{BASIS_NAMES[labels]}, with 90 % intervals; the last column chooses by each metric on "
        "eval itself, as the paper did."
    )
    return Table(
        named_by(labels, "performance"), caption, values, pl.DataFrame(shown), n_text_columns=3
    )


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


def show_comparison(choices: pl.DataFrame, labels: str) -> Table:
    """Return what every strategy is worth on eval by some labels, at its point chosen on tune."""
    values = choices.filter(labels=labels)
    shown = [
        _shown({row["metric"]: row for row in own.iter_rows(named=True)})
        for own in named_by_role(values).partition_by(
            "student", "train_set", "strategy", maintain_order=True
        )
    ]
    caption = (
        "Strategies at the operating points chosen on tune, measured on eval by "
        f"{BASIS_NAMES[labels]}: differences from the baseline with 90 % intervals over clips and "
        "seeds, and of lwlrap over classes; p is corrected for the number of strategies (Holm); "
        "the last column chooses the point on eval itself, as the paper did. Oracles know the "
        "truth and controls nothing: neither is tested, and no point is chosen for them."
    )
    return Table(
        named_by(labels, "comparison"), caption, values, pl.DataFrame(shown), n_text_columns=3
    )


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


def _show_groups(lines: Sequence[LineChanges], priors: pl.Series) -> Table:
    """Return the table of size groups of all students and train sets."""
    values = pl.concat(
        group_table(line.changes).select(
            pl.lit(line.student).alias("student"),
            pl.lit(line.train_set).alias("train_set"),
            pl.lit(line.percent).alias("discard_percent"),
            pl.all(),
        )
        for line in lines
    )
    cutoffs = prior_cutoffs(priors.to_numpy())
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


def _show_classes(contents: ReportContents, lines: Sequence[LineChanges]) -> Table:
    """Return the table of the classes of all students."""
    ignored = contents.thresholds.filter(discard_percent=contents.flag_percent)
    counts = contents.classes.select("class_id", positives="n_positives").join(
        ignored.select("class_id", to_ignore="n_ignored"), on="class_id", how="left"
    )
    values = pl.concat(
        line.changes.join(counts, on="class_id", maintain_order="left").select(
            pl.lit(line.name).alias("line"), pl.all()
        )
        for line in lines
    )
    metrics = {"lwlrap": "", "d′": "d_prime_all_", "AP": "ap_"}
    there = {name: start for name, start in metrics.items() if f"{start}change" in values.columns}
    shown = [
        {
            "Class": row["name"],
            **({} if len(lines) == 1 else {"Student": row["line"]}),
            "Prior": row["group"],
            "Positives": f"{row['positives']:,}",
            "To ignore": f"{row['to_ignore']:,}",
            **{name: number_text(row[f"{start}baseline"]) for name, start in there.items()},
            **{
                f"{name} change": signed_text(row[f"{start}change"])
                for name, start in there.items()
            },
        }
        for row in values.iter_rows(named=True)
    ]
    at = ", ".join(f"{line.name} at {line.percent:g} %" for line in lines)
    caption = (
        "Every class: its positives and labels to ignore in the train split, its metrics on eval "
        f"at the baseline, and how they change ({at}). A dash: no positives to measure by."
    )
    n_text_columns = 2 if len(lines) == 1 else 3
    return Table("per_class", caption, values, pl.DataFrame(shown), n_text_columns)


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


def _percentage(share: float | None) -> str:
    return "–" if share is None else f"{number_text(100 * share, 0)} %"
