"""A real Chromium, a served review, and a rater who has nothing but a keyboard."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from earmark.config import ReviewParams
from earmark.review.server.app import Place, make_app, make_server, make_tokens, open_socket
from earmark.review.server.session import ReviewSession
from listening import open_tones

FEW = ReviewParams(aim="measure", flags_per_block=3, blocks_per_class=1, overlap=1)
# The first has no tabs and menus of its own to draw: a third less work for the same pages.
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        told = f"none of {', '.join(CHROMIUMS)} is installed; the page is tested in a real browser"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@dataclass(frozen=True)
class Served:
    """A running review."""

    session: ReviewSession
    place: Place
    tokens: dict[str, str]

    def url(self, rater: str) -> str:
        return self.place.url(next(token for token, name in self.tokens.items() if name == rater))

    def stored(self, rater: str | None = None) -> pl.DataFrame:
        return self.session.judgements.current(rater)


@contextmanager
def serving(session: ReviewSession, port: int = 0) -> Iterator[Served]:
    with open_socket("127.0.0.1", port) as listener:
        place, tokens = Place("127.0.0.1", listener.getsockname()[1]), make_tokens(session.raters)
        server = make_server(make_app(session, tokens, place))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(session, place, tokens)
        finally:
            server.should_exit = True
            thread.join()
            session.judgements.close()


def make_session(
    root: Path, params: ReviewParams = FEW, raters: tuple[str, ...] = ("ann",)
) -> ReviewSession:
    """Open a review of clips of 3.5 seconds."""
    return open_tones(root, raters, params, n_clips=60, seconds=3.5)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(make_session(tmp_path)) as running:
        yield running


class Rater:
    """Someone at the page; ``problems`` collects errors, ``elsewhere`` requests to other hosts."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.home = context, url.partition("?")[0]
        self.problems: list[str] = []
        self.elsewhere: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        context.on("request", self._note)
        self.open(url)

    def _note(self, request) -> None:
        if not request.url.startswith(self.home):
            self.elsewhere.append(request.url)

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.wait("body:not([data-view=loading])")

    def reload(self) -> None:
        self.page.reload()
        self.wait("body:not([data-view=loading])")

    def wait(self, selector: str) -> None:
        self.page.wait_for_selector(selector, timeout=10_000)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def start(self, n_speed_ups: int = 2) -> None:
        """Start, and listen at double speed unless told otherwise."""
        self.press(" ")
        self.wait("body[data-view=work]")
        for _ in range(n_speed_ups):
            self.press("r")

    def answer(self, key: str) -> None:
        """Answer once the page allows it, and wait until the answer counts."""
        self.wait("#answers:not(.locked)")
        before = self.progress
        self.press(key)
        self.page.wait_for_function(
            "before => document.getElementById('progress').textContent !== before", arg=before
        )

    @property
    def progress(self) -> str:
        return self.page.text_content("#progress") or ""

    @property
    def view(self) -> str | None:
        return self.page.get_attribute("body", "data-view")

    def told(self, place: str, text: str) -> None:
        """Wait until a text appears in a place."""
        self.page.wait_for_function(
            "([id, text]) => document.getElementById(id).textContent.includes(text)",
            arg=[place, text],
            timeout=10_000,
        )

    def saved(self, n_answers: int) -> None:
        """Wait until the page says that so many answers are stored, and that none waits."""
        self.page.wait_for_function(
            "n => { const words = document.getElementById('saved').textContent.split(' · ');"
            " return words[0] === `saved ${n}` && !words.some((each) => /waiting$/.test(each)); }",
            arg=n_answers,
            timeout=10_000,
        )


@pytest.fixture
def sit_down(browser: Browser) -> Iterator[Callable[..., Rater]]:
    """Let raters sit down, each at a browser of their own."""
    seated: list[Rater] = []

    def sit(served: Served, rater: str = "ann", **options: object) -> Rater:
        seated.append(Rater(browser.new_context(**options), served.url(rater)))
        return seated[-1]

    yield sit
    for rater in seated:
        rater.context.close()
    assert not [problem for rater in seated for problem in rater.problems]
    assert not [url for rater in seated for url in rater.elsewhere]
