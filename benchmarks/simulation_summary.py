"""The tables and figures of the simulation study, from its finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import t as student_t

from earmark.artefacts import write_json
from earmark.figures import COLOURS, COLUMN_INCHES, MARKERS, STYLE, write_figure

METRICS = {
    "lwlrap": "lwlrap",
    "lwlrap_calibrated": "lwlrap, calibrated",
    "d_prime_all": "d′",
    "map": "mAP",
}
DATASETS = {"scenes": "synthetic scenes", "esc10": "ESC-10 mixtures"}
SHOWN = {
    "truth": "labels complete (oracle)",
    "oracle/mask": "missing labels masked (oracle)",
    "mask": "mask (the paper)",
    "soft": "soft",
    "precision/mask": "mask above chance 0.5",
    "hill": "Hill loss (no teacher)",
    "random": "as many at random (control)",
}
ORACLES = ("truth", "oracle/mask")
KEYS = ["dataset", "missing_rate", "n_train"]
SPLIT_PERCENTS = (0.4, 1.0, 2.0, 5.0, 10.0, 20.0)

Run = Mapping[str, Any]


def summarise(runs: Sequence[Run]) -> None:
    """Print the tables, and write them as JSON and as figures."""
    gains, flags = gain_table(runs), flag_table(runs)
    here = Path(__file__).parent
    write_json(
        here / "results" / "simulation.json",
        {
            "n_runs": len(runs),
            "n_worlds": len({run["world"] for run in runs}),
            "seconds": sum(run["seconds"] for run in runs),
            "gains": gains.fill_nan(None).to_dicts(),
            "flags": flags.to_dicts(),
        },
    )
    folder = here.parent / "docs" / "figures"
    write_figure(flags_figure(flags), folder / "simulation_flags")
    for n_train in sorted(set(gains["n_train"])):
        drawn = gains_figure(gains.filter(n_train=n_train))
        write_figure(drawn, folder / f"simulation_gains_{n_train}")
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, float_precision=3):
        print(flags.filter(pl.col("discard_percent").is_in(SPLIT_PERCENTS)))
        print(gains)


def gain_table(runs: Sequence[Run]) -> pl.DataFrame:
    """Return each strategy's gain over the baseline by the truth, at its point chosen on tune.

    The point is the one with the best lwlrap on tune by the labels as given, doing nothing among
    them; oracles have one point and take it. The random control is at the mask's strongest point
    that is not above the chosen one, or its mildest. One row per setting, strategy and metric:
    mean over worlds and its 90 % interval by Student's t.
    """
    rows = [row for run in runs for row in _gains(run)]
    keys = [*KEYS, "strategy", "metric"]
    found = []
    for part in pl.DataFrame(rows).partition_by(*keys, maintain_order=True):
        values = part["gain"].to_numpy()
        half = _half_width(values)
        found.append(
            {
                **{key: part[key][0] for key in keys},
                "n_worlds": len(values),
                "baseline": part["baseline"].mean(),
                "gain": values.mean(),
                "low": values.mean() - half,
                "high": values.mean() + half,
                "points": part["point"].to_list(),
            }
        )
    return pl.DataFrame(found).sort(*keys[:3], maintain_order=True)


def flag_table(runs: Sequence[Run]) -> pl.DataFrame:
    """Return flags by rank: precision, recall and the decoys' two kinds, over all worlds.

    ``beside`` is the share of flags that are decoys beside a present sibling: sounds that
    resemble what is there. ``chance`` is the share of missing labels among all implicit ones, the
    precision of flags drawn at random; ``beside_chance`` likewise.
    """
    rows = [
        {**{key: run[key] for key in KEYS}, "world": run["world"], **row}
        for run in runs
        for row in run["flags"]
    ]
    counts = pl.DataFrame(rows).filter(pl.col("n_flags") > 0)
    n_flags = pl.col("n_flags").sum()
    by_world = pl.col("n_right") / pl.col("n_flags")
    return counts.group_by(*KEYS, "discard_percent").agg(
        n_flags=n_flags,
        precision=pl.col("n_right").sum() / n_flags,
        precision_lowest=by_world.min(),
        precision_highest=by_world.max(),
        recall=pl.col("n_right").sum() / pl.col("n_missing").sum(),
        beside=pl.col("n_beside").sum() / n_flags,
        chance=pl.col("n_missing").sum() / pl.col("n_implicit").sum(),
        beside_chance=pl.col("n_beside_all").sum() / pl.col("n_implicit").sum(),
    ).sort(*KEYS, "discard_percent")  # fmt: skip


def flags_figure(flags: pl.DataFrame) -> Figure:
    """Draw precision against recall by rank, and the split of flags at half of labels missing."""
    datasets = [name for name in DATASETS if name in flags["dataset"]]
    with rc_context(STYLE):
        figure = Figure((2 * COLUMN_INCHES, 2.6 * len(datasets)), layout="constrained")
        panels = figure.subplots(len(datasets), 2, squeeze=False)
        for (curves, bars), dataset in zip(panels, datasets, strict=True):
            own = flags.filter(dataset=dataset, n_train=flags["n_train"].max())
            _draw_curves(curves, own)
            curves.set_title(DATASETS[dataset], loc="left", fontsize=8)
            _draw_split(bars, own.filter(missing_rate=0.5))
    return figure


def gains_figure(gains: pl.DataFrame) -> Figure:
    """Draw the gain of each strategy against the share of labels that is missing."""
    datasets = [name for name in DATASETS if name in gains["dataset"]]
    with rc_context(STYLE):
        size = (2 * COLUMN_INCHES, 0.6 + 2.1 * len(datasets))
        figure = Figure(size, layout="constrained")
        panels = figure.subplots(len(datasets), len(METRICS), squeeze=False, sharex=True)
        for row, dataset in zip(panels, datasets, strict=True):
            for axes, (metric, title) in zip(row, METRICS.items(), strict=True):
                _draw_gains(axes, gains.filter(dataset=dataset, metric=metric))
                axes.set_title(title, loc="left", fontsize=7)
            row[0].set_ylabel(f"gain, {DATASETS[dataset]}")
        for axes in panels[-1]:
            axes.set_xlabel("share of labels missing")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=3)
    return figure


def _gains(run: Run) -> list[dict[str, object]]:
    students = {}
    for student in run["students"]:
        students.setdefault(student["strategy"], []).append(student)
    (baseline,) = students.pop("baseline")
    chosen = {
        name: own[0] if name in ORACLES else max([baseline, *own], key=lambda s: s["tune_lwlrap"])
        for name, own in students.items()
    }
    wanted = chosen["mask"]["point"]
    controls = sorted(students["random"], key=lambda one: (one["point"] > wanted, -one["point"]))
    chosen["random"] = controls[0] if wanted else min(controls, key=lambda one: one["point"])
    return [
        {
            **{key: run[key] for key in KEYS},
            "world": run["world"],
            "strategy": name,
            "point": student["point"],
            "metric": metric,
            "baseline": baseline[metric],
            "gain": student[metric] - baseline[metric],
        }
        for name, student in chosen.items()
        for metric in METRICS
    ]


def _half_width(values: np.ndarray) -> float:
    """Return half of the 90 % interval of a mean; NaN for one value."""
    n = len(values)
    if n < 2:
        return float("nan")
    return float(student_t.ppf(0.95, n - 1) * values.std(ddof=1) / np.sqrt(n))


def _draw_curves(axes: Axes, rows: pl.DataFrame) -> None:
    for place, own in enumerate(rows.partition_by("missing_rate", maintain_order=True)):
        colour, rate = COLOURS[place], own["missing_rate"][0]
        axes.plot(
            own["recall"], own["precision"], color=colour, marker=MARKERS[place], markersize=3,
            linewidth=1.2, label=f"{100 * rate:.0f} % missing",
        )  # fmt: skip
        axes.axhline(own["chance"][0], color=colour, linewidth=0.8, linestyle=":")
    axes.set(xlabel="recall (0.1 to 20 % flagged)", ylabel="precision", ylim=(0, 1), xlim=(0, 1))
    axes.legend(title="dotted: at random", title_fontsize=6, fontsize=6)


def _draw_split(axes: Axes, rows: pl.DataFrame) -> None:
    own = rows.filter(pl.col("discard_percent").is_in(SPLIT_PERCENTS))
    names = [f"{percent:g}" for percent in own["discard_percent"]]
    right, beside = own["precision"].to_numpy(), own["beside"].to_numpy()
    parts = {
        "missing labels": right,
        "decoys beside a sibling": beside,
        "other decoys": 1 - right - beside,
    }
    floor = np.zeros(len(own))
    for (label, share), colour in zip(parts.items(), COLOURS, strict=False):
        axes.bar(names, share, bottom=floor, color=colour, label=label, width=0.75)
        floor = floor + share
    axes.set(xlabel="implicit labels flagged, % (half of labels missing)", ylabel="share of flags")
    axes.set_ylim(0, 1)
    axes.legend(fontsize=6, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.15))


def _draw_gains(axes: Axes, rows: pl.DataFrame) -> None:
    axes.axhline(0, color="#777777", linewidth=0.8)
    for place, (strategy, label) in enumerate(SHOWN.items()):
        own = rows.filter(strategy=strategy).sort("missing_rate")
        x = own["missing_rate"].to_numpy() + 0.012 * (place - 3)
        y = own["gain"].to_numpy()
        spread = np.nan_to_num([y - own["low"].to_numpy(), own["high"].to_numpy() - y])
        axes.errorbar(
            x, y, spread, color=COLOURS[place], marker=MARKERS[place], markersize=3,
            linewidth=1, elinewidth=0.7, linestyle="--" if strategy in ORACLES else "-",
            label=label,
        )  # fmt: skip
    axes.set_xticks(rows["missing_rate"].unique().sort().to_list())
