from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.metrics import Interval
from earmark.report import (
    Verdict,
    comparison_headline,
    controls_told,
    detail_lines,
    headline,
    methods_text,
    noise_note,
    page_verdict,
    show_comparison,
    strategies_told,
    summary_lines,
    verdicts,
)
from made_up import CURVE, RESULTS, make_choices, make_results


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


@pytest.mark.parametrize(
    ("tune", "on_eval", "sentence"),
    [
        (
            {0.0: 0.5, 2.0: 0.2},
            CURVE,
            "No: on the clips set apart for choosing, no share of ignored labels beats ignoring "
            "none.",
        ),
        (
            {0.0: 0.1, 2.0: 0.2},
            dict.fromkeys((0.0, 2.0), float("nan")),
            "Cannot tell: lwlrap could not be measured; do the evaluation clips have labels that "
            "are present?",
        ),
    ],
)
def test_without_a_point_or_a_number_the_verdict_says_why(tune, on_eval, sentence):
    assert headline(make_results(tune, on_eval)) == sentence


def test_the_details_say_what_both_controls_leave():
    results = make_results({0.0: 0.1, 2.0: 0.2}, {0.0: 0.40, 2.0: 0.44}, **BOTH)
    assert controls_told(results) == [
        "net, small: 90 % of it is left after the random control at 2 %, +0.036 (+0.029 to "
        "+0.043), and 75 % of it is left after the calibration control, +0.030 (+0.025 to +0.035)."
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
    assert list(verdict.shares_left.values()) == [None, None]
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
    for share in verdict.shares_left.values():
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


CHOICES = make_choices({"baseline": 0.0, "mask": 0.03}, {"mask": 0.04})
LABELS = ("given", "ignored", "corrected", "truth")


def test_the_page_says_one_thing_first_the_sweeps() -> None:
    assert page_verdict(RESULTS, CHOICES) == headline(RESULTS)
    assert page_verdict(None, CHOICES) == comparison_headline(CHOICES)
    with pytest.raises(EarmarkError, match="no sweep and no comparison"):
        page_verdict(None, None)


def test_the_terminal_is_told_the_verdict_first_and_details_when_asked() -> None:
    results = make_results({0.0: 0.1, 2.0: 0.2}, CURVE, labels=LABELS)
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    lines = summary_lines(results, judged, 1.0)
    assert lines == [
        headline(results),
        "At 1 %, 8 of 10 flags are missing labels (80 %, 54 to 93); that is 20 % of the 40 that "
        "are missing.",
    ]
    told = "\n".join(detail_lines(results))
    assert told.count("On the evaluation clips, by ") == 4
    assert "by the labels as given, flagged ones left out (90 % intervals):" in told
    assert told.count("net, small: lwlrap 0.400 -> 0.430 at 2 %, change +0.030") == 4
    assert summary_lines(RESULTS, judged, 2.0)[1].startswith("Flags are judged by the truth")


COMPARED = make_choices(
    {"baseline": 0.0, "mask": 0.03, "soft": 0.05, "splc": -0.04, "random": 0.001},
    {"mask": 0.04, "soft": 0.2, "splc": 0.01},
    labels=("given", "truth"),
)


def test_oracles_and_controls_are_marked_and_never_among_the_best() -> None:
    gains = {"baseline": 0.0, "mask": 0.03, "random": 0.001, "truth": 0.3, "oracle/mask": 0.2}
    choices = make_choices(gains, {"mask": 0.04})
    shown = show_comparison(choices, "given").shown
    names = ["baseline", "mask", "random (control)", "truth (oracle)", "oracle/mask (oracle)"]
    assert shown["Strategy"].to_list() == names
    assert shown["p (Holm)"].to_list() == ["–", "0.040", "–", "–", "–"]
    assert strategies_told(choices).startswith("1 of 1 strategies raise lwlrap, beyond chance")
    assert "truth" not in comparison_headline(choices) + strategies_told(choices)


def test_the_headline_is_of_the_strategy_that_fares_best() -> None:
    choices = with_calibrated(COMPARED, "mask", 0.02)
    assert comparison_headline(choices) == (
        "Yes: ignoring the likeliest 1 % of labels nobody was asked about raises lwlrap by 0.030 "
        "(0.020 to 0.040); both controls agree."
    )
    assert strategies_told(choices) == (
        "1 of the 3 strategies raise lwlrap, 1 lower it, beyond chance (p < 0.1, corrected by "
        "Holm): mask by 0.030. Both controls agree for mask."
    )
    explained = with_calibrated(COMPARED, "mask", -0.02)
    assert strategies_told(explained).endswith("Both controls agree for none of them.")
    assert comparison_headline(explained) == (
        "Cannot tell: the strategy soft@1 changes lwlrap by +0.050 (+0.040 to +0.060), which may "
        "be chance among so many strategies."
    )


def test_the_headline_says_which_controls_are_missing_and_which_student_gained() -> None:
    alone = make_choices({"baseline": 0.0, "mask": 0.03}, {"mask": 0.04})
    assert comparison_headline(alone).startswith("Cannot tell: ")
    assert comparison_headline(alone).endswith(", but the random control was not run.")
    other = make_choices({"baseline": 0.0, "mask": 0.001}, {"mask": 0.9})
    both = pl.concat([alone, other.with_columns(train_set=pl.lit("large"))])
    assert "raises lwlrap of net, small by 0.030" in comparison_headline(both)
    told = strategies_told(both)
    assert told.startswith("1 of the 2 strategies (each student and train set counts) raise")
    assert "mask for net, small by 0.030" in told
    untested = make_choices({"baseline": 0.0, "random": 0.1, "truth": 0.2}, {})
    assert comparison_headline(untested).startswith("Cannot tell: only controls")


def test_only_a_few_gains_are_told_one_by_one() -> None:
    names = [f"mask{i}" for i in range(6)]
    gains = {name: 0.1 + 0.1 * i for i, name in enumerate(names)}
    told = strategies_told(make_choices({"baseline": 0.0, **gains}, dict.fromkeys(names, 0.01)))
    assert told.startswith("All 6 strategies raise lwlrap")
    assert "mask5 by 0.600, mask4 by 0.500, mask3 by 0.400 and 3 more." in told


def with_calibrated(choices: pl.DataFrame, strategy: str, gain: float) -> pl.DataFrame:
    """Give one strategy another gain in calibrated lwlrap, 0.01 either way."""
    is_own = (pl.col("strategy") == strategy) & (pl.col("metric") == "lwlrap_calibrated")
    return choices.with_columns(
        pl.when(is_own).then(gain + shift).otherwise(name).alias(name)
        for name, shift in (
            ("difference", 0.0), ("difference_low", -0.01), ("difference_high", 0.01),
        )
    )  # fmt: skip


def test_the_paragraph_says_what_was_done_and_from_what() -> None:
    told = methods_text(RESULTS, {"seeds": "0, 1", "labels digest": "abc123"})
    assert "(net) were trained on small, each 2 times (seeds)" in told
    assert "3 operating points from 0 to 2 percent" in told
    assert told.endswith("Provenance: seeds: 0, 1; labels digest: abc123.")


def test_only_controls_that_were_run_are_described() -> None:
    assert "control" not in methods_text(RESULTS, {})
    controlled = make_results(CURVE, CURVE, random={1.0: 0.4}, calibrated=CURVE)
    told = methods_text(controlled, {})
    assert "random control" in told
    assert "calibration control" in told


def test_strategies_are_named_where_they_were_compared() -> None:
    choices = make_choices({"baseline": 0.0, "mask": 0.1, "soft": 0.1}, {})
    told = methods_text(RESULTS, {}, choices)
    assert "by several strategies (3 seeds: 0, 1, 2): mask, soft;" in told
    assert "Oracles" not in told
    gains = {"baseline": 0.0, "mask": 0.1, "random": 0.0, "truth": 0.2}
    alone = methods_text(None, {}, make_choices(gains, {}))
    assert "(3 seeds: 0, 1, 2): mask;" in alone
    assert "The control (random) ignores as many labels" in alone
    assert "Oracles (truth) know the truth" in alone
    assert "operating points from" not in alone
    assert "over clips and over seeds" in alone
