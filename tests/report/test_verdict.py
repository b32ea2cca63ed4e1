from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.metrics.intervals import Interval
from earmark.report.verdict import Verdict, headline, noise_note, verdicts
from made_up import CURVE, make_results


def headline_of(gain: float, half_width: float = 0.005, **controls) -> str:
    curve = {0.0: 0.40, 2.0: 0.40 + gain}
    return headline(make_results({0.0: 0.1, 2.0: 0.2}, curve, half_width=half_width, **controls))


def test_headline_says_no_when_the_interval_includes_zero():
    sentence = headline_of(0.004, half_width=0.005)
    assert sentence.startswith("No:")
    assert "from 0.400 to 0.404 (+0.004, 90 % interval −0.001 to +0.009)" in sentence
    assert "includes zero" in sentence
    assert "raised" not in sentence


def test_headline_says_no_when_performance_fell():
    assert re.match("No: .* lowered lwlrap", headline_of(-0.02))


def test_headline_says_no_when_the_baseline_is_best_on_tune():
    results = make_results({0.0: 0.5, 2.0: 0.2}, CURVE)
    assert headline(results).startswith("No: on the tune clips no operating point beat")


def test_headline_says_unknown_when_nothing_could_be_measured():
    nothing = float("nan")
    sentence = headline(make_results({0.0: 0.1, 2.0: 0.2}, {0.0: nothing, 2.0: nothing}))
    assert sentence.startswith("Unknown: lwlrap could not be measured")


def test_headline_says_yes_when_most_of_the_gain_survives_both_controls():
    sentence = headline_of(0.04, random={2.0: 0.404}, calibrated={0.0: 0.41, 2.0: 0.44})
    assert sentence.startswith("Yes: ignoring the top-scored 2 % of implicit labels raised")
    assert (
        "and 90 % of it is left after the random control, which by itself gives +0.004, 90 % "
        "interval −0.001 to +0.009, at 2 %, and 75 % of it is left after the calibration control "
        "(+0.030, 90 % interval +0.025 to +0.035)."
    ) in sentence


@pytest.mark.parametrize(
    ("answer", "controls", "told"),
    [
        (
            "Only in part",
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.42}},
            "25 % of it is left after the calibration control",
        ),
        (
            "Unsure",
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.412}},
            "but 90 % of it is left after the random",
        ),
        (
            "Unsure",
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.412}},
            "5 % of it (which may be chance) is left after the calibration control",
        ),
        # The random control lies below the gain's interval, but its own reaches into it.
        (
            "Unsure",
            {"random": {2.0: 0.434}, "calibrated": {0.0: 0.41, 2.0: 0.44}},
            "15 % of it (which may be chance) is left after the random control",
        ),
        (
            "No",
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.40}},
            "nothing of it is left after the calibration control (−0.010",
        ),
        (
            "No",
            {"random": {2.0: 0.45}, "calibrated": {0.0: 0.41, 2.0: 0.45}},
            "nothing of it is left after the random control, which by itself gives +0.050",
        ),
        (
            "Yes",
            {"random": {2.0: 0.39}, "calibrated": {0.0: 0.41, 2.0: 0.46}},
            "all of it is left after the random",
        ),
        ("Unsure", {"random": {2.0: 0.404}}, "the calibration control was not run"),
        ("Unsure", {"calibrated": {0.0: 0.41, 2.0: 0.45}}, "the random control was not run"),
    ],
)
def test_the_answer_is_as_reserved_as_the_controls_demand(answer, controls, told):
    sentence = headline_of(0.04, **controls)
    assert sentence.startswith(f"{answer}: ")
    assert told in sentence
    assert "the random control" in sentence
    assert "the calibration control" in sentence


@pytest.mark.parametrize("gain", [0.0001, 0.0, -0.0001, -0.02])
def test_no_share_is_taken_of_a_gain_that_may_be_none(gain):
    controls = {"random": {2.0: 0.43}, "calibrated": {0.0: 0.41, 2.0: 0.36}}
    curve = {0.0: 0.40, 2.0: 0.40 + gain}
    (verdict,) = verdicts(make_results({0.0: 0.1, 2.0: 0.2}, curve, **controls))
    assert (verdict.left_after_random, verdict.left_after_calibration) == (None, None)
    assert verdict.answer == "No"
    told = headline_of(gain, **controls)
    assert "of it" not in told


