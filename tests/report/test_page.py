from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import soundfile

from earmark.errors import EarmarkError
from earmark.report import (
    BASIS_NAMES,
    GLOSSARY,
    HeardFlag,
    TeacherGrade,
    headline,
    linker,
    report_tables,
    strategies_told,
    write_report,
)
from made_up import (
    CURVE,
    NASTY,
    RESULTS,
    Page,
    check_policy,
    make_choices,
    make_contents,
    make_courses,
    make_flags,
    make_results,
)

BASES = ("given", "ignored", "truth")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The page of a sweep, without truth, controls or sounds."""
    path = write_report(tmp_path_factory.mktemp("plain"), make_contents())
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """The page of a sweep, with flags to hear."""
    contents = make_contents(heard=make_flags())
    return write_report(tmp_path_factory.mktemp("heard"), contents).read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_needs_nothing_else(tmp_path):
    results = make_results({0.0: 0.1, 2.0: 0.2}, CURVE, labels=("given", "truth"), train_set=NASTY)
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    contents = make_contents(
        results, NASTY, title=NASTY, judged=judged, heard=make_flags(NASTY, NASTY),
        provenance={NASTY: NASTY}, courses=make_courses(),
    )  # fmt: skip
    path = write_report(tmp_path / "report", contents)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert path == tmp_path / "report" / "index.html"
    assert "<script>alert" not in text  # every name is escaped
    assert page.text.count(NASTY) >= 8
    assert page.tags.count("script") == 2
    for address in page.addresses:
        assert address.startswith(("data:", "#term-")) or (path.parent / address).is_file()
    assert not re.search(r"url\(|@import|\bfetch\(|https?://", re.sub(r"data:[^\"]*", "", text))


def test_the_page_tells_its_story_in_order(tmp_path):
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    contents = make_contents(judged=judged, heard=make_flags())
    text = write_report(tmp_path, contents).read_text(encoding="utf-8")
    anchors = [
        "finding", "listen", "sure", "discard", "table", "judged", "classes", "counts", "methods",
        "glossary",
    ]  # fmt: skip
    assert re.findall(r'<section id="(\w+)">', text) == anchors
    told = Page(text).text
    assert told.index("Cannot tell:") < told.index("Performance against")
    assert "8 of 10 flags are missing labels (80 %, 54 to 93)" in told


def test_the_first_screen_has_a_verdict_a_figure_three_numbers_and_flags(tmp_path):
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    teacher = TeacherGrade("teacher", 0.843, 0.39, "400 clips that it was not trained on")
    contents = make_contents(judged=judged, heard=make_flags() * 3, teacher=teacher)
    text = write_report(tmp_path, contents).read_text(encoding="utf-8")
    first = Page(re.search(r'<section id="finding">.*?</section>', text, re.DOTALL)[0])
    assert first.text.replace("\n", "").count(headline(RESULTS).removeprefix("Cannot tell:")) == 1
    assert first.ids.count("figure-first") == 1
    numbers = re.findall(r"<li><b>(.*?)</b>", text)
    assert [number.replace("\u00a0", " ") for number in numbers[:3]] == ["+0.030", "80 %", "0.84"]
    assert "8 of 10 at 1 %, 53 times as many as by chance" in first.text
    assert "on 400 clips that it was not trained on; it finds 39 % of the labels" in first.text
    listen = re.search(r'<section id="listen">.*?</section>', text, re.DOTALL)[0]
    assert listen.index("<audio") < listen.index("<summary>5 more flags")
    folded = text.split('<section id="sure">')[1].split('<section id="glossary">')[0]
    assert folded.count("<section") + 1 == folded.count("<details><summary><h2>")


def test_words_of_the_trade_are_explained_and_linked_once(heard):
    links = re.findall(r'class="term" href="#([\w-]+)"', heard)
    assert len(links) == len(set(links))
    anchors = {term.anchor for term in GLOSSARY}
    assert set(links) <= anchors <= set(Page(heard).ids)
    assert {"term-lwlrap", "term-teacher", "term-implicit", "term-operating-point"} <= set(links)
    names = [term.name for term in GLOSSARY]
    for name in ("lwlrap", "d′", "implicit", "explicit", "calibration", "mAP", "student"):
        assert name in names


def test_links_leave_other_text_as_it_is():
    link = linker()
    assert str(link("lwlrap <b>")) == '<a class="term" href="#term-lwlrap">lwlrap</a> &lt;b&gt;'
    assert str(link("lwlrap, unflagged d'art")) == "lwlrap, unflagged d&#39;art"
    assert str(link("d' fell")).startswith('<a class="term" href="#term-d-prime">d&#39;</a>')


def test_a_page_with_many_flags_stays_small(tmp_path):
    noise = np.random.default_rng(0).normal(0, 0.3, 10 * 16_000).astype(np.float32)
    frames = np.random.default_rng(0).normal(size=(998, 64)).astype(np.float16)
    flags = [HeardFlag(i, f"c{i}", 1.0, 0.5, None, noise, frames, None, "x") for i in range(40)]
    text = write_report(tmp_path, make_contents(heard=flags)).read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    assert 4 < text.count("<audio") < 40
    assert text.count("not played here") == 40 - text.count("<audio")


def test_comparison_and_training_join_the_page_where_they_were_run(tmp_path):
    choices = make_choices({"baseline": 0.0, "mask": 0.03}, {"mask": 0.04}, labels=BASES)
    contents = make_contents(choices=choices, courses=make_courses())
    path = write_report(tmp_path, contents)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert {"compared", "training"} < set(page.ids)
    assert {"comparison", "comparison_ignored", "comparison_truth"} < set(page.ids)
    assert strategies_told(choices) in page.text
    drawn = json.loads(re.search(r'id="charts">(.*?)</script>', text)[1])
    assert list(drawn["classes"]) == ["net, small"]
    assert list(drawn["comparison-lwlrap"]) == [BASIS_NAMES[labels] for labels in BASES]
    assert list(drawn["training"]) == ["loss", "lwlrap on tune"]


@pytest.mark.parametrize("labels", [("given", "ignored"), ("given", "corrected", "truth")])
def test_every_kind_of_labels_is_in_figures_tables_and_words(tmp_path, labels):
    results = make_results({0.0: 0.1, 2.0: 0.2}, CURVE, labels=labels)
    choices = make_choices({"baseline": 0.0, "mask": 0.03}, {"mask": 0.04}, labels=labels)
    contents = make_contents(results, choices=choices)
    page = Page(write_report(tmp_path, contents).read_text(encoding="utf-8"))
    for by in labels[1:]:
        assert {f"performance_{by}", f"comparison_{by}"} < set(page.ids)
    assert f"reported on the eval split, by {'; '.join(map(BASIS_NAMES.get, labels))}." in page.text


def test_labels_that_only_tune_was_judged_by_are_not_reported(tmp_path):
    judged = make_results(CURVE, CURVE, labels=("corrected",)).filter(split="tune")
    contents = make_contents(pl.concat([RESULTS, judged]))
    assert "performance_corrected" not in {table.name for table in report_tables(contents)}


def test_nothing_to_report_is_a_readable_error(tmp_path):
    with pytest.raises(EarmarkError, match="no sweep and no comparison"):
        write_report(tmp_path, replace(make_contents(), results=None, per_class=None))


def test_the_policy_admits_this_script_and_style_alone(plain):
    check_policy(plain)


def test_the_class_table_holds_every_class_of_every_student(tmp_path):
    results = pl.concat(make_results(CURVE, CURVE, train_set=name) for name in ("small", "large"))
    tables = {table.name: table for table in report_tables(make_contents(results))}
    shown = tables["per_class"].shown
    assert shown.columns[:3] == ["Class", "Student", "Prior"]
    assert shown["Student"].to_list() == ["net, small"] * 3 + ["net, large"] * 3
    assert shown["lwlrap change"].to_list()[:3] == ["−0.100", "+0.000", "+0.100"]
    assert shown["To ignore"].to_list()[:3] == ["8", "9", "9"]


def test_flags_can_be_heard_and_seen(heard):
    told = Page(heard).text
    assert "Bird chance 90 %" in told
    assert "clip-1 · no. 1 of its class, score 3.21 ✓ missing label" in told
    assert "score −1.50 ✗ not there" in told
    (sound,) = re.findall(
        r'<audio controls preload="none" src="data:audio/mpeg;base64,([^"]*)"', heard
    )
    waveform, rate = soundfile.read(io.BytesIO(base64.b64decode(sound)))
    assert rate == 16_000
    peak_hz = np.abs(np.fft.rfft(waveform)).argmax() * rate / len(waveform)
    assert peak_hz == pytest.approx(440, abs=2)
    assert heard.count("data:image/png;base64") == 2


def test_a_report_without_truth_controls_or_sounds_is_still_a_page(plain):
    assert "Cannot tell" in Page(plain).text
    assert 'id="judged"' not in plain
    assert 'id="listen"' not in plain


def test_the_same_contents_give_the_same_page(tmp_path, heard):
    again = write_report(tmp_path, make_contents(heard=make_flags()))
    assert again.read_text(encoding="utf-8") == heard


def test_no_results_is_a_readable_error():
    with pytest.raises(EarmarkError, match="earmark sweep"):
        headline(RESULTS.clear())


def test_a_flag_says_what_is_known_of_it(tmp_path) -> None:
    contents = make_contents(heard=make_flags(NASTY, NASTY))
    page = Page(write_report(tmp_path, contents).read_text(encoding="utf-8"))
    assert page.text.count(NASTY) == 3  # a clip, and two classes
    assert page.tags.count("audio") == 1  # the second has no samples, the third no sound at all
    assert "score 0.00" in page.text


def test_flags_without_a_chance_are_not_called_likely(tmp_path, heard) -> None:
    path = write_report(tmp_path, make_contents(heard=make_flags()[1:]))
    unknown = Page(path.read_text(encoding="utf-8")).text
    assert "the likeliest first" in Page(heard).text
    assert "the likeliest first" not in unknown
    assert "Labels that look missing, in no order of likelihood" in unknown


def test_without_truth_nothing_is_claimed_of_a_flag(tmp_path) -> None:
    contents = make_contents(heard=[HeardFlag(1, "clip", 0.5)])
    text = write_report(tmp_path, contents).read_text(encoding="utf-8")
    listed = text[text.index('id="listen"') : text.index('id="sure"')]
    assert "missing label" not in listed
    assert "not there" not in listed


def test_flags_can_be_judged_where_nothing_is_missing(tmp_path) -> None:
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [0], "n_missing": [0]}
    )
    page = Page(write_report(tmp_path, make_contents(judged=judged)).read_text(encoding="utf-8"))
    assert "0 of 10 flags are missing labels" in page.text
