"""A queue that grows while people answer: blocks come as they are wanted, classes may change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Rater, Served
from tests.browser.growing import YIELD, Growing

Sit = Callable[..., Rater]


@pytest.fixture
def growing(served: Served) -> Growing:
    return Growing(served.session, "class")


@pytest.fixture
def rater(served: Served, growing: Growing, sit_down: Sit) -> Rater:
    seated = sit_down(served)
    growing.serve(seated.page)
    seated.reload()
    return seated


def test_blocks_are_drawn_as_they_are_wanted(growing: Growing, rater: Rater) -> None:
    assert [one["block"] for one in growing.drawn] == [0]
    rater.start()
    rater.told("progress", "block 1·here 0/3·0 answered·0 present".replace("·", ""))
    for key in "ffj":
        rater.answer(key)
    rater.wait("body[data-view=summary]")
    rater.told("summary-told", "2 present, 1 not present")
    rater.press(" ")
    rater.wait("body[data-view=work]")
    assert [one["block"] for one in growing.drawn] == [0, 1]
    rater.told("progress", "block 2here 0/33 answered2 present")
    for key in "fff":
        rater.answer(key)
    rater.wait("body[data-view=summary]")
    rater.press(" ")
    rater.told("gate-title", "All clips are judged")
    assert len(growing.current) == 6


def test_another_class_cannot_be_overlooked(rater: Rater) -> None:
    rater.start()
    heading = rater.page.locator("h1")
    rater.answer("f")
    assert heading.text_content() == "Dog"
    assert "is-new" not in (heading.get_attribute("class") or "")
    rater.answer("f")
    rater.told("class-name", "Rain")
    assert "is-new" in (heading.get_attribute("class") or "")
    assert heading.evaluate("it => getComputedStyle(it).animationName") == "new-class"
    rater.told("spoken", "Now: Rain")
    rater.page.emulate_media(reduced_motion="reduce")
    assert heading.evaluate("it => getComputedStyle(it).animationName") == "none"
    assert heading.evaluate("it => getComputedStyle(it).backgroundColor") != "rgba(0, 0, 0, 0)"
    rater.press("z")
    rater.told("class-name", "Dog")
    rater.told("spoken", "Now: Dog")


def test_what_was_found_is_told_with_what_more_would_find(rater: Rater) -> None:
    told = YIELD["described"]
    rater.told("yield-line", told)
    rater.start()
    for key in "ffj":
        rater.answer(key)
    summary = rater.page.locator("#summary .yield")
    summary.locator("svg .dashed").wait_for()
    assert told in summary.inner_text()
    assert "a good place to stop" in summary.inner_text()
    dashed = summary.locator("svg .dashed").get_attribute("points") or ""
    solid = summary.locator("svg polyline:not(.dashed)").get_attribute("points") or ""
    assert dashed.split()[0] == solid.split()[-1]


def test_answers_that_wait_hold_the_next_block_back(growing: Growing, rater: Rater) -> None:
    rater.start()
    rater.page.route("**/api/judgements", lambda route: route.abort())
    for key in "ffj":
        rater.answer(key)
    rater.wait("body[data-view=summary]")
    rater.press(" ")
    rater.told("message", "Answers wait to be stored")
    assert rater.view == "summary"
    assert not rater.page.is_visible("#summary .yield")
    rater.page.unroute("**/api/judgements")
    rater.saved(3)
    rater.press(" ")
    rater.wait("body[data-view=work]")
    assert len(growing.drawn) == 2
