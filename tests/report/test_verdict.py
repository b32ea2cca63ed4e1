from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.metrics import Interval
from earmark.report import Verdict, controls_told, headline, noise_note, verdicts
from made_up import CURVE, make_results


def headline_of(gain: float, half_width: float = 0.005, **controls) -> str:
    curve = {0.0: 0.40, 2.0: 0.40 + gain}
    return headline(make_results({0.0: 0.1, 2.0: 0.2}, curve, half_width=half_width, **controls))


WHAT = "ignoring the likeliest 2 % of labels nobody was asked about"
BOTH = {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.44}}


@pytest.mark.parametrize(
    ("gain", "half_width", "sentence"),
    [
        (0.04, 0.005, f"Yes: {WHAT} raises lwlrap by 0.040 (0.035 to 0.045); both controls agree."),
        (-0.02, 0.005, f"No: {WHAT} lowers lwlrap by 0.020 (0.015 to 0.025)."),
        (
            0.001,
            0.004,
            f"No: {WHAT} changes lwlrap by +0.001 (−0.003 to +0.005), too little to matter.",
        ),
        (
            0.004,
            0.015,
            f"Cannot tell: {WHAT} changes lwlrap by +0.004 (−0.011 to +0.019); more seeds or clips "
            "are needed.",
        ),
    ],
)
def test_the_verdict_is_one_short_sentence(gain, half_width, sentence):
    told = headline_of(gain, half_width, **BOTH)
    assert told == sentence
    assert len(told.split()) <= 28


def test_headline_says_no_when_the_baseline_is_best_on_tune():
    results = make_results({0.0: 0.5, 2.0: 0.2}, CURVE)
    assert headline(results) == (
        "No: on the clips set apart for choosing, no share of ignored labels beats ignoring none."
    )


def test_nothing_can_be_told_where_nothing_could_be_measured():
    nothing = float("nan")
    sentence = headline(make_results({0.0: 0.1, 2.0: 0.2}, {0.0: nothing, 2.0: nothing}))
    assert sentence.startswith("Cannot tell: lwlrap could not be measured")


def test_the_details_say_what_both_controls_leave():
    results = make_results({0.0: 0.1, 2.0: 0.2}, {0.0: 0.40, 2.0: 0.44}, **BOTH)
    assert controls_told(results) == [
        "net, small: 90 % of it is left after the random control, which by itself gives +0.004, "
        "90 % interval −0.001 to +0.009, at 2 %, and 75 % of it is left after the calibration "
        "control (+0.030, 90 % interval +0.025 to +0.035)."
    ]


@pytest.mark.parametrize(
    ("answer", "controls", "told"),
    [
        (
            "Yes",
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.42}},
            "; calibration alone gives 75 % of it.",
        ),
        (
            "No",
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.412}},
            ", but calibration alone does as much.",
        ),
        # The random control lies below the gain's interval, but its own reaches into it.
        (
            "Cannot tell",
            {"random": {2.0: 0.434}, "calibrated": {0.0: 0.41, 2.0: 0.44}},
            "; to rule out the random control, more seeds or clips are needed.",
        ),
        (
            "No",
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.40}},
            ", but calibration alone does as much.",
        ),
        (
            "No",
            {"random": {2.0: 0.45}, "calibrated": {0.0: 0.41, 2.0: 0.45}},
            ", but ignoring as many at random does as much.",
        ),
        (
            "Yes",
            {"random": {2.0: 0.39}, "calibrated": {0.0: 0.41, 2.0: 0.46}},
            "; both controls agree.",
        ),
        (
            "Cannot tell",
            {"random": {2.0: 0.404}},
            ", but the calibration control was not run.",
        ),
        (
            "Cannot tell",
            {"calibrated": {0.0: 0.41, 2.0: 0.45}},
            ", but the random control was not run.",
        ),
    ],
)
def test_the_answer_is_as_reserved_as_the_controls_demand(answer, controls, told):
    sentence = headline_of(0.04, **controls)
    assert sentence.startswith(f"{answer}: {WHAT} raises lwlrap by 0.040 (0.035 to 0.045)")
    assert sentence.endswith(told)


def test_a_control_that_may_leave_a_gain_that_counts_is_not_ruled_out():
    controls = {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.416}}
    sentence = headline_of(0.04, half_width=0.008, **controls)
    assert sentence.startswith(f"Cannot tell: {WHAT} raises lwlrap by 0.040 (0.032 to 0.048)")
    assert sentence.endswith(
        "; to rule out the calibration control, more seeds or clips are needed."
    )


@pytest.mark.parametrize("gain", [0.0001, 0.0, -0.0001, -0.02])
def test_no_share_is_taken_of_a_gain_that_may_be_none(gain):
    controls = {"random": {2.0: 0.43}, "calibrated": {0.0: 0.41, 2.0: 0.36}}
    curve = {0.0: 0.40, 2.0: 0.40 + gain}
    (verdict,) = verdicts(make_results({0.0: 0.1, 2.0: 0.2}, curve, **controls))
    assert (verdict.left_after_random, verdict.left_after_calibration) == (None, None)
    assert verdict.answer == "No"
    assert "of it" not in headline_of(gain, **controls)
    assert controls_told(make_results({0.0: 0.1, 2.0: 0.2}, curve, **controls)) == []


TUNE = {0.0: 0.1, 2.0: 0.2}
CONTROLS = {"random": {2.0: 0.40}, "calibrated": {0.0: 0.41, 2.0: 0.44}}


def test_headline_counts_several_students():
    good = make_results(TUNE, {0.0: 0.40, 2.0: 0.44}, **CONTROLS)
    flat = make_results(TUNE, {0.0: 0.40, 2.0: 0.401}, student="flat", **CONTROLS)
    told = "ignoring the likeliest labels nobody was asked about raises lwlrap for"
    assert headline(pl.concat([good, flat])) == (
        f"Cannot tell: {told} 1 of the 2 students (by 0.040 on average); both controls agree for 1 "
        "of 1."
    )
    worse = make_results(TUNE, {0.0: 0.40, 2.0: 0.30}, student="worse")
    sentence = headline(pl.concat([flat, worse]))
    assert sentence == f"No: {told} none of the 2 students and lowers it for 1."
    large = make_results(TUNE, {0.0: 0.40, 2.0: 0.44}, train_set="large", **CONTROLS)
    assert headline(pl.concat([good, large])).startswith(f"Yes: {told} all 2 students")


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
    if gain + width < 0.01:
        assert verdict.answer == ("Yes" if verdict.survives else "No")
    for share in (verdict.left_after_random, verdict.left_after_calibration):
        assert share is None or 0 <= share <= 1
    assert verdict.survives == (verdict.answer == "Yes")


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
