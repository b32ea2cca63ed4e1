"""The paper's figures and ours, each a function from tables to a matplotlib ``Figure``.

Figures are drawn at the width of a journal column on a light ground of their own, so that they
read the same on paper, on a light page and on a dark one. Colours are Okabe and Ito's, and a
marker or a line style always says what the colour says. The same tables give the same bytes.
matplotlib comes with earmark[report] and is loaded when the first figure is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, load_library
from earmark.report.results import (
    COURSE_NAMES,
    METRIC_NAMES,
    PRIOR_GROUPS,
    flags_judged_table,
    mean_over_seeds,
    within_class_metric,
)
from earmark.runs import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.transforms import Bbox

COLUMN_INCHES = 3.5
"""Width of a journal's column."""
_PAGE_INCHES = 2 * COLUMN_INCHES
_DOTS_PER_INCH = 200
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKERS = ("o", "^", "D", "v", "P", "*", "X")
"""With ``COLOURS``, how the lines of a figure are told apart."""
_GROUP_LOOKS = {"large": ("#D55E00", "D"), "medium": ("#009E73", "^"), "small": ("#0072B2", "o")}
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "earmark",  # otherwise identifiers in the SVG are drawn at random
}
"""How matplotlib draws all figures."""


def performance_figure(results: pl.DataFrame, labels: str = "given") -> Figure:
    """Draw figure 2: d′ and lwlrap on the eval split against the discard percent.

    One line per student and train set, its mean over seeds with the band of the 90 % interval;
    the baseline is a square, the random control a cross, lwlrap after calibration a thin dashed
    line. The horizontal axis is spaced by square roots, so that 0 fits on it and the crowd of
    points below 1 % comes apart. ``labels`` says which labels the students were judged by.
    """
    means = mean_over_seeds(results.filter(split="eval", labels=labels))
    if means.is_empty():
        raise EarmarkError(f"no results on the eval split by the labels {labels!r}: sweep first")
    lines = _lines(means)
    with blank_figure(COLUMN_INCHES, 4.9) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True)
        _draw_metric(upper, means, lines, within_class_metric(means))
        _draw_metric(lower, means, lines, "lwlrap")
        for line in lines:
            calibrated = line.rows(means, "lwlrap_calibrated")
            x, y = calibrated["discard_percent"], calibrated["value"]
            lower.plot(x, y, "--", color=line.colour, linewidth=0.8)
        _scale_percents(lower, means["discard_percent"].unique().sort().to_list())
        figure.legend(handles=_performance_legend(means, lines), loc="outside lower left", ncols=2)
    return figure


def per_class_figure(changes: pl.DataFrame, percent: float, n_names: int = 8) -> Figure:
    """Draw every class's lwlrap at an operating point against its baseline, by size of class.

    ``changes`` has the columns name, baseline, chosen and group (see :func:`prior_groups`).
    Classes above the diagonal improved. The most changed ones are named, as many of ``n_names``
    as find room.
    """
    changes = changes.filter(pl.col("baseline").is_finite() & pl.col("chosen").is_finite())
    with blank_figure(COLUMN_INCHES, 3.4) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#777777", linewidth=0.8, zorder=1)
        for group in reversed(PRIOR_GROUPS):  # the few large classes come last, on top
            rows = changes.filter(group=group)
            colour, marker = _GROUP_LOOKS[group]
            axes.scatter(
                rows["baseline"], rows["chosen"], s=16, c=colour, marker=marker, alpha=0.75,
                linewidths=0, label=f"{group} ({len(rows)})",
            )  # fmt: skip
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axes.set(xlabel="lwlrap, baseline", ylabel=f"lwlrap, {percent:g} % ignored")
        axes.legend(title="class prior", loc="upper left", title_fontsize=7, handletextpad=0.2)
        _name_points(figure, axes, changes, n_names)
    return figure


