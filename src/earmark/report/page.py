"""One self-contained page that tells what a run found, can be heard, and needs no network.

Every number in a sentence is computed from the results, the verdict included. The page draws its
figures itself and saves them as SVG; its tables lie beside it as files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from earmark.report import charts
from earmark.report.charts import Chart
from earmark.report.numerals import number_text, percent_text, signed_text
from earmark.report.rendering import (
    GLOSSARY,
    fit_sounds,
    flag_picture,
    flag_sound,
    linker,
    listened_html,
    render,
)
from earmark.report.results import (
    BASIS_NAMES,
    METRIC_NAMES,
    SHOWN_METRICS,
    ReportContents,
    TeacherGrade,
    named_by_role,
)
from earmark.report.sentences import (
    controls_told,
    flags_told,
    methods_text,
    noise_note,
    page_verdict,
    strategies_told,
)
from earmark.report.tables import Table, report_tables, write_tables
from earmark.report.verdict import best_verdict, strategy_verdicts, verdicts
from earmark.storage import write_text

N_HEARD_FIRST = 4
"""Flags that the first screen plays; the others are folded below them."""


@dataclass(frozen=True)
class Figure:
    """A figure that the page draws: charts by the name of what is chosen, labels or a student."""

    name: str
    caption: str
    variants: Mapping[str, Chart]


def write_report(folder: str | Path, contents: ReportContents) -> Path:
    """Write ``index.html`` and ``tables/`` and return the path of the page.

    The page needs no network and no other file: figures and sounds are inside it. The tables beside
    it are the same ones for use elsewhere.
    """
    folder = Path(folder)
    tables = report_tables(contents)
    write_tables(folder / "tables", tables)
    drawn = report_figures(contents)
    write_text(folder / "index.html", _page(contents, tables, drawn))
    return folder / "index.html"


def report_figures(contents: ReportContents) -> dict[str, list[Figure]]:
    """Return every figure by the part of the report that it is in; an empty part has none.

    Parts are first (what the page shows first), performance, classes, flags_judged, comparison
    and training.
    """
    results, choices = contents.results, contents.choices
    lines = contents.line_changes()
    classes = {line.name: charts.classes_chart(line.changes, line.percent) for line in lines}
    flags = {} if contents.judged is None else {"truth": charts.flags_chart(contents.judged)}
    performance = {} if results is None else charts.performance_charts(results)
    compared = (
        {} if choices is None else charts.comparison_charts(named_by_role(choices), SHOWN_METRICS)
    )
    return {
        "first": _first(contents),
        "performance": [
            Figure(
                f"performance-{metric}",
                f"{METRIC_NAMES[metric]} on eval; bands are 90 % intervals.",
                variants,
            )
            for metric, variants in performance.items()
        ],
        "classes": _unless_empty(
            "classes",
            "Every class's lwlrap against its baseline; classes above the diagonal improved.",
            classes,
        ),
        "flags_judged": _unless_empty(
            "flags_judged",
            "Precision and recall of the flags; bands are 90 % Wilson intervals.",
            flags,
        ),
        "comparison": [
            Figure(
                f"comparison-{metric}",
                f"{METRIC_NAMES[metric]}: change from the baseline on eval, with 90 % intervals.",
                variants,
            )
            for metric, variants in compared.items()
        ],
        "training": _unless_empty(
            "training",
            "The course of every training, epoch by epoch.",
            charts.training_charts(contents.courses),
        ),
    }


def _page(
    contents: ReportContents, tables: Sequence[Table], drawn: Mapping[str, Sequence[Figure]]
) -> str:
    by_name = {table.name: table for table in tables}
    sound = flag_sound(contents.sample_rate_hz)
    return render(
        "report.html",
        contents=contents,
        tables=by_name,
        drawn=drawn,
        basis_names=BASIS_NAMES,
        charts=_charts_json(drawn),
        picture=flag_picture,
        sound=sound,
        heard=fit_sounds(contents.heard, sound),
        link=linker(),
        n_heard_first=N_HEARD_FIRST,
        glossary=GLOSSARY,
        listened=listened_html(contents.gains),
        **_told(contents, by_name),
    )


def _told(contents: ReportContents, tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return what the page says, by the place where it says it; nothing of what was not run."""
    results, choices, judged = contents.results, contents.choices, tables.get("flags_judged")
    return {
        "verdict": page_verdict(results, choices),
        "key_numbers": _key_numbers(contents),
        "controls": [] if results is None else controls_told(results),
        "noise": "" if results is None else noise_note(results),
        "compared": "" if choices is None else strategies_told(choices),
        "judged": "" if judged is None else flags_told(judged.values, contents.flag_percent),
        "methods": methods_text(results, contents.provenance, choices),
    }


