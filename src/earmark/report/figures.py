"""Charts drawn by matplotlib, for papers: the same charts that the report's page draws itself.

Figures are drawn at the width of a journal column or page on a light ground of their own, so that
they read the same on paper, on a light page and on a dark one. Colours are Okabe and Ito's, and a
marker or a line style always says what the colour says. The same charts give the same bytes.
matplotlib comes with earmark[report] and is loaded when the first figure is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.audio import LOG_MEL_RANGE, YAMNET, mel_matrix
from earmark.config import FrontEndParams
from earmark.errors import load_library
from earmark.report.charts import Chart, Point
from earmark.storage import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    from earmark.models import Strip, Tags


COLUMN_INCHES = 3.5
"""Width of a journal's column."""
PAGE_INCHES = 2 * COLUMN_INCHES
_DOTS_PER_INCH = 200
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
_MARKERS = ("o", "^", "D", "v", "P", "*", "X")
"""With ``_COLOURS``, how the series of a figure are told apart."""
_LINES = {"solid": "-", "dashed": "--", "none": ""}
_MOST_IN_LEGEND = 15
"""More names would leave no room to draw."""
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


def draw_charts(
    charts: Sequence[Chart], width_inches: float, height_inches: float, *, is_stacked: bool = True
) -> Figure:
    """Draw charts of the same kind as panels of one figure, on top of each other or side by side.

    Stacked panels share their x axis, and intervals side by side their categories.
    """
    has_categories = charts[0].kind == "intervals"
    draw = {"lines": _draw_lines, "scatter": _draw_scatter, "intervals": _draw_intervals}
    with blank_figure(width_inches, height_inches) as figure:
        shape = (len(charts), 1) if is_stacked else (1, len(charts))
        panels = np.atleast_1d(figure.subplots(*shape, sharex=is_stacked, sharey=has_categories))
        for axes, chart in zip(panels, charts, strict=True):
            draw[chart.kind](axes, chart)
            x_label = chart.x_label if is_stacked else chart.x_label.replace(" from ", "\nfrom ")
            axes.set_xlabel("" if is_stacked and axes is not panels[-1] else x_label)
            axes.set_ylabel("" if has_categories else chart.y_label)
        if charts[0].kind == "scatter":
            panels[0].legend(loc="upper left", handletextpad=0.2)
            _name_points(figure, panels[0], charts[0])
            return figure
        named: dict[str, Any] = {}
        for axes in panels:
            handles, names = axes.get_legend_handles_labels()
            named |= dict(zip(names, handles, strict=True))
        if 1 < len(named) <= _MOST_IN_LEGEND:
            columns = 2 if width_inches < PAGE_INCHES else 3
            figure.legend(
                list(named.values()), list(named), loc="outside lower left", ncols=columns
            )
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


