"""The paper's figures and ours, each a function from tables to a matplotlib ``Figure``.

Figures are drawn at the width of a journal column on a light ground of their own, so that they
read the same on paper, on a light page and on a dark one. Colours are Okabe and Ito's, and a
marker or a line style always says what the colour says. The same tables give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from earmark.errors import EarmarkError
from earmark.metrics import wilson_interval
from earmark.runs.artefacts import write_aside

PAPER_PRIOR_CUTOFFS = (0.00325, 0.01)
"""The paper's limits of small and large classes in AudioSet: prior below, prior above."""

PRIOR_GROUPS = ("large", "medium", "small")

METRIC_NAMES = {
    "d_prime_explicit": "d′ (explicit labels)",
    "lwlrap": "lwlrap",
    "lwlrap_calibrated": "lwlrap, calibrated",
    "lwlrap_fitted": "lwlrap, fitted offsets",
    "d_prime_all": "d′ (all labels)",
    "map": "mAP",
}
"""How metrics are called where people read, in the order in which they are shown."""

COLUMN_INCHES = 3.5
"""Width of a journal's column."""
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
LOG_MEL_RANGE = (-6.9, 3.0)
"""Levels of log-mel pictures, from silence to a loud tone: the same, so they can be compared."""
_LOG_MEL_COLOURS = 64  # enough for the eye, and a third of the bytes of full colour
_PATCH_COLOUR = (86, 180, 233)  # sky blue does not occur in the magma colour map


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
    with rc_context(STYLE):
        figure = Figure((COLUMN_INCHES, 4.9), layout="constrained")
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
    with rc_context(STYLE):
        figure = Figure((COLUMN_INCHES, 3.4), layout="constrained")
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
    judged = judged.filter(pl.col("n_flags") > 0).sort("discard_percent")
    if judged.is_empty():
        raise EarmarkError("no flags to judge: the table has no operating point above 0 percent")
    percents = judged["discard_percent"].to_list()
    n_right = judged["n_right"].to_numpy()
    curves = (
        ("precision: flags that are missing labels", "n_flags", COLOURS[0], "o-"),
        ("recall: missing labels that are flagged", "n_missing", COLOURS[1], "^--"),
    )
    with rc_context(STYLE):
        figure = Figure((COLUMN_INCHES, 2.7), layout="constrained")
        axes = figure.subplots()
        for label, total, colour, look in curves:
            n_total = judged[total].to_numpy()
            low, high = wilson_interval(n_right, n_total)
            axes.fill_between(percents, low, high, color=colour, alpha=0.15, linewidth=0)
            share = n_right / np.maximum(n_total, 1)
            axes.plot(percents, share, look, color=colour, markersize=3, lw=1.2, label=label)
        axes.set(ylim=(0, 1), ylabel="share")
        _scale_percents(axes, percents)
        figure.legend(loc="outside lower left", ncols=1)
    return figure


def log_mel_png(
    frames: ArrayLike,
    best_patch: tuple[int, int] | None = None,
    width: int = 320,
    height: int = 100,
) -> bytes:
    """Return a small PNG of a clip's log-mel frames [frame, band], low bands at the bottom.

    Colours run from silence to a loud tone, the same in every picture. ``best_patch`` (first
    frame and the one after the last) is framed. No frames give a picture of silence.
    """
    frames = np.asarray(frames, np.float32)
    low, high = LOG_MEL_RANGE
    n_frames = len(frames)
    if n_frames == 0:
        frames = np.full((1, 1), low, np.float32)
    columns = np.arange(width) * len(frames) // width
    bands = np.arange(height)[::-1] * frames.shape[1] // height
    picture = frames[columns[None, :], bands[:, None]]  # [height, width]
    levels = np.clip((picture - low) / (high - low), 0, 1) * (_LOG_MEL_COLOURS - 1)
    pixels = np.rint(np.nan_to_num(levels)).astype(np.uint8)
    if best_patch is not None and n_frames:
        start, end = (round(frame * width / n_frames) for frame in best_patch)
        _frame_pixels(pixels, max(start, 0), min(end, width))
    return _palette_png(pixels)


