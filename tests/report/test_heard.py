from __future__ import annotations

from earmark.report.contents import HeardFlag
from earmark.report.heard import heard_html
from made_up import NASTY, Page, make_flags


def test_a_flag_says_what_is_known_of_it() -> None:
    (shown,) = heard_html({NASTY: make_flags(NASTY)}, 16_000)
    page = Page(shown)
    assert NASTY in page.text
    assert "score 3.21 · chance 0.90 ✓ missing label" in page.text
    assert "✗ decoy" in page.text
    assert page.tags.count("audio") == 1  # the second has no samples, the third no sound at all
    assert page.tags.count("img") == 2


def test_without_truth_nothing_is_claimed() -> None:
    (shown,) = heard_html({"Bird": [HeardFlag(1, "clip", 0.5)]}, 16_000)
    assert "missing" not in shown
    assert "decoy" not in shown


def test_no_flags_give_nothing() -> None:
    assert heard_html({}, 16_000) == []
