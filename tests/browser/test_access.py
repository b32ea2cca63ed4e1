"""The page on a telephone, and for those who do not see it."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.browser.conftest import Rater, Served

Sit = Callable[..., Rater]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
THUMB_PIXELS = 44
TOO_SMALL = """(least) => [...document.querySelectorAll("button, input")]
  .filter((it) => it.checkVisibility() && it.getBoundingClientRect().height < least)
  .map((it) => it.textContent || it.id)"""
CUT_OFF = """() => [...document.querySelectorAll("body *")]
  .filter((it) => it.checkVisibility() && !it.matches(".unseen"))
  .filter((it) => it.getBoundingClientRect().right > innerWidth + 1)
  .map((it) => it.outerHTML.slice(0, 80))"""


def test_a_telephone_shows_every_state_whole(served: Served, sit_down: Sit) -> None:
    audio = served.session.workspace.root / "audio"
    (audio / f"{served.session.queue.items['clip_id'][1]}.wav").unlink()
    rater = sit_down(served, **PHONE)
    looked_at = []

    def look(state: str) -> None:
        looked_at.append(state)
        assert rater.page.evaluate(CUT_OFF) == [], state
        assert rater.page.evaluate(TOO_SMALL, THUMB_PIXELS) == [], state

    look("gate")
    rater.page.get_by_role("button", name="Start").tap()
    rater.wait("#answers:not(.locked)")
    look("work")
    for name in ("Present", "Not present", "Unsure", "Undo"):
        box = rater.page.get_by_role("button", name=name).first.bounding_box()
        assert box is not None
        assert 844 / 2 < box["y"] < 844 - THUMB_PIXELS, name
    rater.press("i")
    rater.wait("#about:not([hidden])")
    look("about")
    rater.page.get_by_role("button", name="✓ Present").tap()
    rater.wait("#broken:not([hidden])")
    look("broken")
    rater.page.get_by_role("button", name="cannot play").tap()
    while rater.view == "work":
        rater.answer("f")
    rater.told("summary-told", "Precision")
    look("summary")
    rater.page.get_by_role("button", name="All classes").tap()
    rater.page.locator("#classes td", has_text="[").first.wait_for()
    look("overview")
    rater.press("?")
    look("keys")
    rater.press("Escape")
    rater.page = rater.context.new_page()
    rater.page.goto(rater.home)
    rater.wait("body[data-view=elsewhere]")
    look("elsewhere")
    assert len(looked_at) == 8


def test_every_control_has_a_name_and_a_sane_place(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.wait("#answers:not(.locked)")
    told = rater.page.locator("body").aria_snapshot()
    assert re.findall(r"- (?:button|slider|textbox|combobox|img)(?::|$)", told, re.MULTILINE) == []
    for line in ('slider "Volume"', 'group "Your answer"', 'heading "Hum" [level=1]'):
        assert line in told
    walk = []
    for _ in range(9):
        rater.press("Tab")
        walk.append(
            rater.page.evaluate("document.activeElement.textContent.trim().split(/\\s+/)[0]")
        )
    assert walk == ["All", "Keys", "▸", "▸", "▸", "▸", "✓", "?", "✗"]


def test_progress_is_told_politely(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.answer("f")
    rater.told("spoken", "present, 1 of 4")
    live = rater.page.locator("[aria-live], [role=status], [role=alert]")
    assert live.count() >= 2
    for place in live.all():
        assert place.get_attribute("role") == "status"
        assert place.get_attribute("aria-live") in (None, "polite")