TUNE = {0.0: 0.1, 2.0: 0.2}
CONTROLS = {"random": {2.0: 0.40}, "calibrated": {0.0: 0.41, 2.0: 0.44}}


def test_headline_counts_several_students():
    good = make_results(TUNE, {0.0: 0.40, 2.0: 0.44}, **CONTROLS)
    flat = make_results(TUNE, {0.0: 0.40, 2.0: 0.401}, student="flat", **CONTROLS)
    sentence = headline(pl.concat([good, flat]))
    assert sentence.startswith("Only in part:")
    assert "for 1 of the 2 pairs of student and train set, by +0.040 on average" in sentence
    assert (
        "all of that is left after the random control and 75 % of that is left after the "
        "calibration control; the gain survives both controls for 1 of 1."
    ) in sentence
    worse = make_results(TUNE, {0.0: 0.40, 2.0: 0.30}, student="worse")
    sentence = headline(pl.concat([flat, worse]))
    assert sentence.startswith("No:")
    assert "for none of the 2 pairs of student and train set, and lowered it for 1." in sentence
    sentence = headline(pl.concat([good, worse]))
    assert "by +0.040 on average, and lowered it for 1;" in sentence


def test_what_is_left_on_average_is_not_an_average_of_shares():
    large = make_results(TUNE, {0.0: 0.40, 2.0: 0.50}, random={2.0: 0.40})
    small = make_results(TUNE, {0.0: 0.40, 2.0: 0.41}, random={2.0: 0.41}, train_set="tiny")
    sentence = headline(pl.concat([large, small]))
    assert "91 % of that is left after the random control" in sentence  # 0.10 of 0.11
    assert "the calibration control was not run" in sentence
    assert sentence.startswith("Unsure: ")


@given(st.floats(-0.1, 0.1), st.floats(0, 0.1), st.floats(-0.1, 0.1), st.floats(-0.1, 0.1))
def test_yes_is_never_said_of_a_gain_within_chance(gain, width, random_gain, calibrated_gain):
    verdict = Verdict(
        "net", "train", 1.0, Interval(0.4, 0.3, 0.5), Interval(0.4 + gain, 0.3, 0.5),
        gain=Interval(gain, gain - width, gain + width),
        calibrated_gain=Interval(calibrated_gain, calibrated_gain - width, calibrated_gain + width),
        random_gain=Interval(random_gain, random_gain - width, random_gain + width),
    )  # fmt: skip
    if verdict.answer == "Yes":
        assert gain > width
        assert calibrated_gain > width
        assert random_gain < gain - width
    if gain - width <= 0:
        assert verdict.answer == "No"
    for share in (verdict.left_after_random, verdict.left_after_calibration):
        assert share is None or 0 <= share <= 1
    assert verdict.survives == (verdict.answer in ("Yes", "Only in part"))


def test_a_corrected_p_value_can_take_a_gain_away():
    gain = Interval(0.02, 0.01, 0.03)
    verdicts = [Verdict("n", "t", 1.0, gain, gain, gain=gain, p=p) for p in (None, 0.05, 0.2)]
    assert [verdict.is_gain for verdict in verdicts] == [True, True, False]


def test_the_random_control_is_read_at_the_nearest_point():
    results = make_results({0.0: 0.1, 2.0: 0.2}, CURVE, random={1.0: 0.41, 5.0: 0.3})
    verdict = verdicts(results)[0]
    assert verdict.random_percent == 1.0
    assert verdict.random_gain.value == pytest.approx(0.01)


def test_the_random_control_tells_how_noisy_training_is():
    results = make_results(
        {0.0: 0.4, 2.0: 0.45}, {0.0: 0.40, 2.0: 0.45}, random={0.0: 0.4, 2.0: 0.43}
    )
    control = results.filter(kind="random").with_columns(metric=pl.lit("d_prime_explicit"))
    told = noise_note(pl.concat([results, control]))
    assert "2 seeds" in told
    assert "lwlrap by +0.030" in told
    assert "noise" in told
    assert noise_note(results.filter(kind="mask")) == ""
