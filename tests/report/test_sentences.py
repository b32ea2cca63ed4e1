from __future__ import annotations

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.report import (
    comparison_headline,
    comparison_told,
    detail_lines,
    headline,
    numbers_told,
    page_verdict,
    show_comparison,
    strategies_told,
    summary_lines,
)
from made_up import CURVE, RESULTS, make_choices, make_results

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


def test_a_gain_that_given_labels_hide_is_told() -> None:
    given = make_results({0.0: 0.1, 2.0: 0.2}, {0.0: 0.4, 2.0: 0.4})
    ignored = make_results({0.0: 0.1, 2.0: 0.2}, {0.0: 0.4, 2.0: 0.45}, labels=("ignored",))
    (told,) = numbers_told(pl.concat([given, ignored])).values()
    assert told.startswith("at 2 %, change from the baseline: lwlrap +0.000 [−0.005, +0.005]")
    hidden = "lwlrap by the labels as given, flagged ones left out +0.050 [+0.045, +0.055]."
    assert told.endswith(hidden)


COMPARED = make_choices(
    {"baseline": 0.0, "mask": 0.03, "soft": 0.05, "splc": -0.04, "random": 0.001},
    {"mask": 0.04, "soft": 0.2, "splc": 0.01},
    labels=("given", "truth"),
)


def test_only_gains_that_survive_the_correction_are_told() -> None:
    told = comparison_told(COMPARED)
    assert "lwlrap: mask;" in told  # soft is not sure, splc is a loss, random no hypothesis
    assert "soft" not in told
    assert "mAP: none" in comparison_told(make_choices({"mask": 0.03}, {"mask": 0.5}))


def test_oracles_and_controls_are_marked_and_never_among_the_best() -> None:
    gains = {"baseline": 0.0, "mask": 0.03, "random": 0.001, "truth": 0.3, "oracle/mask": 0.2}
    choices = make_choices(gains, {"mask": 0.04})
    shown = show_comparison(choices, "given").shown
    names = ["baseline", "mask", "random (control)", "truth (oracle)", "oracle/mask (oracle)"]
    assert shown["Strategy"].to_list() == names
    assert shown["p (Holm)"].to_list() == ["–", "0.040", "–", "–", "–"]
    told = comparison_told(choices)
    assert "lwlrap: mask;" in told
    assert told.endswith(
        "Oracles, which know the truth, change lwlrap: truth by +0.300 [+0.290, +0.310]; "
        "oracle/mask by +0.200 [+0.190, +0.210]."
    )
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
