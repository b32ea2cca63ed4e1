"""The report's page as a reader meets it, opened from the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from playwright.sync_api import Browser, Page

from earmark.report import write_report
from made_up import CURVE, make_choices, make_contents, make_courses, make_results

LWLRAP = "#figure-performance-lwlrap"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    results = make_results(CURVE, CURVE, random={1.0: 0.41}, labels=("given", "truth"))
    choices = make_choices({"baseline": 0.0, "mask": 0.03, "splc": -0.01}, {"mask": 0.04})
    percents = [float(percent) for percent in range(1, 15)]
    judged = pl.DataFrame(
        {"discard_percent": percents, "n_flags": 100, "n_right": 50, "n_missing": 200}
    )
    contents = make_contents(results, choices=choices, courses=make_courses(), judged=judged)
    path = write_report(tmp_path_factory.mktemp("report"), contents)
    return path.as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Open the page; whatever the browser complains about fails the test."""
    opened = browser.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: request.url.startswith(("file:", "data:"))
              or complaints.append(request.url))  # fmt: skip
    opened.goto(address)
    opened.wait_for_selector("#figure-first .point")
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    opened.wait_for_selector(f"{LWLRAP} .point")
    yield opened
    assert complaints == []
    opened.close()


def test_a_point_tells_of_itself_under_the_pointer(page: Page) -> None:
    page.locator(f"{LWLRAP} .point").nth(1).hover(force=True)
    told = page.locator(f"{LWLRAP} .tip").inner_text()
    assert "lwlrap 0.440 [0.340, 0.540]" in told
    assert "change +0.040 [+0.035, +0.045]" in told


def test_points_can_be_walked_with_the_keyboard(page: Page) -> None:
    page.locator(f"{LWLRAP} .point").first.focus()
    tip = page.locator(f"{LWLRAP} .tip")
    assert "baseline" in tip.inner_text()
    page.keyboard.press("ArrowRight")
    assert "1 % ignored" in tip.inner_text()
    page.keyboard.press("ArrowDown")
    assert "random control" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_series_can_be_taken_away_and_brought_back(page: Page) -> None:
    button = page.locator(f"{LWLRAP} .legend button").first
    line = page.locator(f"{LWLRAP} [data-series='0'] .line")
    button.click()
    assert not line.is_visible()
    button.click()
    assert line.is_visible()


def test_choosing_other_labels_draws_all_figures_of_the_group_anew(page: Page) -> None:
    chooser = page.locator("#discard .chooser select")
    before = page.locator(f"{LWLRAP} svg").element_handle()
    chooser.select_option("the complete labels of the simulator")
    assert not before.evaluate("svg => svg.isConnected")
    assert page.locator(f"{LWLRAP} .point").count() == 4


def test_a_figure_is_saved_with_its_legend_and_colours(page: Page, tmp_path: Path) -> None:
    figure = page.locator(LWLRAP)
    figure.locator(".legend button").first.click()
    with page.expect_download() as download:
        figure.locator(".save").click()
    assert download.value.suggested_filename == "performance-lwlrap.svg"
    download.value.save_as(tmp_path / "figure.svg")
    root = ElementTree.parse(tmp_path / "figure.svg").getroot()
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "lwlrap" in texts
    assert "net, small, random control" in texts
    assert "net, small" not in texts, "a series that was taken away"
    points = [one for one in root.iter() if "point" in one.get("class", "")]
    assert points
    assert all(point.get("fill").startswith("rgb") or point.get("stroke") for point in points)


def test_tables_sort_by_numbers_and_by_names(page: Page) -> None:
    heading = page.locator("#per_class th button")
    first = page.locator("#per_class tbody tr td").first
    heading.get_by_text("lwlrap change", exact=True).click()
    assert first.inner_text() == "Rain"  # +0.1 before 0 before -0.1
    heading.get_by_text("lwlrap change", exact=True).click()
    assert first.inner_text() == "Bird"
    heading.get_by_text("Class", exact=True).click()
    assert first.inner_text() == "Bird"


def test_long_tables_can_be_filtered(page: Page) -> None:
    page.locator("#judged .filter input").fill("13 50")
    assert page.locator("#flags_judged tbody tr:visible").all_inner_texts()[0].startswith("13")
    assert page.locator("#judged .filter output").inner_text() == "1 of 14"


def test_a_word_leads_to_what_it_means(page: Page) -> None:
    page.locator(".verdict .term").get_by_text("lwlrap", exact=True).click()
    assert page.url.endswith("#term-lwlrap")
    assert page.locator("#term-lwlrap + dd").inner_text().startswith("How well a network ranks")


def test_it_fits_a_telephone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
