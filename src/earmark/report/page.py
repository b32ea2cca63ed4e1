"""One self-contained page that tells what a run found, can be heard, and needs no network.

Every number in a sentence is computed from the results, the verdict included. Beside the page lie
its figures and tables as files, for use elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from earmark.report import charts, figures
from earmark.report.charts import Chart
from earmark.report.contents import LineChanges, ReportContents, TeacherGrade
from earmark.report.listened import listened_html
from earmark.report.numerals import number_text, percent_text, signed_text
from earmark.report.rendering import (
    GLOSSARY,
    fit_sounds,
    flag_picture,
    flag_sound,
    linker,
    render,
)
from earmark.report.results import (
    BASIS_NAMES,
    COURSE_NAMES,
    METRIC_NAMES,
    SHOWN_METRICS,
    bases_of,
    label_counts,
    named_by_role,
)
from earmark.report.sentences import (
    best_verdict,
    comparison_told,
    flags_told,
    methods_text,
    numbers_told,
    page_verdict,
    strategies_told,
)
from earmark.report.tables import Table, named_by, report_tables, write_tables
from earmark.report.verdict import controls_told, noise_note, strategy_verdicts, verdicts
from earmark.storage import write_text

N_HEARD_FIRST = 4
"""Flags that the first screen plays; the others are folded below them."""

_PRINTED_COURSES = (COURSE_NAMES["loss"], COURSE_NAMES["tune_lwlrap"])
"""Measures of a training that the files show; the page has all."""


@dataclass(frozen=True)
class Figure:
    """A figure that the page draws itself, and the files in which it is drawn for use elsewhere.

    ``variants`` are charts by the name of what is chosen: labels to judge by, a student. They may
    be empty, and the files fewer than the variants: files show what papers print.
    """

    name: str
    caption: str
    variants: Mapping[str, Chart]
    files: Sequence[Path] = ()
    """Pairs of SVG and PNG in the folder ``figures``."""

    def downloads(self) -> dict[str, list[str]]:
        """Return the names of its files by what they show."""
        found: dict[str, list[str]] = {}
        for path in self.files:
            found.setdefault(path.stem, []).append(path.name)
        return found


def write_report(folder: str | Path, contents: ReportContents) -> Path:
    """Write ``index.html``, ``figures/`` and ``tables/`` and return the path of the page.

    The page needs no network and no other file: figures and sounds are inside it. The figures
    and tables beside it are the same ones for use elsewhere.
    """
    figures.check_drawing()
    folder = Path(folder)
    tables = report_tables(contents)
    write_tables(folder / "tables", tables)
    drawn = write_figures(folder / "figures", contents)
    write_text(folder / "index.html", _page(contents, tables, drawn))
    return folder / "index.html"


def write_figures(folder: Path, contents: ReportContents) -> dict[str, list[Figure]]:
    """Write every figure as PNG and SVG, and return them by the part of the report they are in.

    Parts are first (what the page shows first), performance, classes, flags_judged, comparison,
    and training; one in which there is nothing to draw is empty.
    """
    results, judged, choices = contents.results, contents.judged, contents.choices
    lines = contents.line_changes()
    return {
        "first": _first(contents),
        "performance": [] if results is None else _performance(folder, results),
        "classes": [_classes(folder, lines)] if lines else [],
        "flags_judged": [] if judged is None else [_flags_judged(folder, judged)],
        "comparison": [] if choices is None else _comparison(folder, named_by_role(choices)),
        "training": [_training(folder, contents.courses)] if contents.courses else [],
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
        points=contents.thresholds["discard_percent"].unique().sort().to_list(),
        data={"charts": _charts_json(drawn), "ignored": _ignored_by_point(contents)},
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
        "numbers": {} if results is None else numbers_told(results),
        "noise": "" if results is None else noise_note(results),
        "compared": _compared_told(choices),
        "judged": "" if judged is None else flags_told(judged.values, contents.flag_percent),
        "methods": methods_text(results, contents.provenance, choices),
    }


def _compared_told(choices: pl.DataFrame | None) -> list[str]:
    """Say what strategies gain."""
    return [] if choices is None else [strategies_told(choices), comparison_told(choices)]


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


def _ignored_by_point(contents: ReportContents) -> dict[str, list[int]]:
    """Return to_ignore by point and class, for the page's chooser."""
    counts = label_counts(contents.thresholds, contents.classes)
    return {
        f"{percent:g}": rows["to_ignore"].to_list()
        for (percent,), rows in counts.group_by("discard_percent", maintain_order=True)
    }


