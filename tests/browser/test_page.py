from __future__ import annotations

import dataclasses
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from earmark.audio import write_store
from earmark.cli.app import app
from earmark.compute import (
    HERE,
)
from earmark.config import (
    CrossFitParams,
    ModelParams,
    NetworkParams,
    Recipe,
    ReviewParams,
    TrainParams,
)
from earmark.review import JudgementStore, ReviewQueue, make_queue, relabel, write_queue
from earmark.review.server.session import open_review_session
from earmark.scores import scored_labels
from earmark.training import cross_fit
from listening import open_tones, tone_workspace
from store_troubles import store_trouble
from tests.browser.conftest import FEW, Rater, Served, make_session, serving

Sit = Callable[..., Rater]
MOST_MILLISECONDS = 150
TWO_BLOCKS = FEW.model_copy(update={"classes": ("hum", "siren")})
LETTERS = {"f": "present", "j": "not_present", "h": "unsure"}


@pytest.fixture
def two_blocks(tmp_path: Path) -> Iterator[Served]:
    with serving(make_session(tmp_path, TWO_BLOCKS)) as running:
        yield running


def n_items(served: Served) -> int:
    return len(served.session.queue.items)


N_BY_KEYBOARD = 15


def test_clips_of_three_blocks_by_keyboard_alone(tmp_path: Path, sit_down: Sit) -> None:
    params = ReviewParams(aim="measure", flags_per_block=6, blocks_per_class=1, overlap=1)
    with serving(make_session(tmp_path, params)) as served:
        rater = sit_down(served)
        rater.start()
        expected, n_summaries = [], 0
        for turn in range(N_BY_KEYBOARD):
            if rater.view == "summary":
                n_summaries += 1
                rater.told("summary-told", "Precision")
                rater.press(" ")
                rater.wait("body[data-view=work]")
            key = "fjhffj"[turn % 6]
            expected.append(LETTERS[key])
            rater.answer(key)
        assert n_summaries == 2
        rater.saved(N_BY_KEYBOARD)
        stored = served.stored()
        assert stored["answer"].to_list() == expected
        assert (
            stored["item"].to_list() == served.session.queue.items["item"][:N_BY_KEYBOARD].to_list()
        )
        assert (stored["heard_seconds"] >= 0.6).all()
        waits = rater.page.evaluate(
            "performance.getEntriesByName('key-to-sound').map((entry) => entry.duration)"
        )
        assert len(waits) >= N_BY_KEYBOARD
        assert statistics.median(waits) <= MOST_MILLISECONDS
        judgements, queue = stored, served.session.queue.snapshot
    done = CliRunner().invoke(app, ["relabel", str(tmp_path)])
    assert done.exit_code == 0, done.output
    corrected = relabel(served.session.workspace.labels, judgements, queue).labels
    written = pl.read_parquet(tmp_path / "relabelled" / "corrected" / "labels.parquet")
    keys = ["clip_id", "class_id"]
    assert written.select(*keys, "present").sort(keys).equals(corrected.rows().sort(keys))
    assert corrected.digest != served.session.workspace.labels.digest


