"""The tables of the simulation study, from its finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import t as student_t

from earmark.metrics import holm
from earmark.report import METRIC_NAMES

METRICS = ("lwlrap", "lwlrap_calibrated", "d_prime_all", "map")
"""Measured by the complete labels."""
GIVEN_METRICS = ("lwlrap_given", "d_prime_given")
"""Measured by the labels as given: what an evaluation set with missing labels would say."""
ORACLES = ("oracle/mask", "truth")
OVER_CONTROL = "mask - random"
"""Stands among the strategies for what mask gains beyond as many labels ignored at random."""
KEYS = ["dataset", "missing_rate", "n_train"]
ALPHA = 0.1

Row = Mapping[str, Any]
Run = Mapping[str, Any]


def chosen_table(runs: Sequence[Run]) -> pl.DataFrame:
    """Return every run's gains over its baseline: one row per world, strategy and metric.

    A strategy stands at the point with the best lwlrap on tune by the labels as given. Doing
    nothing is among the choices (``is_idle``: the student is the baseline, and gains exactly 0).
    Oracles have one point and take it. The random control is at the mask's point, or at its own
    mildest where the mask does nothing. Beside the strategies stands :data:`OVER_CONTROL`.
    """
    rows = pl.DataFrame([row for run in runs for row in _chosen(run)])
    keys = [*KEYS, "world", "metric"]
    control = rows.filter(strategy="random").select(*keys, control="gain")
    over_control = rows.filter(strategy="mask").join(control, on=keys, maintain_order="left")
    over_control = over_control.with_columns(
        strategy=pl.lit(OVER_CONTROL), gain=pl.col("gain") - pl.col("control")
    )
    return pl.concat([rows, over_control.select(rows.columns)])


def every_point_table(runs: Sequence[Run]) -> pl.DataFrame:
    """Return the rows of :func:`chosen_table` for all points instead: strategies read mask@10."""
    return pl.DataFrame([row for run in runs for row in _every_point(run)])


def gain_table(chosen: pl.DataFrame) -> pl.DataFrame:
    """Return gains by setting, strategy and metric, with intervals over worlds."""
    return over_worlds(chosen, [*KEYS, "strategy", "metric"]).sort(*KEYS, maintain_order=True)


def pooled_table(chosen: pl.DataFrame) -> pl.DataFrame:
    """Return gains by train size, averaged over sources and missing rates within each world."""
    return over_worlds(chosen, ["n_train", "strategy", "metric"]).sort(
        "n_train", maintain_order=True
    )


def over_worlds(chosen: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Average :func:`chosen_table` within each world, then over worlds, for each value of ``keys``.

    ``gain`` plus or minus ``half`` is the 90 % interval by Student's t, ``p`` its two-sided test
    against 0; both are NaN for one world, and ``p`` for a strategy that did nothing in any.
    ``points`` and ``gains`` are by world; ``n_idle`` counts worlds in which nothing was done.
    """
    values = [pl.col(name).mean() for name in ("baseline", "gain", "point")]
    by_world = chosen.group_by(*keys, "world", maintain_order=True).agg(
        *values, pl.col("is_idle").all()
    )
    found = by_world.group_by(*keys, maintain_order=True).agg(
        pl.col("baseline").mean(),
        pl.col("gain").mean(),
        error=pl.col("gain").std() / pl.len().sqrt(),
        n_worlds=pl.len(),
        n_idle=pl.col("is_idle").sum(),
        points=pl.col("point"),
        gains=pl.col("gain"),
    )
    freedom = found["n_worlds"].to_numpy() - 1
    ratio = (found["gain"] / found["error"]).abs().to_numpy()
    return found.with_columns(
        half=student_t.ppf(1 - ALPHA / 2, freedom) * found["error"].to_numpy(),
        p=2 * student_t.sf(ratio, freedom),
    ).drop("error")


def interval_counts(gains: pl.DataFrame) -> pl.DataFrame:
    """Count the cells (setting x metric) of each strategy whose interval excludes zero.

    ``n_idle`` cells did nothing in any world. Of one cell in ten the interval excludes zero by
    chance alone, so ``n_holm`` counts those that are left after Holm's correction for the number
    of the strategy's cells.
    """
    shown = gains.filter(pl.col("metric").is_in(METRICS))
    return pl.DataFrame(
        {
            "strategy": own["strategy"][0],
            "n_cells": len(own),
            "n_idle": int((own["n_idle"] == own["n_worlds"]).sum()),
            "n_above": int((own["gain"] > own["half"]).sum()),
            "n_below": int((own["gain"] < -own["half"]).sum()),
            "n_holm": sum(p < ALPHA for p in holm(own["p"].to_list())),
        }
        for own in shown.partition_by("strategy", maintain_order=True)
    )


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


