"""The page and the real queue that learns, together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from earmark.config import ReviewParams
from earmark.pipeline import draw_queue, open_queue
from earmark.review import JudgementStore, Mode
from earmark.review.server.session import open_review_session
from listening import RECIPE, tone_workspace
from tests.browser.conftest import Rater, Served, serving

Sit = Callable[..., Rater]


@contextmanager
def growing(root: Path, mode: Mode) -> Iterator[Served]:
    workspace = tone_workspace(root, n_clips=120, seconds=1.5)
    draw_queue(workspace, RECIPE, params=ReviewParams(aim="find", flags_per_block=3, overlap=1))
    store = JudgementStore(workspace.judgements_path)
    with (
        open_queue(workspace, store, ["ann"], mode) as live,
        serving(open_review_session(workspace, RECIPE, live)) as served,
    ):
        yield served


def test_blocks_of_classes_go_on_and_say_what_was_found(tmp_path: Path, sit_down: Sit) -> None:
    with growing(tmp_path, "class") as served:
        rater = sit_down(served)
        rater.start()
        for _ in range(2):
            while rater.view == "work":
                rater.answer("f")
            rater.told("summary-told", "present, 0 not present")
            rater.told("summary-title", "block finished")
            rater.page.locator("#summary .yield-told", has_text="confirmed").wait_for()
            rater.press(" ")
            rater.wait("body[data-view=work]")
        rater.told("progress", "block 3here 0/")
        rater.press("z")
        rater.told("progress", "block 2")
        rater.press("o")
        rater.page.locator("#classes tbody tr").first.wait_for()
        rater.page.get_by_role("button", name="Whistle").click()
        rater.told("progress", "only Whistle")
        rater.told("class-name", "Whistle")
        rater.press("o")
        rater.told("overview-only", "You are asked about Whistle alone.")
        rater.page.get_by_role("button", name="All classes again").click()
        rater.wait("body[data-view=work]")
        assert "only" not in rater.progress


def test_clips_are_answered_as_a_whole_and_classes_added(tmp_path: Path, sit_down: Sit) -> None:
    with growing(tmp_path, "clip") as served:
        rater = sit_down(served)
        rater.start()
        rater.wait("#answers:not(.locked)")
        offered = rater.page.locator("#offers li").count()
        assert offered
        rater.press("1")
        rater.press("a")
        rater.page.keyboard.type("hum")
        rater.page.locator("#search-found li").first.wait_for()
        rater.press("Enter")
        rater.page.wait_for_selector("#search", state="hidden")
        rater.page.locator("#offers li.present", has_text="Hum").wait_for()
        n_rows = rater.page.locator("#offers li").count()
        rater.answer("Enter")
        rater.saved(n_rows)
        stored = served.stored()
        assert len(stored) == n_rows
        assert stored.filter(class_id="hum")["answer"].to_list() == ["present"]
        rater.reload()
        rater.press("z")
        rater.wait("body[data-view=work]")
        rater.saved(0)
        rater.page.locator("#offers li.present", has_text="Hum").wait_for()
        assert served.stored().is_empty()


def test_known_labels_of_clips_look_like_others_and_mark_a_block_that_fails_them(
    tmp_path: Path, sit_down: Sit
) -> None:
    with growing(tmp_path, "clip") as served:
        rater = sit_down(served)
        rater.start()
        items = served.session.queue.items
        known = items.filter(pl.col("kind").is_in(["positive", "negative"]))
        assert known["kind"].n_unique() == 2
        told = json.dumps(served.session.block("ann", 0))
        assert not any(word in told for word in ("positive", "negative", "likely", "sample"))
        while rater.view == "work":
            rater.wait("#answers:not(.locked)")
            given = rater.page.text_content("#given") or ""
            offered = rater.page.locator("#offers .name").all_text_contents()
            assert not set(offered) & set(given.removeprefix("Given: ").split(" · "))
            rater.answer("Enter")  # nothing is heard, so what is known to be there is missed
        rater.told("summary-gold", f"✗ Known labels among them: {len(known) // 2} of {len(known)}")