def _draw_lines(axes: Axes, chart: Chart) -> None:
    """Draw curves over x, with the bands of their intervals."""
    for series in chart.series:
        x, y = _ends(series.points, "x"), _ends(series.points, "y")
        low, high = _ends(series.points, "low"), _ends(series.points, "high")
        colour = _COLOURS[series.look % len(_COLOURS)]
        own_marker = _MARKERS[series.look % len(_MARKERS)]
        marker = {"dot": own_marker, "cross": "x", "none": ""}[series.marker]
        line = _LINES[series.line]
        if series.line == "solid":  # more series than colours
            line = ("-", "--", ":", "-.")[series.look // len(_COLOURS) % 4]
        if series.line == "solid" and np.isfinite(low).any():
            axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.plot(
            x, y, linestyle=line, marker=marker, color=colour, markersize=3.5, linewidth=1.1,
            label=literal(series.name),
        )  # fmt: skip
    if chart.x_scale == "root":
        _scale_percents(axes, sorted({one.x for each in chart.series for one in each.points}))


def _draw_scatter(axes: Axes, chart: Chart) -> None:
    """Draw points and the diagonal; the last series, which have few points, lie on top."""
    axes.plot([0, 1], [0, 1], color="#777777", linewidth=0.8, zorder=1)
    for series in chart.series:
        axes.scatter(
            _ends(series.points, "x"), _ends(series.points, "y"), s=16, alpha=0.75, linewidths=0,
            c=_COLOURS[series.look], marker=_MARKERS[series.look], label=literal(series.name),
        )  # fmt: skip
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")


def _draw_intervals(axes: Axes, chart: Chart) -> None:
    """Draw intervals by category, each series a little below that before it."""
    axes.axvline(0, color="#777777", linewidth=0.8)
    for number, series in enumerate(chart.series):
        shift = 0.5 * (number - (len(chart.series) - 1) / 2) / len(chart.series)
        x, y = _ends(series.points, "x"), _ends(series.points, "y") + shift
        colour = _COLOURS[series.look % len(_COLOURS)]
        low, high = _ends(series.points, "low"), _ends(series.points, "high")
        axes.hlines(y, low, high, color=colour, linewidth=1.2)  # it may lie off its value
        marker = _MARKERS[series.look % len(_MARKERS)]
        axes.plot(
            x, y, marker, color=colour, markersize=4, linestyle="", label=literal(series.name)
        )
    axes.set_yticks(range(len(chart.categories)), [literal(name) for name in chart.categories])
    axes.set_ylim(len(chart.categories) - 0.5, -0.5)


def _ends(points: Sequence[Point], name: str) -> NDArray[np.float64]:
    """Return a coordinate of all points, NaN where it is not known."""
    return np.array([getattr(point, name) for point in points], np.float64)


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


def _signed_root(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sign(x) * np.sqrt(np.abs(x)))


def _signed_square(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sign(x) * np.square(x))


def _name_points(figure: Figure, axes: Axes, chart: Chart, n_names: int = 8) -> None:
    """Write the names of the points farthest from the diagonal where they find space."""
    _matplotlib("backends.backend_agg").FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # settles the layout, so that sizes in pixels are final
    bbox = _matplotlib("transforms").Bbox
    points = [point for series in chart.series for point in series.points]
    taken = [legend.get_window_extent() for legend in (axes.get_legend(),) if legend]
    if points:
        pixels = axes.transData.transform([(point.x, point.y) for point in points])
        taken += [bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in pixels]
    for point in sorted(points, key=lambda point: -abs(point.y - point.x)):
        if n_names == 0 or point.x == point.y:
            return
        n_names -= _name_point(axes, point.told[0], point.x, point.y, taken)


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


def _our_style() -> AbstractContextManager[None]:
    style: AbstractContextManager[None] = _matplotlib("").rc_context(STYLE)
    return style


def _matplotlib(part: str) -> Any:
    """Load a part of matplotlib: only those who draw need to have it."""
    return load_library(f"matplotlib.{part}".rstrip("."), "drawing figures", "report")


_LONGEST_NAME = 28
"""Letters of a class's name that are shown."""

_FREQUENCY_TICKS_HZ = (250, 500, 1_000, 2_000, 4_000)


def timeline_figure(tags: Tags, n_classes: int = 5) -> Figure:
    """Draw a file's log-mel frames, and the output for its best-scored classes over time.

    Time is in seconds. Every class is a row from light (0) to dark (1), named with its score; a
    patch's output is drawn at its middle, half a patch long.
    """
    params = tags.card.front_end or YAMNET
    chosen = tags.top_columns(n_classes)
    with blank_figure(7.0, 1.9 + 0.22 * len(chosen)) as figure:
        heights = (1.3, 0.22 * len(chosen))
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=heights)
        _draw_log_mel(upper, tags, params)
        _draw_outputs(figure, lower, tags, params, chosen)
        upper.set_title(literal(tags.path.name), loc="left", fontsize=9)
        lower.set_xlim(0, tags.seconds)
        lower.set_xlabel("seconds")
    return figure


def _draw_log_mel(axes: Axes, tags: Tags, params: FrontEndParams) -> None:
    edges = _edges(tags.log_mel, params.hop_seconds, 0.0, tags.seconds)
    low, high = LOG_MEL_RANGE
    frames = tags.log_mel.columns[: len(edges) - 1].T
    bands = np.arange(params.n_bands + 1) - 0.5
    axes.pcolormesh(edges, bands, frames, vmin=low, vmax=high, cmap="magma", rasterized=True)
    axes.set_yticks(_bands_of(_FREQUENCY_TICKS_HZ, params), [_kilo(f) for f in _FREQUENCY_TICKS_HZ])
    axes.set_ylabel("kHz")
    axes.grid(visible=False)


def _draw_outputs(
    figure: Figure, axes: Axes, tags: Tags, params: FrontEndParams, chosen: list[int]
) -> None:
    hop = params.patch_hop_samples / params.sample_rate_hz
    middle = params.patch_samples / params.sample_rate_hz / 2
    edges = _edges(tags.outputs, hop, middle - hop / 2, tags.seconds)
    outputs = tags.outputs.columns[: len(edges) - 1, chosen].T
    rows = np.arange(len(chosen) + 1) - 0.5
    image = axes.pcolormesh(edges, rows, outputs, vmin=0, vmax=1, cmap="Blues", rasterized=True)
    names = [f"{_short(tags.card.class_names[i])}  {tags.scores[i]:.2f}" for i in chosen]
    axes.set_yticks(range(len(chosen)), names)
    axes.hlines(rows[1:-1], 0, tags.seconds, color="white", linewidth=1.5)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, ticks=[0, 0.5, 1], aspect=8, pad=0.01, label="output")


def _edges(strip: Strip, step: float, first: float, end: float) -> NDArray[np.float64]:
    """Return the times between a strip's columns; the outermost reach to the file's ends."""
    inner = first + np.arange(1, len(strip.columns)) * step * strip.steps_per_column
    return np.concatenate([[0.0], inner[inner < end], [end]])


def _bands_of(frequencies_hz: tuple[int, ...], params: FrontEndParams) -> NDArray[np.int64]:
    """Return the band in which each frequency weighs most."""
    bins = np.round(np.array(frequencies_hz) * params.fft_samples / params.sample_rate_hz)
    return np.asarray(mel_matrix(params)[bins.astype(int)].argmax(axis=1))


def _kilo(hz: int) -> str:
    return f"{hz / 1000:g}"


def _short(name: str) -> str:
    return literal(name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…")
