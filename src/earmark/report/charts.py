"""What the report's page draws and tells: tables turned into charts of plain numbers and words.

The page's script places points and shows what is written here about each; it computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import polars as pl

from earmark.report.numerals import interval_in, is_known, number_text, ranged_text, signed_text
from earmark.report.results import (
    BASIS_NAMES,
    COURSE_NAMES,
    METRIC_NAMES,
    PRIOR_GROUPS,
    bases_of,
    flags_judged_table,
    mean_over_seeds,
    within_class_metric,
)

Row = Mapping[str, Any]
"""One row of a result table, by column."""


@dataclass(frozen=True)
class Point:
    """One point, its interval (in y, or in x on a chart of intervals), and what is said of it."""

    x: float
    y: float
    told: tuple[str, ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points that belong together. ``look`` numbers colour and marker; series may share one."""

    name: str
    points: tuple[Point, ...]
    look: int
    line: Literal["solid", "dashed", "none"] = "solid"
    marker: Literal["dot", "cross", "none"] = "dot"


@dataclass(frozen=True)
class Chart:
    """One chart: lines over x, a scatter with its diagonal, or intervals listed by category.

    On a chart of intervals, y is the place in ``categories``. A ``root`` scale spaces x by square
    roots, so that 0 fits on it and small percentages come apart.
    """

    kind: Literal["lines", "scatter", "intervals"]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_scale: Literal["linear", "root"] = "linear"
    categories: tuple[str, ...] = ()


def as_json(chart: Chart) -> dict[str, Any]:
    """Return a chart as plain values; numbers keep six digits, which no screen can tell apart."""
    values: dict[str, Any] = _rounded(asdict(chart))
    return values


def performance_charts(results: pl.DataFrame) -> dict[str, dict[str, Chart]]:
    """Return, for d', lwlrap and mAP, the curves over discard percents by every kind of labels.

    Keys are the metric and then the name of the labels that students were judged by. Students
    that ignore nothing are the first point; the random control has crosses, and lwlrap after
    calibration a dashed line.
    """
    means = mean_over_seeds(results.filter(split="eval"))
    metrics = [within_class_metric(means), "lwlrap", "map"]
    return {
        metric: {
            BASIS_NAMES[labels]: _performance_chart(means.filter(labels=labels), metric)
            for labels in bases_of(means)
        }
        for metric in metrics
        if metric in means["metric"]
    }


def change_chart(results: pl.DataFrame) -> Chart:
    """Return how far lwlrap is from the baseline at every point, by the labels as given.

    Bands are intervals of the difference, which is paired: far narrower than those of lwlrap.
    """
    means = mean_over_seeds(results.filter(split="eval", labels="given", metric="lwlrap"))
    return _performance_chart(means, "lwlrap", "difference")


def flags_chart(judged: pl.DataFrame) -> Chart:
    """Return precision and recall of the flags over discard percents."""
    table = flags_judged_table(judged)
    series = []
    for look, name in enumerate(("precision", "recall")):
        points = [
            Point(
                row["discard_percent"], row[name],
                (f"{row['discard_percent']:g} % ignored", f"{name} {ranged_text(row, name)}",
                 f"{row['n_right']:,} of {row['n_flags']:,} flags are missing labels"),
                row[f"{name}_low"], row[f"{name}_high"],
            )
            for row in table.iter_rows(named=True)
            if is_known(row[name])
        ]  # fmt: skip
        series.append(Series(name, tuple(points), look))
    return Chart("lines", "implicit labels ignored, %", "share", tuple(series), "root")


def classes_chart(changes: pl.DataFrame, percent: float) -> Chart:
    """Return every class's lwlrap at a point against its baseline, by the size of the class."""
    series = []
    for look, group in enumerate(PRIOR_GROUPS):
        points = tuple(
            Point(
                row["baseline"], row["chosen"],
                (row["name"], f"prior {row['prior']:.3g} ({group})",
                 f"lwlrap {number_text(row['baseline'])} → {number_text(row['chosen'])}",
                 f"change {signed_text(row['change'])}"),
            )
            for row in changes.filter(group=group).iter_rows(named=True)
            if is_known(row["baseline"]) and is_known(row["chosen"])
        )  # fmt: skip
        series.append(Series(f"{group} prior ({len(points)})", points, look, "none"))
    label = f"lwlrap, {percent:g} % ignored"
    return Chart("scatter", "lwlrap, baseline", label, tuple(series))


def comparison_charts(choices: pl.DataFrame, metrics: Iterable[str]) -> dict[str, dict[str, Chart]]:
    """Return each strategy's difference from the baseline, by metric and by kind of labels."""
    return {
        metric: {
            BASIS_NAMES[labels]: _intervals_chart(choices.filter(labels=labels, metric=metric))
            for labels in bases_of(choices)
        }
        for metric in metrics
        if metric in choices["metric"]
    }