@dataclass(frozen=True)
class KeyNumber:
    """One of the numbers that a reader takes home: what it is, and how it came about."""

    value: str
    what: str
    how: str


def _key_numbers(contents: ReportContents) -> list[KeyNumber]:
    """Return what was gained, how good the flags are, and how good the teacher is."""
    return [_gain_number(contents), _flags_number(contents), _teacher_number(contents.teacher)]


def _gain_number(contents: ReportContents) -> KeyNumber:
    if contents.results is not None:
        found = verdicts(contents.results)
    elif contents.choices is not None:
        found = strategy_verdicts(contents.choices)
    else:
        return KeyNumber("–", "change of lwlrap", "no student was held against a baseline")
    if not found:
        return KeyNumber("–", "change of lwlrap", "only controls and oracles were compared")
    best = best_verdict(found)
    of = f" of {best.student}, {best.train_set}" if len(found) > 1 else ""
    low, high = signed_text(best.gain.low), signed_text(best.gain.high)
    ends = f"{number_text(best.baseline.value)} to {number_text(best.best.value)}"
    how = f"from {ends} at {best.percent:g} %; 90 % interval {low} to {high}"
    return KeyNumber(signed_text(best.gain.value), f"change of lwlrap{of}", how)


def _flags_number(contents: ReportContents) -> KeyNumber:
    percent, judged = contents.flag_percent, contents.judged
    at = contents.thresholds.filter(discard_percent=percent)
    n_flags, n_implicit = int(at["n_ignored"].sum()), int(at["n_implicit"].sum())
    rows = None if judged is None else judged.filter(pl.col("n_flags") > 0, discard_percent=percent)
    if rows is None or rows.is_empty():
        how = f"the highest-scored {percent:g} % of {n_implicit:,} implicit labels"
        return KeyNumber(f"{n_flags:,}", "labels flagged", how)
    row = rows.row(0, named=True)
    right, chance = row["n_right"] / row["n_flags"], row["n_missing"] / max(n_implicit, 1)
    times = f", {right / chance:.0f} times as many as by chance" if right > chance > 0 else ""
    how = f"{row['n_right']:,} of {row['n_flags']:,} at {percent:g} %{times}"
    return KeyNumber(percent_text(right), "of the flags are missing labels", how)


def _teacher_number(teacher: TeacherGrade | None) -> KeyNumber:
    if teacher is None or math.isnan(teacher.auc):
        return KeyNumber("–", "AUC of the teacher", "not known: no clips to examine it on")
    found = "" if math.isnan(teacher.found) else (
        f"; it finds {percent_text(teacher.found)} of the labels given again"
    )  # fmt: skip
    how = f"in the median class, on {teacher.clips}{found}"
    return KeyNumber(number_text(teacher.auc, 2), "AUC of the teacher", how)


def _first(contents: ReportContents) -> list[Figure]:
    """Return the one figure of the first screen, by the labels as given."""
    name = BASIS_NAMES["given"]
    if contents.results is not None:
        caption = (
            "How lwlrap changes as more of the likeliest labels are ignored; crosses: as many "
            "ignored at random. Bands are 90 % intervals."
        )
        return [Figure("first", caption, {name: charts.change_chart(contents.results)})]
    if contents.choices is not None:
        found = charts.comparison_charts(named_by_role(contents.choices), ["lwlrap"])
        caption = "Change of lwlrap on the evaluation clips, by strategy, with 90 % intervals."
        return [Figure("first", caption, {name: found["lwlrap"][name]})]
    return []


def _charts_json(drawn: Mapping[str, Sequence[Figure]]) -> dict[str, Any]:
    """Return what the page's script draws: figure -> variant -> chart."""
    return {
        figure.name: {name: charts.as_json(chart) for name, chart in figure.variants.items()}
        for group in drawn.values()
        for figure in group
    }


def _unless_empty(name: str, caption: str, variants: Mapping[str, Chart]) -> list[Figure]:
    return [Figure(name, caption, variants)] if variants else []
