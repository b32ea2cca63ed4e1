"""More clips like the one on stage, in one class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.browser.conftest import Rater
from tests.browser.test_live import growing

Sit = Callable[..., Rater]


def test_clips_like_this_one_come_next_and_the_block_comes_back(
    tmp_path: Path, sit_down: Sit
) -> None:
    with growing(tmp_path, "class") as served:
        rater = sit_down(served)
        rater.start()
        rater.answer("f")
        name = rater.page.text_content("#class-name")
        rater.press("m")
        rater.told("message", "like the last one, for the same class")
        rater.told("progress", "here 0/")
        assert rater.page.text_content("#class-name") == name
        while rater.view == "work":
            rater.answer("f")
        rater.told("summary-title", "block finished")
        rater.press(" ")
        rater.wait("body[data-view=work]")
        rater.told("progress", "here 1/")
        drawn = served.session.queue.items
        alike = drawn.filter(block=1)
        assert alike["kind"].unique().to_list() == ["likely"]
        assert alike["class_id"].n_unique() == 1
        assert rater.problems == []
