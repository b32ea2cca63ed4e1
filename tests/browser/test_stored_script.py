"""Names that are scripts, on the three pages that show names: they are read, and never run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from earmark.labels import LabelSet
from earmark.pipeline import scan
from earmark.report import HeardFlag, write_report
from earmark.review import JudgementStore
from listening import ONTOLOGY
from made_up import CURVE, make_contents, make_courses, make_results
from tests.browser.conftest import FEW, Rater, open_tones, serving

Sit = Callable[..., Rater]


def script(place: str) -> str:
    """Return a name that would run when a page takes it for markup, and say where it was."""
    return f"""'"><img src=x onerror="document.title='ran'"><b>{place}"""


@contextmanager
def opened(browser: Browser, path: Path) -> Iterator[Page]:
    """Open a page from the disk; whatever the browser complains about fails the test."""
    page, complaints = browser.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: request.url.startswith(("file:", "data:"))
            or complaints.append(request.url))  # fmt: skip
    page.goto(path.as_uri())
    page.wait_for_load_state("load")
    yield page
    page.wait_for_timeout(100)  # for what is about to run
    assert (page.title() == "ran", complaints) == (False, [])
    page.close()


def shown(page: Page) -> str:
    """Return all text of a page, folded or not."""
    return page.evaluate("document.body.textContent")


@pytest.mark.parametrize("folded", [False, True])
def test_the_listening_page(tmp_path: Path, sit_down: Sit, folded: bool) -> None:
    names = {one: script(f"class {one}") for one in ONTOLOGY.class_ids}
    definitions = {one: script("definition") for one in ONTOLOGY.class_ids}
    ontology = replace(ONTOLOGY, names=names, definitions=definitions)
    who = script("rater")
    options = {"n_clips": 60, "seconds": 3.5, "clip_name": script("clip"), "ontology": ontology}
    session = open_tones(tmp_path, (who, script("another")), FEW, **options)
    with serving(session) as served:
        rater = sit_down(served, who)
        rater.page.on("console", lambda message: rater.problems.append(message.text))
        rater.told("gate-text", who)
        rater.start()
        rater.told("class-name", script("class"))
        rater.told("definition", script("definition"))
        rater.press("i")
        rater.told("about", script("clip"))
        if folded:
            rater.press("o")
            rater.page.locator("#classes tbody th").first.wait_for()
            rater.told("classes", script("class"))
        else:
            rater.answer("f")
            rater.saved(1)
        assert rater.page.title() != "ran"
        assert not rater.page.query_selector_all("img[onerror]")
        rater.page.close()  # before its server ends, or it complains of that
    with JudgementStore(session.workspace.judgements_path, must_exist=True) as store:
        assert set(store.rows()["rater"]) <= {who}


def test_the_page_of_a_scan(tmp_path: Path, browser: Browser) -> None:
    rng = np.random.default_rng(0)
    states = (rng.random((600, 3)) < 0.2).astype(np.int8)
    scores = rng.normal(-4, 1, states.shape).astype(np.float32) + 5 * states
    states[rng.random(states.shape) < 0.3] = 0
    clip_ids = [script(f"clip {number}") for number in range(600)]
    labels = LabelSet.from_dense(states, clip_ids, [script(f"class {one}") for one in range(3)])
    scan(labels, scores, out=tmp_path / "found")
    with opened(browser, tmp_path / "found" / "index.html") as page:
        text = shown(page)
        assert script("clip ") in text
        assert script("class 1") in text
        page.locator("th button").first.click()  # our own script runs under the policy
        assert page.locator("th[aria-sort=ascending]").count() == 1


def test_the_page_of_a_report(tmp_path: Path, browser: Browser) -> None:
    heard = (HeardFlag(1, script("clip"), 2.0, 0.5, class_name=script("class heard")),)
    contents = make_contents(
        make_results(CURVE, CURVE, student=script("student")), script("class"),
        title=script("title"), heard=heard, courses=make_courses(),
        provenance={script("fact"): script("value")},
    )  # fmt: skip
    with opened(browser, write_report(tmp_path / "report", contents)) as page:
        text = shown(page)
        for place in ("clip", "class", "class heard", "student", "title", "fact", "value"):
            assert script(place) in text, place
