"""All figures of a report: as files for papers, and as charts that its page draws."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from earmark.report import charts, figures
from earmark.report.contents import LineChanges
from earmark.report.figures import write_figure
from earmark.report.page_parts import Figure
from earmark.report.results import (
    BASIS_NAMES,
    METRIC_NAMES,
    SHOWN_METRICS,
    bases_of,
    named_by_role,
)
from earmark.report.tables import named_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def write_figures(
    folder: Path,
    results: pl.DataFrame | None,
    lines: Sequence[LineChanges],
    *,
    judged: pl.DataFrame | None = None,
    choices: pl.DataFrame | None = None,
    rounds: pl.DataFrame | None = None,
    courses: Mapping[str, pl.DataFrame] | None = None,
) -> dict[str, list[Figure]]:
    """Write every figure as PNG and SVG, and return them by the part of the report they are in.

    Parts, where there is something to draw: performance, classes, flags_judged, comparison, rounds
    and training.
    """
    drawn: dict[str, list[Figure]] = {}
    if results is not None:
        drawn["performance"] = _performance(folder, results)
    if lines:
        drawn["classes"] = [_classes(folder, lines)]
    if judged is not None:
        drawn["flags_judged"] = [_flags_judged(folder, judged)]
    if choices is not None:
        drawn["comparison"] = _comparison(folder, named_by_role(choices))
    if rounds is not None:
        drawn["rounds"] = _rounds(folder, rounds)
    if courses:
        drawn["training"] = [_training(folder, courses)]
    return drawn


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
        files += write_figure(drawn, folder / name)
    variants = {line.name: charts.classes_chart(line.changes, line.percent) for line in lines}
    caption = "Every class's lwlrap against its baseline; classes above the diagonal improved."
    return Figure("classes", caption, variants, files)


def _flags_judged(folder: Path, judged: pl.DataFrame) -> Figure:
    files = write_figure(figures.flags_judged_figure(judged), folder / "flags_judged")
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
    files = write_figure(figures.training_figure(courses), folder / "training")
    caption = "The course of every training, epoch by epoch."
    return Figure("training", caption, charts.training_charts(courses), files)


def _written(
    folder: Path, name: str, rows: pl.DataFrame, draw: Callable[[str], Drawing]
) -> list[Path]:
    """Write the figure that ``draw`` makes by each kind of labels that rows are judged by."""
    return [
        path
        for labels in bases_of(rows)
        for path in write_figure(draw(labels), folder / named_by(labels, name))
    ]
