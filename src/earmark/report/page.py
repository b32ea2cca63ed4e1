"""One self-contained page that tells what a run found, can be heard, and needs no network.

Every number in a sentence is computed from the results, the verdict included. Beside the page lie
its figures and tables as files, for use elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from earmark.report import charts, figures
from earmark.report.charts import Chart
from earmark.report.contents import LineChanges, ReportContents
from earmark.report.methods import methods_text
from earmark.report.rendering import flag_picture, flag_sound, render
from earmark.report.results import (
    BASIS_NAMES,
    METRIC_NAMES,
    SHOWN_METRICS,
    bases_of,
    label_counts,
    named_by_role,
)
from earmark.report.sentences import comparison_told, flags_told, numbers_told, sentences
from earmark.report.tables import Table, named_by, report_tables, write_tables
from earmark.report.verdict import noise_note
from earmark.runs import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


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

    def pictures(self) -> list[bytes]:
        """Return its SVG files, for readers whose browser runs no scripts."""
        return [path.read_bytes() for path in self.files if path.suffix == ".svg"]

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

    Parts are performance, classes, flags_judged, comparison, rounds and training; one in which
    there is nothing to draw is empty.
    """
    results, judged, choices = contents.results, contents.judged, contents.choices
    rounds, lines = contents.rounds, contents.line_changes()
    return {
        "performance": [] if results is None else _performance(folder, results),
        "classes": [_classes(folder, lines)] if lines else [],
        "flags_judged": [] if judged is None else [_flags_judged(folder, judged)],
        "comparison": [] if choices is None else _comparison(folder, named_by_role(choices)),
        "rounds": [] if rounds is None else _rounds(folder, rounds),
        "training": [_training(folder, contents.courses)] if contents.courses else [],
    }


def _page(
    contents: ReportContents, tables: Sequence[Table], drawn: Mapping[str, Sequence[Figure]]
) -> str:
    by_name = {table.name: table for table in tables}
    return render(
        "report.html",
        contents=contents,
        tables=by_name,
        drawn=drawn,
        basis_names=BASIS_NAMES,
        points=contents.thresholds["discard_percent"].unique().sort().to_list(),
        data={"charts": _charts_json(drawn), "ignored": _ignored_by_point(contents)},
        picture=flag_picture,
        sound=flag_sound(contents.sample_rate_hz),
        **_told(contents, by_name),
    )


def _told(contents: ReportContents, tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return what the page says, by the place where it says it; nothing of what was not run."""
    results, choices, judged = contents.results, contents.choices, tables.get("flags_judged")
    return {
        "told": sentences(results, choices, contents.rounds),
        "numbers": {} if results is None else numbers_told(results),
        "noise": "" if results is None else noise_note(results),
        "comparison": "" if choices is None else comparison_told(choices),
        "judged": "" if judged is None else flags_told(judged.values, contents.flag_percent),
        "methods": methods_text(results, contents.provenance, choices, contents.rounds),
    }


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
    files = _written(
        folder, "performance", results, lambda by: figures.performance_figure(results, by)
    )
    # The files show both of the paper's metrics at once, so the first figure alone has them.
    return [
        Figure(
            f"performance-{metric}",
            f"{METRIC_NAMES[metric]} on eval; bands are 90 % intervals.",
            variants,
            files if place == 0 else (),
        )
        for place, (metric, variants) in enumerate(charts.performance_charts(results).items())
    ]


def _classes(folder: Path, lines: Sequence[LineChanges]) -> Figure:
    files: list[Path] = []
    for line in lines:
        name = re.sub(r"[^\w.-]+", "_", f"per_class_{line.student}_{line.train_set}")
        drawn = figures.per_class_figure(line.changes, line.percent)
        files += figures.write_figure(drawn, folder / name)
    variants = {line.name: charts.classes_chart(line.changes, line.percent) for line in lines}
    caption = "Every class's lwlrap against its baseline; classes above the diagonal improved."
    return Figure("classes", caption, variants, files)


def _flags_judged(folder: Path, judged: pl.DataFrame) -> Figure:
    files = figures.write_figure(figures.flags_judged_figure(judged), folder / "flags_judged")
    caption = "Precision and recall of the flags; bands are 90 % Wilson intervals."
    return Figure("flags_judged", caption, {"truth": charts.flags_chart(judged)}, files)


def _comparison(folder: Path, choices: pl.DataFrame) -> list[Figure]:
    metrics = [metric for metric in SHOWN_METRICS if metric in choices["metric"]]
    files = _written(
        folder,
        "comparison",
        choices,
        lambda by: figures.comparison_figure(choices, metrics, by),
    )
    found = charts.comparison_charts(choices, metrics)
    return [
        Figure(
            f"comparison-{metric}",
            f"{METRIC_NAMES[metric]}: change from the baseline on eval, with 90 % intervals.",
            variants,
            files if place == 0 else (),
        )
        for place, (metric, variants) in enumerate(found.items())
    ]


def _rounds(folder: Path, rounds: pl.DataFrame) -> list[Figure]:
    metrics = [metric for metric in SHOWN_METRICS if metric in rounds["metric"]]
    files = _written(
        folder, "rounds", rounds, lambda by: figures.rounds_figure(rounds, metrics, by)
    )
    return [
        Figure(
            f"rounds-{metric}",
            f"{METRIC_NAMES[metric]} by round, the student being the next teacher.",
            {
                BASIS_NAMES[labels]: charts.rounds_chart(rounds.filter(labels=labels), metric)
                for labels in bases_of(rounds)
            },
            files if place == 0 else (),
        )
        for place, metric in enumerate(metrics)
    ]


def _training(folder: Path, courses: Mapping[str, pl.DataFrame]) -> Figure:
    files = figures.write_figure(figures.training_figure(courses), folder / "training")
    caption = "The course of every training, epoch by epoch."
    return Figure("training", caption, charts.training_charts(courses), files)


def _written(
    folder: Path, name: str, rows: pl.DataFrame, draw: Callable[[str], Drawing]
) -> list[Path]:
    """Write the figure that ``draw`` makes by each kind of labels that rows are judged by."""
    return [
        path
        for labels in bases_of(rows)
        for path in figures.write_figure(draw(labels), folder / named_by(labels, name))
    ]