def test_keys_before_the_sound_are_ignored(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    for key in ("f", "ArrowLeft", "j"):
        rater.press(key)
    # A sound that does not begin, so that even a busy machine presses before it.
    rater.page.evaluate(
        "() => { window.play = Audio.prototype.play;"
        " Audio.prototype.play = () => new Promise(() => {}); }"
    )
    rater.start(n_speed_ups=0)
    rater.press("x")
    for key in ("f", "h", "j", "ArrowRight"):
        rater.page.evaluate("document.getElementById('message').textContent = ''")
        rater.press(key)
        rater.told("message", "Listen first")
    assert served.stored().is_empty()
    rater.page.evaluate("() => { Audio.prototype.play = window.play; }")
    rater.press(" ")
    rater.answer("ArrowRight")
    rater.saved(1)
    assert served.stored()["answer"].to_list() == ["not_present"]


def test_undo_across_the_end_and_after_a_reload(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    n_block = served.session.describe("ann")["blocks"][0]["n_items"]
    for _ in range(n_block):
        rater.answer("f")
    rater.wait("body[data-view=summary]")
    rater.told("summary-told", f"{n_block} present")
    rater.press("z")
    rater.wait("body[data-view=work]")
    rater.told("progress", f"here {n_block - 1}/{n_block}")

    rater.reload()
    for left in range(n_block - 2, -1, -1):
        rater.press("z")
        rater.told("progress", f"here {left}/{n_block}")
    rater.press("z")
    rater.told("message", "nothing to undo")
    rater.saved(0)
    assert served.stored().is_empty()
    assert len(served.session.judgements.rows()) == 2 * n_block
    rater.answer("j")
    rater.saved(1)
    first = served.session.queue.items["item"][0]
    assert served.stored().select("item", "answer").rows() == [(first, "not_present")]


def test_the_end_of_all_can_be_undone_too(two_blocks: Served, sit_down: Sit) -> None:
    served, rater = two_blocks, sit_down(two_blocks)
    rater.start()
    while rater.view == "work":
        rater.answer("f")
        if rater.view == "summary":
            rater.told("summary-told", "Precision")
            rater.press(" ")
            rater.page.wait_for_function("document.body.dataset.view !== 'summary'")
    rater.told("gate-title", "All clips are judged")
    assert len(served.stored()) == n_items(served)
    rater.reload()
    rater.told("gate-title", "All clips are judged")
    rater.press("z")
    rater.wait("body[data-view=work]")
    rater.saved(n_items(served) - 1)


NOTES_LOCKS = """
const answers = document.querySelector("#answers");
window.wasLocked = answers.classList.contains("locked");
const look = () => { window.wasLocked ||= answers.classList.contains("locked"); };
new MutationObserver(look).observe(answers, { attributes: true });
"""
"""Keeps whether answers were locked meanwhile: for a moment, which a busy machine misses."""


def test_an_answer_can_be_reopened_and_stands_until_there_is_another(
    served: Served, sit_down: Sit
) -> None:
    rater = sit_down(served)
    rater.start()
    rater.answer("f")
    rater.answer("f")
    rater.saved(2)
    rater.page.evaluate(NOTES_LOCKS)
    rater.page.locator("#last button").first.click()
    rater.told("progress", "all 2/")
    first = served.session.queue.items["item"][0]
    assert served.stored().filter(item=first)["answer"].to_list() == ["present"]
    rater.page.wait_for_function("wasLocked")
    rater.wait("#answers:not(.locked)")
    rater.page.evaluate("wasLocked = false")
    rater.press("h")
    rater.page.wait_for_function("wasLocked")
    rater.saved(2)
    assert served.stored().filter(item=first)["answer"].to_list() == ["unsure"]


def test_a_reply_that_is_lost_leads_to_one_stored_answer(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    lost = []

    def lose_the_first(route) -> None:
        if lost:
            route.continue_()
        else:
            route.fetch()
            lost.append(route.request.post_data_json["id"])
            route.abort()

    rater.page.route("**/api/judgements", lose_the_first)
    rater.start()
    rater.answer("f")
    rater.told("saved", "waiting")
    rater.saved(1)
    assert served.session.judgements.rows()["id"].to_list() == lost


def test_answers_wait_offline_survive_a_reload_and_arrive_in_order(
    served: Served, sit_down: Sit
) -> None:
    rater = sit_down(served)
    rater.start()
    rater.page.route("**/api/judgements", lambda route: route.abort())
    rater.answer("f")
    rater.answer("h")
    rater.told("saved", "2 waiting: the server cannot be reached".replace(": ", " · "))
    waiting = rater.page.evaluate(
        "Object.entries(localStorage).filter(([key]) => key.endsWith('-ann'))[0][1]"
    )
    assert served.stored().is_empty()
    rater.reload()
    rater.told("progress", "all 2/")
    rater.page.unroute("**/api/judgements")
    rater.saved(2)
    rows = served.session.judgements.rows()
    assert rows["id"].to_list() == [judgement["id"] for judgement in json.loads(waiting)]
    assert rows["answer"].to_list() == ["present", "unsure"]


@pytest.mark.parametrize("trouble", ["full", "locked"])
def test_an_answer_waits_until_the_store_is_mended(
    served: Served, sit_down: Sit, trouble: str
) -> None:
    rater = sit_down(served)
    rater.start()
    rater.answer("f")
    rater.saved(1)
    with store_trouble(served.session.judgements, trouble) as reason:
        rater.answer("j")
        rater.told("saved", "saved 1 · 1 waiting")
        rater.told("saved", reason)
        rater.reload()
        rater.told("saved", "saved 1 · 1 waiting")
        rater.told("saved", reason)
    rater.saved(2)
    assert rater.page.text_content("#saved") == "saved 2"
    assert served.stored("ann")["answer"].to_list() == ["present", "not_present"]


def test_an_undo_counts_once_it_is_stored(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.answer("f")
    rater.saved(1)
    rater.page.route("**/api/judgements", lambda route: route.abort())
    rater.press("z")
    rater.told("saved", "saved 1 · 1 waiting")
    rater.reload()
    rater.told("saved", "saved 1 · 1 waiting")
    rater.page.unroute("**/api/judgements")
    rater.saved(0)
    assert served.stored().is_empty()


def test_a_refused_answer_is_kept_and_told(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.page.route(
        "**/api/judgements",
        lambda route: route.fulfill(status=404, json={"error": "there is no such item"}),
    )
    rater.wait("#answers:not(.locked)")
    rater.press("f")
    rater.told("refused-told", "1 not stored, kept in this browser: there is no such item.")
    rater.saved(0)
    rater.told("progress", "all 0/")
    with rater.page.expect_download() as download:
        rater.page.get_by_role("button", name="Download").click()
    (kept,) = json.loads(Path(download.value.path()).read_text())
    assert kept["answer"] == "present"
    rater.reload()
    rater.told("refused-told", "1 not stored")
    rater.page.unroute("**/api/judgements")
    rater.page.get_by_role("button", name="Try again").click()
    rater.saved(1)
    assert not rater.page.is_visible("#refused")
    assert served.stored()["id"].to_list() == [kept["id"]]


def test_refused_answers_are_forgotten_only_when_asked(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.page.route(
        "**/api/judgements",
        lambda route: route.fulfill(status=409, json={"error": "this is another's"}),
    )
    rater.wait("#answers:not(.locked)")
    rater.press("f")
    rater.told("refused-told", "1 not stored")
    rater.page.get_by_role("button", name="Forget").click()  # Playwright declines what is asked
    rater.told("refused-told", "1 not stored")
    rater.page.once("dialog", lambda dialog: dialog.accept())
    rater.page.get_by_role("button", name="Forget").click()
    rater.page.wait_for_selector("#refused", state="hidden")
    rater.reload()
    assert not rater.page.is_visible("#refused")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_waiting_answers_are_offered_to_another_queue(
    tmp_path: Path, sit_down: Sit, is_replaced: bool
) -> None:
    with serving(make_session(tmp_path / "w", TWO_BLOCKS)) as before:
        rater = sit_down(before)
        rater.start()
        rater.page.route("**/api/judgements", lambda route: route.abort())
        rater.answer("f")
        rater.answer("j")
        rater.told("saved", "2 waiting")
    if is_replaced:
        (tmp_path / "w").rename(tmp_path / "old")
        after = open_tones(tmp_path / "w", ("ann",), FEW, n_clips=60, seconds=3.5, clip_name="new")
    else:
        more = FEW.model_copy(update={"flags_per_block": 6})
        (tmp_path / "w" / "review" / "queue.json").unlink()
        after = open_tones(tmp_path / "w", ("ann",), more, n_clips=60, seconds=3.5)
    rater.page.goto("about:blank")  # else the open page sends its answers to the new server
    with serving(after, before.place.port) as served:
        rater.page.unroute("**/api/judgements")
        rater.open(served.url("ann"))
        rater.told("refused-told", "2 not stored, kept in this browser: given in another queue")
        assert served.stored().is_empty()
        rater.page.get_by_role("button", name="Try again").click()
        if is_replaced:
            rater.told("refused-told", "2 not stored")
            rater.told("refused-told", "there is no such item")
            rater.reload()
            rater.told("refused-told", "2 not stored")
            assert served.stored().is_empty()
        else:
            rater.saved(2)
            assert served.stored()["answer"].to_list() == ["present", "not_present"]


def test_going_offline_does_not_stop_the_clips_that_were_fetched(
    served: Served, sit_down: Sit
) -> None:
    rater = sit_down(served)
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.page.wait_for_load_state("networkidle")
    rater.context.set_offline(True)
    rater.answer("f")
    rater.answer("j")
    rater.told("saved", "2 waiting")
    rater.context.set_offline(False)
    rater.saved(2)


def test_two_raters_are_blind_to_each_other(tmp_path: Path, sit_down: Sit) -> None:
    with serving(make_session(tmp_path, raters=("ann", "bob"))) as served:
        ann, bob = sit_down(served, "ann"), sit_down(served, "bob")
        ann.start()
        ann.answer("f")
        ann.saved(1)
        bob.reload()
        assert "all 0/" in bob.progress
        bob.start()
        bob.answer("j")
        bob.saved(1)
        assert served.stored("ann")["answer"].to_list() == ["present"]
        assert served.stored("bob")["answer"].to_list() == ["not_present"]


def test_two_raters_in_one_browser_do_not_answer_for_each_other(
    tmp_path: Path, sit_down: Sit
) -> None:
    with serving(make_session(tmp_path, raters=("ann", "bob"))) as served:
        ann = sit_down(served, "ann")
        ann.context.new_page().goto(served.url("bob"))
        ann.page.bring_to_front()
        ann.start()
        ann.wait("#answers:not(.locked)")
        ann.press("f")
        ann.told("refused-told", "signed in as 'bob'")
        assert served.stored().is_empty()


def test_a_clip_that_cannot_be_played_can_only_be_skipped(served: Served, sit_down: Sit) -> None:
    item, clip_id = served.session.queue.items.select("item", "clip_id").row(0)
    (served.session.workspace.root / "audio" / f"{clip_id}.wav").unlink()
    rater = sit_down(served)
    rater.press(" ")
    rater.wait("#broken:not([hidden])")
    rater.told("broken", "no such file")
    for key in ("f", "j", "h"):
        rater.press(key)
    assert "all 0/" in rater.progress
    rater.press("x")
    rater.told("saved", "saved 1 · 1 could not be played")
    assert served.stored().select("item", "answer").rows() == [(item, "cannot_play")]
    assert not rater.page.is_visible("#broken")


def test_score_and_picture_are_noted_and_only_for_the_clip(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.start()
    rater.press("s")
    rater.told("score", "teacher’s score")
    rater.press("p")
    assert not rater.page.is_visible("#mel")
    rater.answer("f")
    assert rater.page.text_content("#score") == "teacher’s score hidden"
    rater.answer("f")
    rater.saved(2)
    noted = served.stored().select("shown_score", "shown_picture").rows()
    assert noted == [(True, True), (False, False)]


def test_the_tour_of_peaks_and_the_whole_clip(tmp_path: Path, sit_down: Sit) -> None:
    session = make_session(tmp_path)
    labels = session.queue.items.select("clip_id", "class_id").iter_rows()
    outputs = dict.fromkeys(labels, np.array([0.9, 0.1, 0.2, 0.1, 0.8], np.float32))
    session = dataclasses.replace(
        session, peaks=dataclasses.replace(session.peaks, outputs=outputs)
    )
    with serving(session) as served:
        rater = sit_down(served)
        rater.start()
        rater.told("place", "peak 1 of 3")
        rater.press(">")
        rater.told("place", "peak 2 of 3")
        rater.press(".")
        rater.press(".")
        rater.told("message", "no further peaks")
        rater.press("<")
        rater.told("place", "peak 2 of 3")
        rater.answer("j")
        rater.press("g")
        rater.page.wait_for_timeout(2_500)
        rater.answer("j")
        rater.saved(2)
        assert served.stored()["whole_clip"].to_list() == [False, True]


NOTE_STARTS = """
window.starts = [];
const { play } = HTMLMediaElement.prototype;
HTMLMediaElement.prototype.play = function () {
  window.playing = this;
  window.starts.push(this.currentTime);
  return play.call(this);
};
"""


def test_a_probe_leads_the_rater_to_the_sound(tmp_path: Path, sit_down: Sit) -> None:
    """Frames of half a second; the classes sound in the seventh, and the probe has to find it."""
    workspace = tone_workspace(tmp_path, n_clips=90, seconds=6.0)
    rng = np.random.default_rng(0)
    assert workspace.truth is not None
    states = workspace.truth.states()
    frames = rng.normal(0, 1, (90, 12, 32)).astype(np.float32)
    frames[:, 6] += 4 * np.repeat(states > 0, 8, axis=1)
    write_store(workspace.frames_folder, zip(workspace.clips["clip_id"], frames, strict=True))
    teacher = NetworkParams(
        name="probe",
        model=ModelParams(architecture="mlp_probe", n_hidden=16),
        train=TrainParams(epochs=40, batch_patches=16, learning_rate=1e-2),
    )
    recipe = Recipe(teacher=teacher, cross_fit=CrossFitParams(n_folds=2))
    scores = cross_fit(workspace, teacher, recipe.cross_fit, engine=HERE)
    labels = scored_labels(scores, workspace.labels)
    queue = make_queue(labels, scores.logits, workspace.ontology, FEW)
    write_queue(workspace, queue)
    session = open_review_session(
        workspace, recipe, ReviewQueue(queue, JudgementStore(workspace.judgements_path), ["ann"])
    )
    row_of = {clip_id: row for row, clip_id in enumerate(workspace.clips["clip_id"])}
    n_present = 0
    with serving(session) as served:
        rater = sit_down(served)
        rater.context.add_init_script(NOTE_STARTS)
        rater.reload()
        rater.start()
        block = session.block("ann", 0)
        for item in block["items"][:4]:
            row = session.queue.by_item[item["item"]]
            rater.wait("#answers:not(.locked)")
            start = rater.page.evaluate("window.playing.played.start(0)")  # what really sounded
            assert start == pytest.approx(max(item["peaks"][0][0] - 0.4, 0), abs=0.05)
            column = workspace.ontology.index[row["class_id"]]
            if states[row_of[row["clip_id"]], column] > 0:
                n_present += 1
                assert start == pytest.approx(2.6, abs=0.05)  # from 3.0 s on, and a little before
            rater.answer("f")
    assert n_present


def test_where_nobody_knows_the_place_the_whole_clip_plays(tmp_path: Path, sit_down: Sit) -> None:
    session = make_session(tmp_path)
    assert not session.workspace.has_frames()
    unlocated = dataclasses.replace(session.scores, best_patches=None)
    session = dataclasses.replace(
        session, peaks=dataclasses.replace(session.peaks, scores=unlocated)
    )
    with serving(session) as served:
        rater = sit_down(served)
        rater.context.add_init_script(NOTE_STARTS)
        rater.reload()
        rater.start()
        rater.told("place", "whole clip")
        assert rater.page.evaluate("window.starts") == [0]
        rater.page.wait_for_function("() => window.playing.currentTime > 2.6")
        rater.press(">")
        rater.told("message", "does not say where")
        rater.page.wait_for_function("() => document.getElementById('mel').naturalWidth > 0")
        rater.page.wait_for_function("() => window.playing.currentTime < 1")  # and once more
        rater.press("s")
        rater.told("score", "teacher’s score")
        rater.answer("j")
        rater.saved(1)
        rater.press("1")
        rater.page.wait_for_function("() => window.playing.currentTime > 0.2")
        assert served.stored()["whole_clip"].to_list() == [True]


def test_a_player_that_falls_asleep_is_woken(served: Served, sit_down: Sit) -> None:
    """A sound stands still from 0.2 s on until it is sought, as Chromium's do after quick seeks."""
    rater = sit_down(served)
    rater.context.add_init_script(
        """
        const time = Object.getOwnPropertyDescriptor(HTMLMediaElement.prototype, "currentTime");
        Object.defineProperty(HTMLMediaElement.prototype, "currentTime", {
          get: time.get,
          set(seconds) {
            if (this.playbackRate === 0) this.playbackRate = 1;
            time.set.call(this, seconds);
          },
        });
        const { play } = HTMLMediaElement.prototype;
        HTMLMediaElement.prototype.play = function () {
          setTimeout(() => { this.playbackRate = 0; window.hasSlept = true; }, 200);
          return play.call(this);
        };
        """
    )
    rater.reload()
    rater.start(n_speed_ups=0)
    rater.page.wait_for_function("() => window.hasSlept")
    rater.answer("f")


def test_examples_interrupt_the_clip_and_do_not_count_as_heard(
    served: Served, sit_down: Sit
) -> None:
    rater = sit_down(served)
    rater.start(n_speed_ups=0)
    rater.press("1")
    rater.wait("[data-example=example1][aria-pressed]")
    rater.press("4")
    rater.wait("[data-example=decoy][aria-pressed]")
    rater.page.wait_for_timeout(800)
    rater.press("f")
    rater.told("message", "Listen first")
    rater.wait("#answers:not(.locked)")
    assert not rater.page.is_visible("[aria-pressed]")
    rater.press("9")
    assert served.stored().is_empty()


def test_keys_can_be_changed_and_stay_changed(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.press("?")
    rater.page.get_by_label("Change the key for: present, next clip").press("Enter")
    rater.press("a")
    rater.press("Escape")
    rater.reload()
    assert "A" in (rater.page.text_content("#answers .present") or "")
    rater.start()
    rater.wait("#answers:not(.locked)")
    rater.press("f")
    rater.answer("a")
    rater.saved(1)


def test_a_class_is_opened_from_the_sorted_overview(served: Served, sit_down: Sit) -> None:
    rater = sit_down(served)
    rater.press("o")
    rows = rater.page.locator("#classes tbody th")
    rows.first.wait_for()
    assert rows.all_text_contents() == ["Alarm", "Hum", "Siren", "Whistle"]
    rater.page.locator("#classes thead button").first.press("Enter")
    assert rows.all_text_contents() == ["Whistle", "Siren", "Hum", "Alarm"]
    rater.page.get_by_role("button", name="Siren").press("Enter")
    rater.wait("body[data-view=work]")
    assert rater.page.text_content("h1") == "Siren"
    assert "Alarm › Siren" in (rater.page.text_content("#path") or "")
    assert rater.page.text_content("#definition") == "A tone that warns of <b>danger</b> & haste."
    rater.press("o")
    rater.press("o")
    assert rater.view == "work"


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (400, 800), (640, 400)])
def test_nothing_runs_off_the_side(served: Served, sit_down: Sit, width: int, height: int) -> None:
    """640 x 400 is what a page of 1280 x 800 has at a zoom of 200 %."""
    rater = sit_down(served, viewport={"width": width, "height": height})
    overflow = "document.documentElement.scrollWidth - innerWidth"
    assert rater.page.evaluate(overflow) <= 0
    rater.start()
    rater.wait("#answers:not(.locked)")
    assert rater.page.evaluate(overflow) <= 0
    for name in ("Present", "Unsure", "Not present", "Undo"):
        rater.page.get_by_role("button", name=name, exact=False).first.scroll_into_view_if_needed()
    rater.press("o")
    rater.page.locator("#classes tbody tr").first.wait_for()
    assert rater.page.evaluate(overflow) <= 0


def test_an_answer_outlives_the_server(tmp_path: Path, sit_down: Sit) -> None:
    make_session(tmp_path).judgements.close()
    with running(tmp_path, port=0) as (server, url):
        rater = sit_down(_At(url))
        rater.start()
        rater.answer("f")
        rater.saved(1)
        server.kill()
    assert _answers(tmp_path) == ["present"]
    rater.answer("j")
    rater.told("saved", "1 waiting")
    port = int(url.partition("/?")[0].rpartition(":")[2])
    with running(tmp_path, port) as (server, url):
        rater.open(url)
        rater.saved(2)
        assert _answers(tmp_path) == ["present", "not_present"]
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 130


@dataclasses.dataclass(frozen=True)
class _At:
    """A server in another process."""

    address: str

    def url(self, rater: str) -> str:
        return self.address


@contextmanager
def running(root: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `earmark review` until the end of the block; yield the process and ann's address."""
    arguments = ["review", str(root), "--port", str(port), "--raters", "ann", "--no-open"]
    command = [sys.executable, "-m", "earmark", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert any(line.startswith("next: earmark") for line in process.stdout)
            (addresses,) = (root / "review").glob("addresses_*.txt")
            yield process, addresses.read_text().removeprefix("ann: ").strip()
        finally:
            process.kill()


def _answers(root: Path) -> list[str]:
    with JudgementStore(root / "review" / "judgements.sqlite", must_exist=True) as store:
        return store.current()["answer"].to_list()