def short_tables(gains: pl.DataFrame, pooled: pl.DataFrame, flags: pl.DataFrame) -> dict[str, str]:
    """Return what a person reads of the study: Markdown tables by their titles."""
    bounds = gains.filter(
        pl.col("strategy").is_in(["mask", OVER_CONTROL, *ORACLES]), metric="d_prime_all"
    )
    return {
        "Flags of the train set": flags_markdown(flags),
        "Mean gain over sources and missing rates": gains_markdown(pooled, ["n_train", "strategy"]),
        "Gain of mask": gains_markdown(gains.filter(strategy="mask"), KEYS),
        "Gain in d′ (all labels)": gains_markdown(bounds, KEYS, columns="strategy"),
        "Intervals that exclude zero, by setting and metric": markdown(interval_counts(gains)),
        "Intervals that exclude zero, of the means": markdown(interval_counts(pooled)),
    }


def gains_markdown(gains: pl.DataFrame, index: Sequence[str], columns: str = "metric") -> str:
    """Return a Markdown table of gains and half their intervals.

    ``index`` names the columns that tell the rows apart, ``columns`` the one (metric or strategy)
    whose values become columns.
    """
    shown = gains.filter(pl.col("metric").is_in(METRICS))
    pairs = shown.select("gain", "half").iter_rows()
    texts = [f"{gain:+.3f}" + ("" if np.isnan(half) else f" ± {half:.3f}") for gain, half in pairs]
    wide = shown.with_columns(text=pl.Series(texts)).pivot(columns, index=index, values="text")
    return markdown(wide.rename(METRIC_NAMES, strict=False))


def flags_markdown(flags: pl.DataFrame, percents: Sequence[float] = (1.0, 5.0, 10.0)) -> str:
    """Return a Markdown table of precision and recall, one row per setting."""
    shown = flags.filter(pl.col("discard_percent").is_in(percents))
    pairs = shown.select("precision", "recall").iter_rows()
    texts = [
        f"{100 * precision:.0f} % right, {100 * recall:.0f} % found" for precision, recall in pairs
    ]
    names = [f"{percent:g} % flagged" for percent in shown["discard_percent"]]
    chances = [f"{100 * chance:.0f} %" for chance in shown["chance"]]
    columns = {"text": texts, "name": names, "at random": chances}
    wide = shown.select(KEYS).with_columns(pl.Series(key, of) for key, of in columns.items())
    return markdown(wide.pivot("name", index=[*KEYS, "at random"], values="text"))


def markdown(table: pl.DataFrame) -> str:
    """Return a table as Markdown, whole."""
    with pl.Config(
        tbl_formatting="ASCII_MARKDOWN", tbl_hide_column_data_types=True, tbl_rows=-1, tbl_cols=-1,
        tbl_hide_dataframe_shape=True, tbl_width_chars=-1, fmt_str_lengths=100,
    ):  # fmt: skip
        return str(table)


def _chosen(run: Run) -> Iterator[Row]:
    baseline, students = _by_strategy(run)
    for name, student in _choose(baseline, students).items():
        yield from _gains(run, name, student, baseline)


def _every_point(run: Run) -> Iterator[Row]:
    baseline, students = _by_strategy(run)
    for name, own in students.items():
        for student in own:
            yield from _gains(run, f"{name}@{student['point']:g}", student, baseline)


def _by_strategy(run: Run) -> tuple[Row, dict[str, list[Row]]]:
    students: dict[str, list[Row]] = {}
    for student in run["students"]:
        students.setdefault(student["strategy"], []).append(student)
    (baseline,) = students.pop("baseline")
    return baseline, students


def _choose(baseline: Row, students: Mapping[str, list[Row]]) -> dict[str, Row]:
    chosen = {
        name: own[0] if name in ORACLES else max([baseline, *own], key=lambda s: s["tune_lwlrap"])
        for name, own in students.items()
    }
    controls = {control["point"]: control for control in students["random"]}
    chosen["random"] = controls.get(chosen["mask"]["point"], controls[min(controls)])
    return chosen


def _gains(run: Run, name: str, student: Row, baseline: Row) -> Iterator[Row]:
    for metric in (*METRICS, *GIVEN_METRICS):
        yield {
            **{key: run[key] for key in KEYS},
            "world": run["world"],
            "strategy": name,
            "point": student["point"],
            "is_idle": student is baseline,
            "metric": metric,
            "baseline": baseline[metric],
            "gain": student[metric] - baseline[metric],
        }