def write_figure(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write ``path``.png and ``path``.svg, each whole or not at all, and return the two paths."""
    png, svg = Path(f"{path}.png"), Path(f"{path}.svg")
    write_png(figure, png)
    with rc_context(STYLE), write_aside(svg) as aside:
        figure.savefig(aside, format="svg", metadata={"Date": None, "Creator": "earmark"})
    return png, svg


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all; the same figure gives the same bytes."""
    with rc_context(STYLE), write_aside(path) as aside:
        figure.savefig(aside, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": "earmark"})


def mean_over_seeds(results: pl.DataFrame) -> pl.DataFrame:
    """Return one row per student, point, basis and metric, whatever the seeds.

    A sweep's summary is that already, its intervals over clips and seeds. Of rows by seed, values
    and the ends of intervals are averaged: they tell how results vary with the clips alone.
    """
    if "n_seeds" in results.columns:
        return results
    keys = ["student", "train_set", "kind", "discard_percent", "split", "labels", "metric"]
    numbers = ["value", "low", "high", "difference", "difference_low", "difference_high"]
    return results.group_by(keys, maintain_order=True).agg(pl.col(numbers).mean())


def count_seeds(results: pl.DataFrame) -> int:
    """Return the number of training runs behind each point, by seed or summarised."""
    if "n_seeds" in results.columns:
        return int(results["n_seeds"].max() or 0)  # type: ignore[arg-type]
    return results["seed"].n_unique()


def within_class_metric(results: pl.DataFrame) -> str:
    """Return the d′ of the paper, or d′ over all labels where explicit ones do not suffice."""
    explicit = results.filter(pl.col("metric") == "d_prime_explicit")["value"]
    return "d_prime_explicit" if explicit.is_finite().any() else "d_prime_all"


def prior_cutoffs(priors: ArrayLike) -> tuple[float, float]:
    """Return the priors below which a class is small and above which it is large.

    These are the paper's where they leave none of the three groups empty; elsewhere the priors'
    terciles.

    >>> prior_cutoffs([0.001, 0.005, 0.02])
    (0.00325, 0.01)
    >>> prior_cutoffs([0.1, 0.2, 0.3, 0.4])
    (0.2, 0.3)
    """
    priors = np.asarray(priors, np.float64)
    groups = set(prior_groups(priors, PAPER_PRIOR_CUTOFFS))
    if not groups or groups == set(PRIOR_GROUPS):
        return PAPER_PRIOR_CUTOFFS
    low, high = np.quantile(priors, [1 / 3, 2 / 3])
    return round(float(low), 12), round(float(high), 12)


def prior_groups(priors: ArrayLike, cutoffs: tuple[float, float]) -> list[str]:
    """Return ``small``, ``medium`` or ``large`` for each class: strictly below, strictly above."""
    small_below, large_above = cutoffs
    priors = np.asarray(priors, np.float64)
    groups = np.where(priors < small_below, "small", "medium")
    return [str(group) for group in np.where(priors > large_above, "large", groups)]


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
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=line.colour, marker=line.marker, markersize=3, label=line.label)
        for line in lines
    ]
    grey = "#555555"
    handles.append(
        Line2D([], [], color=grey, marker="s", linestyle="", markersize=5, label="baseline")
    )
    if "random" in means["kind"]:
        handles.append(Line2D([], [], color=grey, marker="x", linestyle="", label="random control"))
    if "lwlrap_calibrated" in means["metric"]:
        handles.append(
            Line2D([], [], color=grey, linestyle="--", lw=0.8, label="lwlrap, calibrated")
        )
    handles.append(Patch(color=grey, alpha=0.2, linewidth=0, label="90 % interval"))
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
    axes.xaxis.set_major_locator(FixedLocator(sorted(named)))
    axes.xaxis.set_minor_locator(FixedLocator(list(percents)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda percent, _: f"{percent:g}"))
    axes.set_xlabel("implicit labels ignored, % (square-root scale)")


def _signed_root(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sign(x) * np.sqrt(np.abs(x)))


def _signed_square(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sign(x) * np.square(x))


def _name_points(figure: Figure, axes: Axes, changes: pl.DataFrame, n_names: int) -> None:
    """Write the names of the most changed classes where they cover nothing and stay inside."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # settles the layout, so that sizes in pixels are final
    points = axes.transData.transform(changes.select("baseline", "chosen").to_numpy())
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in points]
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


def _frame_pixels(pixels: NDArray[np.uint8], start: int, end: int) -> None:
    """Draw the outline of the columns ``start:end``, two pixels wide, in place."""
    pixels[:2, start:end] = pixels[-2:, start:end] = _LOG_MEL_COLOURS
    pixels[:, start : start + 2] = pixels[:, max(end - 2, 0) : end] = _LOG_MEL_COLOURS


def _palette_png(pixels: NDArray[np.uint8]) -> bytes:
    shades = colormaps["magma"](np.linspace(0, 1, _LOG_MEL_COLOURS), bytes=True)[:, :3]
    image = Image.fromarray(pixels).convert("P")
    image.putpalette([*shades.ravel().tolist(), *_PATCH_COLOUR])
    png = io.BytesIO()
    image.save(png, format="png", optimize=True)
    return png.getvalue()


def literal(text: str) -> str:
    """Keep dollar signs in names from being read as formulas."""
    return text.replace("$", r"\$")
