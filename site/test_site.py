"""The built site, looked at in a browser: run by ``make docs``, after the build."""

from __future__ import annotations

import functools
import os
import re
import shutil
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from reference import definition, public_names

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.glob("**/*.html"))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium is installed")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids |= {value for name, value in attrs if name == "id" and value}


def test_there_are_pages() -> None:
    assert len(PAGES) > 20, "run `make docs`"


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_ask_nobody_else_and_fit(browser: Browser, address: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    asked: list[str] = []
    wrong: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    context.on("response", lambda got: got.status >= 400 and wrong.append(got.url))
    page = context.new_page()
    for name in PAGES:
        page.goto(address + name)
        page.wait_for_load_state("networkidle")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{name} is wider than {width} pixels")
    context.close()
    elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert (elsewhere, wrong) == ([], [])


def test_search_finds_a_page(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    page.wait_for_load_state("networkidle")  # a word that is typed before is not seen
    page.click(".md-search__input")
    page.keyboard.type("lwlrap", delay=50)
    page.wait_for_selector(".md-search-result__link", timeout=30_000)
    page.close()


def test_every_public_name_has_its_entry() -> None:
    ids = _Tags((SITE / "api.html").read_text()).ids
    missing = [n for n in public_names("earmark") if definition(f"earmark.{n}") not in ids]
    assert missing == []


def test_notebooks_show_what_they_found() -> None:
    found = (SITE / "notebooks" / "find_missing_labels.html").read_text()
    assert _Tags(found).tags.count("audio") == 6
    assert "of the first 100: " in found
    trained = (SITE / "notebooks" / "train_immune.html").read_text()
    gains = {
        name: float(re.search(rf"{name} +0\.\d+ +([+-]0\.\d+)", trained)[1])
        for name in ("suspects ignored", "as many ignored at random", "complete labels")
    }
    assert gains["as many ignored at random"] < gains["suspects ignored"] < gains["complete labels"]
