from __future__ import annotations

from earmark.report import methods_text
from made_up import CURVE, RESULTS, make_choices, make_results


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
