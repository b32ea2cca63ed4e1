"""The figures of the simulation study, from its tables (:mod:`simulation_summary`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from earmark.report import COLOURS, COLUMN_INCHES, MARKERS, METRIC_NAMES, STYLE
from simulation_summary import METRICS, ORACLES, OVER_CONTROL

DATASETS = {"scenes": "synthetic scenes", "esc10": "ESC-10 mixtures"}
SHOWN = {
    "mask": "mask (the paper)",
    "random": "as many at random",
    OVER_CONTROL: "mask less random",
    "soft": "soft",
    "hedge": "hedge",
    "precision/mask": "mask, chance ≥ ½",
    "hill": "Hill loss",
    "oracle/mask": "oracle: missing masked",
    "truth": "oracle: labels complete",
}
"""Strategies as figures name them, from top to bottom; the oracles come last."""
SPLIT_PERCENTS = (1.0, 2.0, 5.0, 10.0, 20.0)
SPLIT_COLOURS = {
    "missing labels": "#56B4E9",
    "decoys beside a sibling": "#E69F00",
    "other decoys": "#BBBBBB",
}


def flags_figure(flags: pl.DataFrame) -> Figure:
    """Draw precision against recall by rank, and what the flags are at each missing rate."""
    datasets = [name for name in DATASETS if name in flags["dataset"]]
    rates = flags["missing_rate"].unique().sort().to_list()
    with rc_context(STYLE):
        figure = Figure((2 * COLUMN_INCHES, 0.4 + 2.2 * len(datasets)), layout="constrained")
        ratios = [1.6, *[1] * len(rates)]
        panels = figure.subplots(
            len(datasets), len(ratios), squeeze=False, sharey=True, width_ratios=ratios
        )
        for (curves, *bars), dataset in zip(panels, datasets, strict=True):
            own = flags.filter(dataset=dataset)
            _draw_curves(curves, own)
            curves.set_title(DATASETS[dataset], loc="left", fontsize=8)
            for axes, rate in zip(bars, rates, strict=True):
                _draw_split(axes, own.filter(missing_rate=rate))
                axes.set_xlabel("implicit labels flagged, %", fontsize=7)
                axes.set_title(f"{100 * rate:.0f} % of labels missing", loc="left", fontsize=7)
            bars[0].set_ylabel("share of flags")
            bars[0].tick_params(labelleft=True)
        handles, labels = panels[0, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower right", ncols=3)
    return figure


def gains_figure(gains: pl.DataFrame, n_train: int) -> Figure:
    """Draw the gains of all strategies at one train size, with their intervals.

    Each metric has one scale, whatever the source and the train size. A hollow marker says that
    nothing was done in any world.
    """
    datasets = [name for name in DATASETS if name in gains["dataset"]]
    rates = gains["missing_rate"].unique().sort().to_list()
    with rc_context(STYLE):
        figure = Figure((2 * COLUMN_INCHES, 0.7 + 2.4 * len(datasets)), layout="constrained")
        panels = figure.subplots(
            len(datasets), len(METRICS), squeeze=False, sharex="col", sharey=True
        )
        for row, dataset in zip(panels, datasets, strict=True):
            own = gains.filter(dataset=dataset, n_train=n_train)
            for axes, metric in zip(row, METRICS, strict=True):
                _draw_gains(axes, own.filter(metric=metric), rates)
            row[0].set_title(f"{DATASETS[dataset]}, {n_train:,} clips", loc="left", fontsize=8)
        for axes, metric in zip(panels[-1], METRICS, strict=True):
            axes.set_xlabel(f"gain in {METRIC_NAMES[metric]}", fontsize=7)
            axes.set_xlim(*_limits(gains.filter(metric=metric)))
        figure.legend(handles=_rate_handles(rates), loc="outside lower right", ncols=4)
    return figure


def _draw_curves(axes: Axes, rows: pl.DataFrame) -> None:
    """Draw the large train set's precision over recall, and the small one's as a thin line."""
    sizes = sorted(set(rows["n_train"]))
    for own in rows.partition_by("n_train", "missing_rate", maintain_order=True):
        place = sorted(set(rows["missing_rate"])).index(own["missing_rate"][0])
        look: dict[str, Any] = {"color": COLOURS[place], "linewidth": 0.8, "linestyle": "--"}
        if own["n_train"][0] == sizes[-1]:
            look |= {"marker": MARKERS[place], "markersize": 3, "linewidth": 1.2, "linestyle": "-"}
            look["label"] = f"{100 * own['missing_rate'][0]:.0f} % missing"
            axes.axhline(own["chance"][0], color=COLOURS[place], linewidth=0.8, linestyle=":")
        axes.plot(own["recall"], own["precision"], **look)
    axes.set(xlabel="recall (0.1 to 20 % flagged)", ylabel="precision", ylim=(0, 1), xlim=(0, 1))
    title = f"dashed: {sizes[0]:,} clips; dotted: at random"
    axes.legend(title=title, title_fontsize=6, fontsize=6, loc="upper right")


def _draw_split(axes: Axes, rows: pl.DataFrame) -> None:
    own = rows.filter(
        pl.col("discard_percent").is_in(SPLIT_PERCENTS), pl.col("n_train") == rows["n_train"].max()
    )
    names = [*(f"{percent:g}" for percent in own["discard_percent"]), "all"]
    right = np.append(own["precision"], own["chance"][0])
    beside = np.append(own["beside"], own["beside_chance"][0])
    floor = np.zeros(len(names))
    shares = (right, beside, 1 - right - beside)
    for (label, colour), share in zip(SPLIT_COLOURS.items(), shares, strict=True):
        axes.bar(names, share, bottom=floor, color=colour, label=label, width=0.75)
        floor = floor + share


def _draw_gains(axes: Axes, rows: pl.DataFrame, rates: list[float]) -> None:
    places = {name: place for place, name in enumerate(SHOWN)}
    for place in range(0, len(SHOWN), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#f5f5f5", zorder=0)
    axes.axhline(len(SHOWN) - len(ORACLES) - 0.5, color="#777777", linewidth=0.8, linestyle=":")
    axes.axvline(0, color="#777777", linewidth=0.8)
    for rank, rate in enumerate(rates):
        own = rows.filter(missing_rate=rate)
        y = own["strategy"].replace_strict(places).to_numpy() + 0.24 * (rank - (len(rates) - 1) / 2)
        x, half = own["gain"].to_numpy(), np.nan_to_num(own["half"].to_numpy())
        fills = ["white" if idle else COLOURS[rank] for idle in own["n_idle"] == own["n_worlds"]]
        axes.errorbar(x, y, xerr=half, fmt="none", ecolor=COLOURS[rank], elinewidth=0.9)
        axes.scatter(
            x, y, s=11, c=fills, edgecolors=COLOURS[rank], marker=MARKERS[rank], linewidths=0.7,
            zorder=3,
        )  # fmt: skip
    axes.set_yticks(range(len(SHOWN)), list(SHOWN.values()))
    axes.set_ylim(len(SHOWN) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.locator_params(axis="x", nbins=5)


def _limits(rows: pl.DataFrame) -> tuple[float, float]:
    gain, half = rows["gain"].to_numpy(), np.nan_to_num(rows["half"].to_numpy())
    low, high = float((gain - half).min()), float((gain + half).max())
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _rate_handles(rates: list[float]) -> list[Line2D]:
    looks: list[dict[str, Any]] = [
        {"label": f"{100 * rate:.0f} % of labels missing", "color": colour, "marker": marker}
        for rate, colour, marker in zip(rates, COLOURS, MARKERS, strict=False)
    ]
    hollow = {"label": "hollow: chose to do nothing", "color": "#555555", "marker": "o"}
    looks.append({**hollow, "markerfacecolor": "white"})
    return [Line2D([], [], linestyle="", markersize=4, **look) for look in looks]
