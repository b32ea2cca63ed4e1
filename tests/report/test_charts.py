from __future__ import annotations

import json

import polars as pl
import pytest

from earmark.report import charts
from made_up import CURVE, RESULTS, make_choices, make_courses, make_results


def test_a_point_tells_value_interval_and_difference() -> None:
    chart = charts.performance_charts(RESULTS)["lwlrap"]["the labels as given"]
    (line,) = chart.series
    assert {point.x: point.y for point in line.points} == pytest.approx(CURVE)
    assert line.points[1].told == (
        "net, small",
        "1 % ignored",
        "lwlrap 0.440 [0.340, 0.540]",
        "change +0.040 [+0.035, +0.045]",
    )
    assert line.points[0].told[1] == "baseline: nothing ignored"
    assert (line.points[1].low, line.points[1].high) == pytest.approx((0.34, 0.54))


def test_controls_are_series_of_their_own_look() -> None:
    results = make_results(CURVE, CURVE, random={1.0: 0.41}, calibrated=CURVE)
    chart = charts.performance_charts(results)["lwlrap"]["the labels as given"]
    looks = {series.name: (series.look, series.line, series.marker) for series in chart.series}
    assert looks == {
        "net, small": (0, "solid", "dot"),
        "net, small, calibrated": (0, "dashed", "none"),
        "net, small, random control": (0, "none", "cross"),
    }


def test_every_kind_of_labels_has_its_variant_in_a_fixed_order() -> None:
    results = make_results(CURVE, CURVE, labels=("truth", "ignored", "given"))
    variants = charts.performance_charts(results)["lwlrap"]
    names = [charts.BASIS_NAMES[labels] for labels in ("given", "ignored", "truth")]
    assert list(variants) == names


def test_points_that_could_not_be_measured_are_left_out() -> None:
    results = make_results(CURVE, {**CURVE, 1.0: float("nan")})
    (line,) = charts.performance_charts(results)["lwlrap"]["the labels as given"].series
    assert [point.x for point in line.points] == [0.0, 2.0]


def test_flags_chart_has_precision_and_recall() -> None:
    judged = pl.DataFrame(
        {
            "discard_percent": [0.0, 1.0],
            "n_flags": [0, 10],
            "n_right": [0, 8],
            "n_missing": [40] * 2,
        }
    )
    precision, recall = charts.flags_chart(judged).series
    assert (precision.points[0].y, recall.points[0].y) == (0.8, 0.2)
    assert precision.points[0].told[-1] == "8 of 10 flags are missing labels"


def test_comparison_lists_strategies_without_the_baseline() -> None:
    choices = make_choices({"baseline": 0.0, "mask": 0.03, "splc": 0.0}, {"mask": 0.04})
    chart = charts.comparison_charts(choices, ["lwlrap"])["lwlrap"]["the labels as given"]
    assert chart.categories == ("mask", "splc")
    mask, splc = chart.series[0].points
    assert (mask.x, mask.y, mask.low, mask.high) == pytest.approx((0.03, 0, 0.02, 0.04))
    assert mask.told[0] == "mask, at 1"
    assert mask.told[-1] == "p 0.040 (Holm)"
    assert splc.told[0] == "splc, not used: doing nothing was best on tune"


def test_trainings_are_curves() -> None:
    found = charts.training_charts(make_courses())
    assert list(found) == ["loss", "lwlrap on tune"]
    assert [len(series.points) for series in found["loss"].series] == [2, 2]
    (tuned,) = found["lwlrap on tune"].series
    assert tuned.points[0].told[1:] == ("epoch 1", "lwlrap on tune 0.25")
    assert len(tuned.points) == 1


def test_charts_are_plain_json() -> None:
    chart = charts.performance_charts(RESULTS)["lwlrap"]["the labels as given"]
    values = json.loads(json.dumps(charts.as_json(chart), allow_nan=False))
    assert values["x_scale"] == "root"
    assert values["series"][0]["points"][1]["y"] == 0.44
