from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from earmark.report import TALL, WIDE, YieldCurve, listened_html, write_report
from earmark.review import Gains
from made_up import make_contents

GAINS = Gains(
    300,
    214,
    (1500.0, 1900.0, 2400.0),
    71.0,
    820,
    (0.53, 0.58, 0.63),
    curve=((0, 0), (100, 90), (300, 214)),
    forecast=((400, 285), (500, 350)),
)


def test_the_part_says_what_was_found_and_draws_it_with_its_forecast():
    told = str(listened_html(GAINS))
    assert f"300 answers: {GAINS.told}." in told
    assert "good place to stop" not in told
    root = ElementTree.fromstring(told)
    forecast, found = (one.get("points") for one in root.iter("polyline"))
    assert found.split()[0] == f"0.0,{TALL:.1f}"
    assert forecast.split()[0] == found.split()[-1], "the forecast goes on where listening ended"
    assert forecast.split()[-1] == f"{WIDE:.1f},0.0"


def test_a_low_yield_is_told_with_the_advice_to_stop():
    told = str(listened_html(replace(GAINS, n_next_found=4.0)))
    assert "good place to stop" in told


def test_nothing_is_said_where_nobody_listened():
    assert not listened_html(None)
    assert not listened_html(replace(GAINS, n_answered=0))


def test_a_single_answer_has_no_curve():
    few = replace(GAINS, n_answered=1, curve=((0, 0),), forecast=())
    assert YieldCurve.of(few) is None
    assert "<svg" not in str(listened_html(few))


def test_the_report_of_students_has_the_part_once(tmp_path):
    page = write_report(tmp_path, make_contents(gains=GAINS)).read_text(encoding="utf-8")
    assert page.count("What listening found") == 1
    assert GAINS.told in page
    without = write_report(tmp_path, make_contents()).read_text(encoding="utf-8")
    assert "What listening found" not in without