def _performance(folder: Path, results: pl.DataFrame) -> list[Figure]:
    found = charts.performance_charts(results)
    # The files show both of the paper's metrics at once, so the first figure alone has them.
    panels = [found[metric] for metric in list(found)[:2]]
    files = _written(folder, "performance", bases_of(results), panels, (figures.COLUMN_INCHES, 4.9))
    return [
        Figure(
            f"performance-{metric}",
            f"{METRIC_NAMES[metric]} on eval; bands are 90 % intervals.",
            variants,
            files if number == 0 else (),
        )
        for number, (metric, variants) in enumerate(found.items())
    ]


def _classes(folder: Path, lines: Sequence[LineChanges]) -> Figure:
    variants = {line.name: charts.classes_chart(line.changes, line.percent) for line in lines}
    files: list[Path] = []
    for line in lines:
        name = re.sub(r"[^\w.-]+", "_", f"per_class_{line.student}_{line.train_set}")
        drawn = figures.draw_charts([variants[line.name]], figures.COLUMN_INCHES, 3.4)
        files += figures.write_figure(drawn, folder / name)
    caption = "Every class's lwlrap against its baseline; classes above the diagonal improved."
    return Figure("classes", caption, variants, files)


def _flags_judged(folder: Path, judged: pl.DataFrame) -> Figure:
    chart = charts.flags_chart(judged)
    drawn = figures.draw_charts([chart], figures.COLUMN_INCHES, 2.7)
    files = figures.write_figure(drawn, folder / "flags_judged")
    caption = "Precision and recall of the flags; bands are 90 % Wilson intervals."
    return Figure("flags_judged", caption, {"truth": chart}, files)


def _comparison(folder: Path, choices: pl.DataFrame) -> list[Figure]:
    found = charts.comparison_charts(choices, SHOWN_METRICS)
    first = next(iter(next(iter(found.values())).values()))
    height = 0.9 + 0.2 * len(first.categories) * max(1, 0.6 * len(first.series))
    size = figures.PAGE_INCHES, height
    panels = list(found.values())
    files = _written(folder, "comparison", bases_of(choices), panels, size, is_stacked=False)
    return [
        Figure(
            f"comparison-{metric}",
            f"{METRIC_NAMES[metric]}: change from the baseline on eval, with 90 % intervals.",
            variants,
            files if number == 0 else (),
        )
        for number, (metric, variants) in enumerate(found.items())
    ]


def _training(folder: Path, courses: Mapping[str, pl.DataFrame]) -> Figure:
    found = charts.training_charts(courses)
    panels = [found[title] for title in _PRINTED_COURSES if title in found]
    drawn = figures.draw_charts(panels, figures.PAGE_INCHES, 2.6, is_stacked=False)
    files = figures.write_figure(drawn, folder / "training")
    return Figure("training", "The course of every training, epoch by epoch.", found, files)


def _written(
    folder: Path,
    name: str,
    bases: Sequence[str],
    panels: Sequence[Mapping[str, Chart]],
    size: tuple[float, float],
    *,
    is_stacked: bool = True,
) -> list[Path]:
    """Write a figure of panels (label names -> chart) for each kind of labels to judge by."""
    files: list[Path] = []
    for labels in bases:
        shown = [panel[BASIS_NAMES[labels]] for panel in panels]
        drawn = figures.draw_charts(shown, *size, is_stacked=is_stacked)
        files += figures.write_figure(drawn, folder / named_by(labels, name))
    return files
