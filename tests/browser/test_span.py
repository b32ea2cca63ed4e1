from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from earmark.config import ReviewParams
from listening import open_tones
from tests.browser.conftest import Rater, Served, serving

Sit = Callable[..., Rater]
SECONDS = 5.0
FEW = ReviewParams(aim="measure", flags_per_block=3, blocks_per_class=1, overlap=1)
MOST_MILLISECONDS = 150
A_PIXEL = 0.012
"""Seconds that a pixel stands for, rounded up."""

NOTE_THE_SOUND = """
const { play } = HTMLMediaElement.prototype;
HTMLMediaElement.prototype.play = function () { window.playing = this; return play.call(this); };
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(open_tones(tmp_path, ("ann",), FEW, n_clips=60, seconds=SECONDS)) as running:
        yield running


def x_of(rater: Rater, seconds: float) -> tuple[float, float]:
    box = rater.page.locator("#overlay").bounding_box()
    assert box is not None
    return box["x"] + box["width"] * seconds / SECONDS, box["y"] + box["height"] / 2


def drag(rater: Rater, start: float, end: float) -> None:
    """Drag from one second of the picture to another."""
    mouse = rater.page.mouse
    mouse.move(*x_of(rater, start))
    mouse.down()
    mouse.move(*x_of(rater, (start + end) / 2))
    mouse.move(*x_of(rater, end))
    mouse.up()


def spans(served: Served) -> list[tuple[float | None, float | None]]:
    return served.stored().select("span_start", "span_end").rows()


def test_a_span_is_dragged_moved_and_stored(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.page.add_init_script(NOTE_THE_SOUND)
    rater.reload()
    rater.start()
    rater.wait("#answers:not(.locked)")
    drag(rater, 1.0, 2.0)
    rater.told("span", "your span 1.0")
    drag(rater, 2.0, 3.0)
    rater.told("span", "–3.0")
    rater.page.wait_for_timeout(1_500)
    assert 0.95 <= rater.page.evaluate("playing.currentTime") <= 3.2
    rater.answer("f")
    rater.answer("f")
    rater.saved(2)
    (start, end), untouched = spans(served)
    assert start == pytest.approx(1.0, abs=A_PIXEL)
    assert end == pytest.approx(3.0, abs=A_PIXEL)
    assert untouched == (None, None)


def test_the_teachers_span_is_taken_over_by_an_edge(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.wait("#answers:not(.locked)")
    item = served.session.queue.items.row(0, named=True)
    ((start, end), *_) = served.session.peaks.spans(item["clip_id"], item["class_id"])
    drag(rater, end, end + 0.5)
    rater.answer("f")
    rater.saved(1)
    ((stored_start, stored_end),) = spans(served)
    assert stored_start == pytest.approx(start, abs=0.001)
    assert stored_end == pytest.approx(end + 0.5, abs=A_PIXEL)


def test_keys_mark_the_span_at_the_playhead_and_clear_it(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.page.add_init_script(NOTE_THE_SOUND)
    rater.reload()
    rater.start(n_speed_ups=0)
    rater.wait("#answers:not(.locked)")
    rater.press("\\")
    rater.told("message", "no span of yours")
    rater.press("g")
    rater.page.wait_for_function("() => playing.currentTime > 0.4 && playing.currentTime < 1.5")
    rater.press("[")
    rater.page.wait_for_function("() => playing.currentTime > 1.5")
    rater.press("]")
    rater.told("span", "your span")
    rater.answer("f")
    rater.press("g")
    rater.page.wait_for_timeout(700)
    rater.press("]")
    rater.told("span", "your span")
    rater.page.click("#span-clear")
    rater.told("span", "drag to mark")
    rater.answer("j")
    rater.saved(2)
    (start, end), cleared = spans(served)
    assert start is not None
    assert end is not None
    assert 0.35 < start < end
    assert end > 1.4
    assert cleared == (None, None)


def test_an_undone_answer_keeps_its_span_for_the_next(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.wait("#answers:not(.locked)")
    drag(rater, 0.5, 1.5)
    rater.answer("f")
    rater.told("span", "drag to mark")
    rater.press("z")
    rater.told("span", "your span 0.5")
    rater.answer("h")
    rater.saved(1)
    assert served.stored()["answer"].to_list() == ["unsure"]
    assert spans(served)[0][0] == pytest.approx(0.5, abs=A_PIXEL)
    retraction = served.session.judgements.rows().filter(pl.col("retracts").is_not_null())
    assert retraction["span_start"].to_list() == [None]


def test_a_span_is_there_again_after_a_reload(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.wait("#answers:not(.locked)")
    drag(rater, 0.5, 1.5)
    rater.answer("f")
    rater.saved(1)
    rater.reload()
    rater.press(" ")
    rater.wait("body[data-view=work]")
    rater.page.locator("#last button").first.click()
    rater.told("span", "your span 0.5")
    rater.wait("#answers:not(.locked)")
    rater.press("h")
    rater.told("last", "U")
    rater.saved(1)
    assert served.stored()["answer"].to_list() == ["unsure"]
    assert spans(served)[0][1] == pytest.approx(1.5, abs=A_PIXEL)


def test_a_click_or_a_finger_that_scrolls_sets_nothing(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served, has_touch=True)
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.page.mouse.click(*x_of(rater, 1.0))
    rater.page.touchscreen.tap(*x_of(rater, 2.0))
    rater.answer("f")
    rater.saved(1)
    assert spans(served) == [(None, None)]


def test_spans_do_not_slow_the_keys(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    for _ in range(4):
        rater.wait("#answers:not(.locked)")
        drag(rater, 1.0, 3.0)
        rater.answer("f")
    waits = rater.page.evaluate(
        "performance.getEntriesByName('key-to-sound').map((entry) => entry.duration)"
    )
    assert statistics.median(waits) <= MOST_MILLISECONDS