def flags_judged_figure(judged: pl.DataFrame) -> Figure:
    """Draw precision and recall of the flags, by the known truth, against the discard percent.

    ``judged`` has the columns discard_percent, n_flags, n_right (flags that are missing labels)
    and n_missing (all missing labels); bands are 90 % Wilson intervals.
    """
    table = flags_judged_table(judged)
    if table.is_empty():
        raise EarmarkError("no flags to judge: the table has no operating point above 0 percent")
    percents = table["discard_percent"].to_list()
    curves = (
        ("precision", "precision: flags that are missing labels", COLOURS[0], "o-"),
        ("recall", "recall: missing labels that are flagged", COLOURS[1], "^--"),
    )
    with blank_figure(COLUMN_INCHES, 2.7) as figure:
        axes = figure.subplots()
        for name, label, colour, look in curves:
            low, high = table[f"{name}_low"], table[f"{name}_high"]
            axes.fill_between(percents, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(percents, table[name], look, color=colour, markersize=3, lw=1.2, label=label)
        axes.set(ylim=(0, 1), ylabel="share")
        _scale_percents(axes, percents)
        figure.legend(loc="outside lower left", ncols=1)
    return figure


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
    height = 0.9 + 0.2 * len(names) * max(1, 0.6 * len(lines))
    with blank_figure(_PAGE_INCHES, height) as figure:
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
    with blank_figure(_PAGE_INCHES, 2.3) as figure:
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


def training_figure(courses: Mapping[str, pl.DataFrame], most_named: int = 15) -> Figure:
    """Draw every network's loss over its epochs, and lwlrap on tune where it was measured."""
    if not courses:
        raise EarmarkError("no course of a training to draw: train first")
    measures = ("loss", "tune_lwlrap")
    there = [name for name in measures if any(name in one.columns for one in courses.values())]
    with blank_figure(_PAGE_INCHES, 2.6) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(there)))
        for axes, measure in zip(panels, there, strict=True):
            for place, (name, course) in enumerate(courses.items()):
                if measure in course.columns:
                    _draw_course(axes, name, course, measure, place)
            axes.set(xlabel="epoch", ylabel=COURSE_NAMES[measure])
        handles, shown = panels[0].get_legend_handles_labels()
        if len(courses) <= most_named:  # more names would leave no room to draw
            figure.legend(handles, shown, loc="outside lower left", ncols=3)
    return figure


