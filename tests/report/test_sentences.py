from __future__ import annotations

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.report.sentences import numbers_told, sentences, summary_lines
from earmark.report.verdict import headline
from made_up import CURVE, RESULTS, make_choices, make_results, make_rounds

CHOICES = make_choices({"baseline": 0.0, "mask": 0.03}, {"mask": 0.04})
LABELS = ("given", "ignored", "corrected", "truth")


def test_what_was_run_has_a_sentence_the_sweep_first() -> None:
    told = sentences(RESULTS, CHOICES, make_rounds())
    assert told[0] == headline(RESULTS)
    assert "tested strategies" in told[1]
    assert "next teacher" in told[2]
    assert sentences(None, CHOICES, None) == told[1:2]
    with pytest.raises(EarmarkError, match="no sweep, no comparison and no rounds"):
        sentences(None, None, None)


def test_the_terminal_is_told_by_every_kind_of_labels() -> None:
    results = make_results({0.0: 0.1, 2.0: 0.2}, CURVE, labels=LABELS)
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    lines = summary_lines(results, judged, 1.0)
    assert lines[0].startswith("At 1 %, 8 of 10 flags are missing labels")
    told = "\n".join(lines)
    assert told.count("On the evaluation clips, by ") == 4
    assert "by the labels as given, flagged ones left out (90 % intervals):" in told
    assert told.count("net, small: lwlrap 0.400 [0.300, 0.500] -> 0.430") == 4
    assert lines[-1] == headline(results)
    assert summary_lines(RESULTS, judged, 2.0)[0].startswith("Flags are judged by the truth")


def test_a_gain_that_given_labels_hide_is_told() -> None:
    given = make_results({0.0: 0.1, 2.0: 0.2}, {0.0: 0.4, 2.0: 0.4})
    ignored = make_results({0.0: 0.1, 2.0: 0.2}, {0.0: 0.4, 2.0: 0.45}, labels=("ignored",))
    (told,) = numbers_told(pl.concat([given, ignored])).values()
    assert told.startswith("at 2 %, change from the baseline: lwlrap +0.000 [−0.005, +0.005]")
    hidden = "lwlrap by the labels as given, flagged ones left out +0.050 [+0.045, +0.055]."
    assert told.endswith(hidden)
