"""Figures of the researcher's bench: strategies compared, rounds of teaching, and trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earmark.errors import EarmarkError
from earmark.report.figures import COLOURS, COLUMN_INCHES, MARKERS, METRIC_NAMES, STYLE, literal

_PAGE_INCHES = 2 * COLUMN_INCHES


def comparison_figure(
    choices: pl.DataFrame, metrics: Sequence[str], labels: str = "given"
) -> Figure:
    """Draw every strategy's difference from the baseline on eval, one panel for each metric.

    ``choices`` is the table of :class:`earmark.experiments.compare.Comparison`; bars are 90 %
    intervals over clips and seeds. Each student and train set has a colour and a marker.
    """
    rows = choices.filter((pl.col("labels") == labels) & (pl.col("strategy") != "baseline"))
    if rows.is_empty():
        raise EarmarkError(f"no strategies were compared by the labels {labels!r}: compare first")
    names = rows["strategy"].unique(maintain_order=True).to_list()
    lines = rows.select("student", "train_set").unique(maintain_order=True).rows()
    with rc_context(STYLE):
        height = 0.9 + 0.2 * len(names) * max(1, 0.6 * len(lines))
        figure = Figure((_PAGE_INCHES, height), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(metrics), sharey=True))
        for axes, metric in zip(panels, metrics, strict=True):
            axes.axvline(0, color="#777777", linewidth=0.8)
            for place, line in enumerate(lines):
                own = rows.filter(student=line[0], train_set=line[1], metric=metric)
                _draw_intervals(axes, own, names, place, len(lines))
            axes.set_xlabel(f"{METRIC_NAMES[metric]}, change")
        panels[0].set_yticks(range(len(names)), [literal(name) for name in names])
        panels[0].set_ylim(len(names) - 0.5, -0.5)
        if len(lines) > 1:
            handles, shown = panels[0].get_legend_handles_labels()
            figure.legend(handles, shown, loc="outside lower left", ncols=3)
    return figure


def rounds_figure(rounds: pl.DataFrame, metrics: Sequence[str], labels: str = "given") -> Figure:
    """Draw the difference from the baseline on eval after each round, with 90 % bands."""
    own = rounds.filter(split="eval", labels=labels).sort("round")
    if own.is_empty():
        raise EarmarkError(f"no rounds were measured by the labels {labels!r}: iterate first")
    with rc_context(STYLE):
        figure = Figure((_PAGE_INCHES, 2.3), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(metrics)))
        for axes, metric in zip(panels, metrics, strict=True):
            axes.axhline(0, color="#777777", linewidth=0.8)
            parts = own.filter(metric=metric).partition_by("train_set", maintain_order=True)
            for colour, part in zip(COLOURS, parts, strict=False):
                x = part["round"].to_numpy()
                axes.fill_between(
                    x, part["difference_low"], part["difference_high"], color=colour, alpha=0.15
                )
                axes.plot(x, part["difference"], "o-", color=colour, markersize=3)
            axes.set(xlabel="round", ylabel=f"{METRIC_NAMES[metric]}, change")
            axes.set_xticks(own["round"].unique().sort().to_list())
    return figure


def training_figure(courses: Mapping[str, pl.DataFrame]) -> Figure:
    """Draw the loss of every network over its epochs, and lwlrap on tune where it was measured."""
    if not courses:
        raise EarmarkError("no course of a training to draw: train first")
    measures = {"loss": "loss", "tune_lwlrap": "lwlrap on tune"}
    there = [name for name in measures if any(name in one.columns for one in courses.values())]
    with rc_context(STYLE):
        figure = Figure((_PAGE_INCHES, 2.6), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(there)))
        for axes, measure in zip(panels, there, strict=True):
            for place, (name, course) in enumerate(courses.items()):
                if measure in course.columns:
                    _draw_course(axes, name, course, measure, place)
            axes.set(xlabel="epoch", ylabel=measures[measure])
        handles, shown = panels[0].get_legend_handles_labels()
        figure.legend(handles, shown, loc="outside lower left", ncols=3)
    return figure


def _draw_intervals(
    axes: Axes, rows: pl.DataFrame, names: Sequence[str], place: int, n_places: int
) -> None:
    """Draw one student's intervals, a little below those of the student before."""
    shift = 0.5 * (place - (n_places - 1) / 2) / n_places
    y = np.array([names.index(name) for name in rows["strategy"]]) + shift
    value, low, high = (
        rows[name].to_numpy() for name in ("difference", "difference_low", "difference_high")
    )
    colour = COLOURS[place % len(COLOURS)]
    axes.hlines(y, low, high, color=colour, linewidth=1.2)  # an interval may lie off its value
    label = literal(f"{rows['student'][0]}, {rows['train_set'][0]}") if len(rows) else None
    marker = MARKERS[place % len(MARKERS)]
    axes.plot(value, y, marker, color=colour, markersize=4, linestyle="", label=label)


def _draw_course(axes: Axes, name: str, course: pl.DataFrame, measure: str, place: int) -> None:
    style = ("-", "--", ":", "-.")[place // len(COLOURS) % 4]
    colour = COLOURS[place % len(COLOURS)]
    axes.plot(
        course["epoch"], course[measure], style, color=colour, linewidth=1.1, label=literal(name)
    )