def write_figure(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write ``path``.png and ``path``.svg, each whole or not at all, and return the two paths."""
    png, svg = Path(f"{path}.png"), Path(f"{path}.svg")
    write_png(figure, png)
    with _our_style(), write_aside(svg) as aside:
        figure.savefig(aside, format="svg", metadata={"Date": None, "Creator": "earmark"})
    return png, svg


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all; the same figure gives the same bytes."""
    with _our_style(), write_aside(path) as aside:
        figure.savefig(aside, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": "earmark"})


def check_drawing() -> None:
    """Say which part of earmark to install where figures cannot be drawn."""
    _matplotlib("")


@contextmanager
def blank_figure(width_inches: float, height_inches: float) -> Iterator[Figure]:
    """Give an empty figure to draw into, in the style that all figures share."""
    size = (width_inches, height_inches)
    with _our_style():
        yield _matplotlib("figure").Figure(size, layout="constrained")


def literal(text: str) -> str:
    """Keep dollar signs in names from being read as formulas."""
    return text.replace("$", r"\$")


@dataclass(frozen=True)
class _Line:
    """One student on one train set, and how its line looks."""

    student: str
    train_set: str
    colour: str
    marker: str

    @property
    def label(self) -> str:
        return literal(f"{self.student}, {self.train_set}")

    def rows(self, means: pl.DataFrame, metric: str, kind: str = "mask") -> pl.DataFrame:
        return means.filter(
            (pl.col("student") == self.student)
            & (pl.col("train_set") == self.train_set)
            & (pl.col("metric") == metric)
            & (pl.col("kind") == kind)
        ).sort("discard_percent")


def _lines(means: pl.DataFrame) -> list[_Line]:
    pairs = means.select("student", "train_set").unique(maintain_order=True).rows()
    return [
        _Line(student, train_set, COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        for i, (student, train_set) in enumerate(pairs)
    ]


def _draw_metric(axes: Axes, means: pl.DataFrame, lines: Sequence[_Line], metric: str) -> None:
    for line in lines:
        rows = line.rows(means, metric)
        x, y = rows["discard_percent"].to_numpy(), rows["value"].to_numpy()
        axes.fill_between(x, rows["low"], rows["high"], color=line.colour, alpha=0.12, linewidth=0)
        axes.plot(x, y, color=line.colour, marker=line.marker, markersize=3, linewidth=1.2)
        axes.plot(x[:1], y[:1], "s", color=line.colour, markersize=6)
        control = line.rows(means, metric, kind="random")
        x, y = control["discard_percent"].to_numpy(), control["value"].to_numpy()
        axes.plot(x, y, "x", color=line.colour, markersize=5, markeredgewidth=1.3, zorder=3)
    axes.set_ylabel(METRIC_NAMES[metric])


def _performance_legend(means: pl.DataFrame, lines: Sequence[_Line]) -> list[Line2D | Patch]:
    line_2d, patch = _matplotlib("lines").Line2D, _matplotlib("patches").Patch
    handles: list[Line2D | Patch] = [
        line_2d([], [], color=line.colour, marker=line.marker, markersize=3, label=line.label)
        for line in lines
    ]
    grey = "#555555"
    handles.append(
        line_2d([], [], color=grey, marker="s", linestyle="", markersize=5, label="baseline")
    )
    if "random" in means["kind"]:
        handles.append(
            line_2d([], [], color=grey, marker="x", linestyle="", label="random control")
        )
    if "lwlrap_calibrated" in means["metric"]:
        handles.append(
            line_2d([], [], color=grey, linestyle="--", lw=0.8, label="lwlrap, calibrated")
        )
    handles.append(patch(color=grey, alpha=0.2, linewidth=0, label="90 % interval"))
    return handles


def _scale_percents(axes: Axes, percents: Sequence[float]) -> None:
    """Space percents by their square roots; mark every point and name those that find room."""
    last = max(*percents, 1.0) ** 0.5
    axes.set_xscale("function", functions=(_signed_root, _signed_square))
    axes.set_xlim(-((0.03 * last) ** 2), (1.03 * last) ** 2)
    named: list[float] = []
    for percent in sorted(percents, key=lambda percent: (f"{percent:e}"[0] not in "0125", percent)):
        if all(abs(percent**0.5 - other**0.5) > 0.06 * last for other in named):
            named.append(percent)
    ticker = _matplotlib("ticker")
    axes.xaxis.set_major_locator(ticker.FixedLocator(sorted(named)))
    axes.xaxis.set_minor_locator(ticker.FixedLocator(list(percents)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda percent, _: f"{percent:g}"))
    axes.set_xlabel("implicit labels ignored, % (square-root scale)")


def _signed_root(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sign(x) * np.sqrt(np.abs(x)))


def _signed_square(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sign(x) * np.square(x))


def _name_points(figure: Figure, axes: Axes, changes: pl.DataFrame, n_names: int) -> None:
    """Write the names of the most changed classes where they cover nothing and stay inside."""
    _matplotlib("backends.backend_agg").FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # settles the layout, so that sizes in pixels are final
    bbox = _matplotlib("transforms").Bbox
    points = axes.transData.transform(changes.select("baseline", "chosen").to_numpy())
    taken = [bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in points]
    taken += [legend.get_window_extent() for legend in (axes.get_legend(),) if legend]
    change = (pl.col("chosen") - pl.col("baseline")).abs()
    for row in changes.sort(change, descending=True, maintain_order=True).iter_rows(named=True):
        if n_names == 0 or row["chosen"] == row["baseline"]:
            return
        n_names -= _name_point(axes, row["name"], row["baseline"], row["chosen"], taken)


def _name_point(axes: Axes, name: str, x: float, y: float, taken: list[Bbox]) -> bool:
    short = name if len(name) <= 22 else f"{name[:21]}…"
    outward = 1 if y < x else -1  # away from the diagonal
    places = ((outward, 0), (0, -outward), (-outward, 0), (0, outward))
    for right, up in places:
        text = axes.annotate(
            short, (x, y), (5 * right, 5 * up), textcoords="offset points", fontsize=6,
            ha=("center", "left", "right")[right], va=("center", "bottom", "top")[up],
            color="#333333", parse_math=False,
        )  # fmt: skip
        text.set_in_layout(False)
        box = text.get_window_extent()
        is_inside = axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
        if is_inside and not any(box.overlaps(other) for other in taken):
            taken.append(box)
            return True
        text.remove()
    return False


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
    (line,) = axes.plot(course["epoch"], course[measure], style, linewidth=1.1, label=literal(name))
    line.set_color(COLOURS[place % len(COLOURS)])


def _our_style() -> AbstractContextManager[None]:
    style: AbstractContextManager[None] = _matplotlib("").rc_context(STYLE)
    return style


def _matplotlib(part: str) -> Any:
    """Load a part of matplotlib: only those who draw need to have it."""
    return load_library(f"matplotlib.{part}".rstrip("."), "drawing figures", "report")