def training_charts(courses: Mapping[str, pl.DataFrame]) -> dict[str, Chart]:
    """Return the course of every training: measure -> its curves over epochs.

    ``courses`` are the histories (epoch, loss, ...) by the name of the network. Measures that no
    network has are left out, and so is how long an epoch took: the same run gives the same page.
    """
    there = {name for course in courses.values() for name in course.columns}
    return {
        title: _training_chart(courses, name)
        for name, title in COURSE_NAMES.items()
        if name in there
    }


def _performance_chart(means: pl.DataFrame, metric: str, column: str = "value") -> Chart:
    """Return the curves of a metric over discard percents: its value, or its difference."""
    series: list[Series] = []
    lines = means.select("student", "train_set").unique(maintain_order=True).rows(named=True)
    for look, line in enumerate(lines):
        own = means.filter(**line)
        name = _line_name(line)
        mask = own.filter(kind="mask", metric=metric)
        series.append(_curve(name, mask, look, column=column))
        if metric == "lwlrap":
            calibrated = own.filter(kind="mask", metric="lwlrap_calibrated")
            series.append(_curve(f"{name}, calibrated", calibrated, look, "dashed", "none"))
        random = own.filter(kind="random", metric=metric)
        control = _curve(f"{name}, random control", random, look, "none", "cross", column)
        series.append(control)
    shown = tuple(one for one in series if one.points)
    y_label = METRIC_NAMES[metric] if column == "value" else f"change of {METRIC_NAMES[metric]}"
    return Chart("lines", "implicit labels ignored, %", y_label, shown, "root")


def _curve(
    name: str,
    rows: pl.DataFrame,
    look: int,
    line: Literal["solid", "dashed", "none"] = "solid",
    marker: Literal["dot", "cross", "none"] = "dot",
    column: str = "value",
) -> Series:
    points = []
    for row in rows.sort("discard_percent").iter_rows(named=True):
        value, low, high = interval_in(row, column)
        if is_known(value):
            told = (name, _percent_told(row["discard_percent"]), *_measures(row))
            points.append(Point(row["discard_percent"], value, told, _finite(low), _finite(high)))
    return Series(name, tuple(points), look, line, marker)


def _intervals_chart(rows: pl.DataFrame) -> Chart:
    shown = rows.filter(pl.col("strategy") != "baseline")
    categories = shown["strategy"].unique(maintain_order=True).to_list()
    series = []
    parts = shown.partition_by("student", "train_set", maintain_order=True)
    for look, part in enumerate(parts):
        points = tuple(
            _strategy_point(row, categories.index(row["strategy"]))
            for row in part.iter_rows(named=True)
            if is_known(row["difference"])
        )
        series.append(Series(_line_name(part.row(0, named=True)), points, look, "none"))
    metric = METRIC_NAMES[rows["metric"][0]] if len(rows) else ""
    label = f"change of {metric} from the baseline"
    return Chart("intervals", label, "strategy", tuple(series), categories=tuple(categories))


def _strategy_point(row: Row, place: int) -> Point:
    point = (
        "not used: doing nothing was best on tune"
        if row["point"] is None
        else f"at {row['point']:g}"
    )
    tested = [] if row["p_holm"] is None else [f"p {number_text(row['p_holm'])} (Holm)"]
    told = (f"{row['strategy']}, {point}", _line_name(row), *_measures(row), *tested)
    low, high = _finite(row["difference_low"]), _finite(row["difference_high"])
    return Point(row["difference"], place, told, low, high)


def _training_chart(courses: Mapping[str, pl.DataFrame], measure: str) -> Chart:
    series = []
    for look, (name, course) in enumerate(courses.items()):
        rows = course.select("epoch", measure).rows() if measure in course.columns else []
        title = COURSE_NAMES[measure]
        points = tuple(
            Point(epoch, value, (name, f"epoch {epoch}", f"{title} {value:.4g}"))
            for epoch, value in rows
            if is_known(value)
        )
        if points:
            series.append(Series(name, points, look))
    return Chart("lines", "epoch", COURSE_NAMES[measure], tuple(series))


def _measures(row: Row) -> tuple[str, str]:
    """Say a value and its difference from the baseline, each with its interval."""
    metric = METRIC_NAMES[row["metric"]]
    return f"{metric} {ranged_text(row)}", f"change {ranged_text(row, 'difference', signed_text)}"


def _percent_told(percent: float) -> str:
    return f"{percent:g} % ignored" if percent else "baseline: nothing ignored"


def _line_name(row: Row) -> str:
    return f"{row['student']}, {row['train_set']}"


def _finite(value: float | None) -> float | None:
    return float(value) if is_known(value) else None


def _rounded(values: Any) -> Any:
    if isinstance(values, float):
        return float(f"{values:.6g}")
    if isinstance(values, Mapping):
        return {name: _rounded(value) for name, value in values.items()}
    if isinstance(values, Sequence) and not isinstance(values, str):
        return [_rounded(value) for value in values]
    return values
