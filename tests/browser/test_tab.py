"""One rater, two tabs: only one of them answers."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

from tests.browser.conftest import Rater, Served

Sit = Callable[..., Rater]


def in_another_tab(rater: Rater) -> Page:
    tab = rater.context.new_page()
    tab.goto(rater.home)
    tab.wait_for_selector("body[data-view=elsewhere]")
    return tab


def test_a_second_tab_answers_nothing(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.answer("f")
    second = in_another_tab(rater)
    assert "open in another tab" in (second.text_content("#elsewhere") or "")
    for key in ("f", "z", "o", "r"):
        second.keyboard.press(key)
    assert second.get_attribute("body", "data-view") == "elsewhere"
    rater.page.bring_to_front()
    rater.answer("j")
    rater.saved(2)
    assert served.stored()["answer"].to_list() == ["present", "not_present"]


def test_taking_over_pauses_the_first_and_knows_its_answers(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.answer("f")
    first, second = rater.page, in_another_tab(rater)
    second.keyboard.press(" ")
    second.wait_for_selector("body[data-view=gate]")
    first.wait_for_selector("body[data-view=elsewhere]")
    first.bring_to_front()
    for key in ("f", "z"):
        first.keyboard.press(key)
    assert not first.evaluate(
        "[...document.querySelectorAll('#work')].some((it) => it.checkVisibility())"
    )

    rater.page = second
    second.bring_to_front()
    rater.start()
    rater.told("progress", "here 1/")
    rater.answer("h")
    rater.saved(2)
    assert served.stored()["answer"].to_list() == ["present", "unsure"]

    first.bring_to_front()
    first.keyboard.press(" ")
    first.wait_for_selector("body[data-view=gate]")
    second.wait_for_selector("body[data-view=elsewhere]")


def test_a_closed_tab_is_in_nobodys_way(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.page.close()
    rater.page = rater.context.new_page()
    rater.open(rater.home)
    rater.start()
    rater.answer("f")
    rater.saved(1)
