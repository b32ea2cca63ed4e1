"""A picture of what a network heard in a sound file: log-mel frames, and outputs over time.

It is drawn by matplotlib, which comes with earmark[report] and is loaded when it is drawn.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earmark.audio import LOG_MEL_RANGE, YAMNET, mel_matrix
from earmark.config import FrontEndParams
from earmark.errors import load_library
from earmark.storage import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from earmark.models import Strip, Tags

_DOTS_PER_INCH = 200
_STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "figure.facecolor": "white",
}
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
    with _style():
        size = (7.0, 1.9 + 0.22 * len(chosen))
        figure: Figure = _matplotlib("figure").Figure(size, layout="constrained")
        heights = (1.3, 0.22 * len(chosen))
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=heights)
        _draw_log_mel(upper, tags, params)
        _draw_outputs(figure, lower, tags, params, chosen)
        upper.set_title(_literal(tags.path.name), loc="left", fontsize=9)
        lower.set_xlim(0, tags.seconds)
        lower.set_xlabel("seconds")
    return figure


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all; the same figure gives the same bytes."""
    with _style(), write_aside(path) as aside:
        figure.savefig(aside, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": "earmark"})


def _draw_log_mel(axes: Axes, tags: Tags, params: FrontEndParams) -> None:
    edges = _edges(tags.log_mel, params.hop_seconds, 0.0, tags.seconds)
    low, high = LOG_MEL_RANGE
    frames = tags.log_mel.columns[: len(edges) - 1].T
    bands = np.arange(params.n_bands + 1) - 0.5
    axes.pcolormesh(edges, bands, frames, vmin=low, vmax=high, cmap="magma", rasterized=True)
    axes.set_yticks(
        _bands_of(_FREQUENCY_TICKS_HZ, params), [f"{hz / 1000:g}" for hz in _FREQUENCY_TICKS_HZ]
    )
    axes.set_ylabel("kHz")


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
    figure.colorbar(image, ax=axes, ticks=[0, 0.5, 1], aspect=8, pad=0.01, label="output")


def _edges(strip: Strip, step: float, first: float, end: float) -> NDArray[np.float64]:
    """Return the times between a strip's columns; the outermost reach to the file's ends."""
    inner = first + np.arange(1, len(strip.columns)) * step * strip.steps_per_column
    return np.concatenate([[0.0], inner[inner < end], [end]])


def _bands_of(frequencies_hz: tuple[int, ...], params: FrontEndParams) -> NDArray[np.int64]:
    """Return the band in which each frequency weighs most."""
    bins = np.round(np.array(frequencies_hz) * params.fft_samples / params.sample_rate_hz)
    return np.asarray(mel_matrix(params)[bins.astype(int)].argmax(axis=1))


def _short(name: str) -> str:
    return _literal(name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…")


def _literal(text: str) -> str:
    """Keep dollar signs in names from being read as formulas."""
    return text.replace("$", r"\$")


def _style() -> AbstractContextManager[None]:
    style: AbstractContextManager[None] = _matplotlib("").rc_context(_STYLE)
    return style


def _matplotlib(part: str) -> Any:
    """Load a part of matplotlib: only those who draw need to have it."""
    return load_library(f"matplotlib.{part}".rstrip("."), "drawing a timeline", "report")
