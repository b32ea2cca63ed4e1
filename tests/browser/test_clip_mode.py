"""All labels of a clip at once: numbers mark what is heard, Enter says that the rest is not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.browser.conftest import Rater, Served
from tests.browser.growing import Growing
from tests.browser.test_access import CUT_OFF, PHONE, THUMB_PIXELS, TOO_SMALL

Sit = Callable[..., Rater]
LEVELS = "#offers li"


@pytest.fixture
def growing(served: Served) -> Growing:
    return Growing(served.session, "clip", n_blocks=1)


@pytest.fixture
def rater(served: Served, growing: Growing, sit_down: Sit) -> Rater:
    seated = sit_down(served)
    growing.serve(seated.page)
    seated.reload()
    return seated


def marks(rater: Rater) -> list[str]:
    return [row.get_attribute("class") or "" for row in rater.page.locator(LEVELS).all()]


def said_of(growing: Growing, clip: int) -> dict[str, str]:
    """Return what is said of a clip, by class."""
    sound = growing.clips(0)[clip]["clip"]
    own = {item: answer for item, answer in growing.current.items() if item.startswith(sound)}
    return {item.removeprefix(f"{sound}-"): answer for item, answer in own.items()}


def test_numbers_mark_and_enter_goes_on(growing: Growing, rater: Rater) -> None:
    rater.press(" ")
    rater.wait("body[data-view=work]")
    for key in ("1", "Enter"):  # too soon
        rater.press(key)
    rater.told("message", "Listen first")
    assert marks(rater) == ["", "", ""]
    assert rater.page.text_content("#given") == "Given: Hum · Wind"
    rater.wait("#answers:not(.locked)")
    for key in ("1", "2", "2", "Shift+3"):
        rater.press(key)
    assert marks(rater) == ["present", "", "unsure"]
    rater.answer("Enter")
    rater.told("progress", "here 1/33 answered1 present")
    rater.saved(3)
    expected = {"dog": "present", "rain": "not_present", "bell": "unsure"}
    assert said_of(growing, 0) == expected
    assert marks(rater) == ["", "", ""]
    assert all(one["heard_seconds"] >= 0.6 for one in growing.said)
    assert not any(one["whole_clip"] for one in growing.said)


def test_the_clip_plays_once_and_whole_is_said_only_if_it_was(
    growing: Growing, rater: Rater
) -> None:
    rater.start()
    rater.told("heard", "whole clip heard ✓")
    rater.wait("#answers:not(.locked)")
    rater.press("h")
    rater.told("message", "Unsure of which")
    rater.press("2")
    rater.press("3")
    assert marks(rater) == ["", "unsure", "present"]
    rater.answer("Enter")
    rater.saved(3)
    assert {one["whole_clip"] for one in growing.said} == {True}
    assert said_of(growing, 0)["rain"] == "unsure"


def test_undo_brings_the_clip_back_with_its_marks(growing: Growing, rater: Rater) -> None:
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.press("1")
    rater.press("Shift+2")
    rater.answer("Enter")
    rater.press("z")
    rater.told("progress", "here 0/30 answered")
    assert marks(rater) == ["present", "unsure", ""]
    rater.saved(0)
    assert said_of(growing, 0) == {}
    rater.wait("#answers:not(.locked)")
    rater.press("1")
    rater.answer("Enter")
    rater.saved(3)
    assert said_of(growing, 0) == {"dog": "not_present", "rain": "unsure", "bell": "not_present"}

    rater.reload()
    rater.press("z")
    rater.wait("body[data-view=work]")
    assert marks(rater) == ["", "unsure", ""]
    rater.saved(0)


def spans_said(growing: Growing, clip: int) -> dict[str, tuple[float, float] | None]:
    """Return the spans of what is said of a clip, by class."""
    sound = growing.clips(0)[clip]["clip"]
    said = {one["item"].removeprefix(f"{sound}-"): one for one in growing.said if one["answer"]}
    return {
        name: (one["span_start"], one["span_end"]) if "span_start" in one else None
        for name, one in said.items()
    }


def drag(rater: Rater, start: float, end: float) -> None:
    """Drag over a part of the picture, in shares of its width."""
    box = rater.page.locator("#overlay").bounding_box()
    assert box is not None
    for at, button in ((start, "down"), (end, "up")):
        rater.page.mouse.move(box["x"] + at * box["width"], box["y"] + box["height"] / 2)
        getattr(rater.page.mouse, button)()


def test_each_marked_class_has_a_span_of_its_own(growing: Growing, rater: Rater) -> None:
    rater.start(n_speed_ups=0)
    rater.wait("#answers:not(.locked)")
    drag(rater, 0.2, 0.4)  # of no class yet
    rater.press("[")
    rater.told("message", "Mark a class first")
    rater.press("1")
    rater.told("span", "Dog: drag to mark where")
    drag(rater, 0.1, 0.5)
    rater.told("span", "Dog: your span 0.3")
    rater.press("3")
    rater.told("span", "Bell: drag")
    rater.press("]")
    rater.told("span", "Bell: your span 0.00")
    rater.press(",")
    rater.told("span", "Dog: your span 0.3")
    assert rater.page.locator("#offers li[aria-current] .name").text_content() == "Dog"
    assert rater.page.locator(".strip i.own").count() == 2
    rater.told("heard", "whole clip heard ✓")  # a span does not stop the clip
    rater.answer("Enter")
    rater.saved(3)
    said = spans_said(growing, 0)
    assert said["dog"] == (pytest.approx(0.35, abs=0.02), pytest.approx(1.75, abs=0.02))
    assert said["bell"] is not None
    assert 0.6 < said["bell"][1] < 3.5
    assert said["rain"] is None

    rater.reload()
    rater.press("z")
    rater.wait("body[data-view=work]")
    assert rater.page.locator(".strip i.own").count() == 2
    rater.wait("#answers:not(.locked)")
    rater.press("3")  # not heard after all
    rater.answer("Enter")
    rater.saved(3)
    assert said_of(growing, 0)["bell"] == "not_present"
    assert spans_said(growing, 0) == said | {"bell": None}


def test_a_class_is_searched_for_and_added(growing: Growing, rater: Rater) -> None:
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.press("a")
    rater.page.keyboard.type("z1r")  # keys that answer elsewhere
    assert rater.page.input_value("#search-text") == "z1r"
    assert marks(rater) == ["", "", ""]
    rater.page.fill("#search-text", "")
    rater.page.keyboard.type("r")
    rater.page.locator("#search-found li", has_text="Siren").wait_for()
    assert rater.page.locator("#search-found li").all_text_contents() == ["RainWater", "SirenAlarm"]
    rater.press("ArrowDown")
    rater.press("Enter")
    rater.page.locator(LEVELS).nth(3).wait_for()
    assert marks(rater) == ["", "", "", "present"]
    assert not rater.page.is_visible("#search")
    rater.answer("Enter")
    rater.saved(4)
    assert said_of(growing, 0)["siren"] == "present"


def test_a_search_can_be_given_up_and_finds_what_is_listed(rater: Rater) -> None:
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.press("a")
    rater.press("Escape")
    assert not rater.page.is_visible("#search")
    rater.press("a")
    rater.page.keyboard.type("do")
    rater.page.locator("#search-found li").wait_for()
    rater.press("Enter")
    rater.page.locator("#offers li.present").wait_for()
    assert marks(rater) == ["present", "", ""]


def test_strips_show_where_the_teacher_hears_each_class(rater: Rater) -> None:
    rater.start()
    rater.wait("#answers:not(.locked)")
    shown = (
        rater.page.locator("#offers li")
        .first.locator(".strip i")
        .evaluate_all(
            "parts => parts.map(({ style }) => [parseFloat(style.left), parseFloat(style.width)])"
        )
    )
    assert shown == [
        pytest.approx([100 * 0.5 / 3.5, 100 * 0.7 / 3.5], abs=0.1),
        pytest.approx([100 * 2.0 / 3.5, 100 * 0.5 / 3.5], abs=0.1),
    ]


def test_a_clip_that_cannot_be_played_is_skipped_as_a_whole(
    served: Served, growing: Growing, sit_down: Sit
) -> None:
    item = growing.clips(0)[0]["clip"]
    clip_id = served.session.queue.items.filter(item=item)["clip_id"][0]
    (served.session.workspace.root / "audio" / f"{clip_id}.wav").unlink()
    rater = sit_down(served)
    growing.serve(rater.page)
    rater.reload()
    rater.press(" ")
    rater.wait("#broken:not([hidden])")
    rater.press("1")
    rater.press("Enter")
    assert growing.said == []
    rater.press("x")
    rater.told("saved", "saved 3 · 3 could not be played")
    assert set(said_of(growing, 0).values()) == {"cannot_play"}


def test_a_telephone_and_a_keyboard_reach_every_row(
    served: Served, growing: Growing, sit_down: Sit
) -> None:
    rater = sit_down(served, **PHONE)
    growing.serve(rater.page)
    rater.reload()
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.page.get_by_role("button", name="Unsure: Rain").tap()
    assert marks(rater) == ["", "unsure", ""]
    row = rater.page.get_by_role("button", name="Bell", exact=True)
    row.focus()
    rater.press("Enter")
    assert marks(rater) == ["", "unsure", "present"]
    assert row.evaluate("it => it === document.activeElement")
    rater.page.get_by_role("button", name="Add a class").tap()
    rater.page.keyboard.type("r")
    rater.page.get_by_role("option", name="Siren").wait_for()
    assert rater.page.evaluate(CUT_OFF) == []
    assert rater.page.evaluate(TOO_SMALL, THUMB_PIXELS) == []
    rater.page.get_by_role("option", name="Siren").tap()
    rater.page.locator(LEVELS).nth(3).wait_for()
    assert marks(rater)[3] == "present"
    told = rater.page.locator("#work").aria_snapshot()
    assert re.findall(r"- (?:button|img|textbox|combobox)(?::|$)", told, re.MULTILINE) == []
