"""What a rater is told while listening: how much was heard, of which clip, and how loud."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from tests.browser.conftest import Rater, Served

Sit = Callable[..., Rater]

NOTE_PLAYS = """
const { play } = HTMLMediaElement.prototype;
HTMLMediaElement.prototype.play = function () {
  window.playing = this;
  return play.call(this);
};
"""


@pytest.fixture
def rater(served: Served, sit_down: Sit) -> Rater:
    """Let ann start, with ``window.playing`` as the sound that plays."""
    seated = sit_down(served)
    seated.context.add_init_script(NOTE_PLAYS)
    seated.reload()
    return seated


def test_what_was_heard_says_what_not_present_will_speak_for(served: Served, rater: Rater) -> None:
    rater.start()
    rater.wait("#answers:not(.locked)")
    assert "of 3.5 s" in (rater.page.text_content("#heard") or "")
    assert rater.page.text_content("#claim") == "where I listened"
    rater.press("g")
    rater.told("heard", "whole clip heard ✓")
    rater.told("claim", "in the whole clip")
    rater.answer("j")
    rater.page.wait_for_function(
        "() => /^heard/.test(document.getElementById('heard').textContent)"
    )
    rater.press("g")  # and too soon
    rater.answer("j")
    rater.saved(2)
    assert served.stored()["whole_clip"].to_list() == [True, False]


def test_the_clip_and_its_labels_are_told_on_request_and_for_one_clip(
    served: Served, rater: Rater
) -> None:
    rater.start()
    assert not rater.page.is_visible("#about")
    rater.press("i")
    rater.wait("#about:not([hidden])")
    clip_id = served.session.queue.items["clip_id"][0]
    workspace = served.session.workspace
    given = workspace.labels.rows().filter(pl.col("present"), clip_id=clip_id)["class_id"]
    names = ", ".join(map(workspace.ontology.name, given)) or "none"
    assert rater.page.text_content("#about") == f"Clip {clip_id} · given labels: {names}"
    rater.press("i")
    rater.page.wait_for_selector("#about", state="hidden")
    rater.press("i")
    rater.wait("#about:not([hidden])")
    rater.answer("f")
    assert not rater.page.is_visible("#about")


def test_the_volume_follows_keys_and_slider_and_is_remembered(rater: Rater) -> None:
    rater.start()
    rater.wait("#answers:not(.locked)")
    for key in ("-", "-", "-", "+"):
        rater.press(key)
    assert rater.page.evaluate("window.playing.volume") == pytest.approx(0.8)
    slider = rater.page.get_by_role("slider", name="Volume")
    slider.focus()
    rater.press("ArrowLeft")  # which would have answered "present"
    assert slider.get_attribute("aria-valuetext") == "75 %"
    assert "all 0/" in rater.progress
    rater.answer("f")
    rater.wait("#answers:not(.locked)")
    assert rater.page.evaluate("window.playing.volume") == pytest.approx(0.75)
    rater.press("1")
    rater.wait("[data-example=example1][aria-pressed]")
    assert rater.page.evaluate("window.playing.volume") == pytest.approx(0.75)
    rater.reload()
    rater.start()
    assert slider.input_value() == "75"


def test_an_answer_may_be_given_while_an_example_plays(served: Served, rater: Rater) -> None:
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.press("1")
    rater.wait("[data-example=example1][aria-pressed]")
    rater.answer("h")
    rater.saved(1)
    first, second = served.session.queue.items["item"][:2]
    assert served.stored().select("item", "answer").rows() == [(first, "unsure")]
    assert rater.page.evaluate("window.playing.src").endswith(f"/clips/{second}.wav")


def test_after_an_example_the_clip_goes_on(served: Served, rater: Rater) -> None:
    rater.start()
    rater.press("4")
    rater.wait("[data-example=decoy][aria-pressed]")
    assert "/clips/" in rater.page.evaluate("window.playing.src")
    rater.page.wait_for_selector("[data-example=decoy][aria-pressed]", state="detached")
    item = served.session.queue.items["item"][0]
    assert rater.page.evaluate("window.playing.src").endswith(f"/clips/{item}.wav")
    rater.page.wait_for_function("() => !window.playing.paused && window.playing.currentTime > 0.3")
    rater.answer("f")


def test_the_tour_comes_once_and_again_when_asked(rater: Rater) -> None:
    sentences = rater.page.locator("#gate-tour li")
    assert sentences.count() == 4
    rater.start()
    rater.reload()
    assert sentences.count() == 0
    rater.press("?")
    assert rater.page.locator("#help-tour li").count() == 4
    assert rater.page.locator("#help-tour").is_visible()


def test_time_left_is_told_in_hours_and_minutes(rater: Rater) -> None:
    ask = "async (seconds) => (await import('/static/page.js')).duration(seconds)"
    told = {7.2: "8 s", 59 * 60: "59 min", 59.9 * 60: "1 h 0 min", 146 * 60 + 8: "2 h 26 min"}
    assert {seconds: rater.page.evaluate(ask, seconds) for seconds in told} == told
