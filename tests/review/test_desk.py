from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from earmark.errors import EarmarkError
from earmark.review.judgements import Answer, JudgementStore
from earmark.review.server.dealt import Conflict
from earmark.review.server.desk import Desk, Unknown, open_desk
from earmark.review.server.figures import Figures
from earmark.review.server.posted import Posted
from earmark.runs.parameters import ReviewParams
from earmark.stages.flag import write_flags
from earmark.stages.listening.raters import draw_adjudication
from listening import RECIPE, open_tones, tone_workspace
from reviews import judgement

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return open_tones(tmp_path, raters=("ann", "bob"))


def judge(desk: Desk, rater: str, item: str, answer: Answer | None = "present", **more) -> Posted:
    n_before = len(desk.judgements.rows())
    posted = Posted(
        id=uuid.uuid4(),
        at=NOON + timedelta(seconds=n_before),
        rater=rater,
        item=item,
        answer=answer,
        **({"retracts": None} | more),
    )
    desk.record(rater, posted)
    return posted


def judge_block(desk: Desk, rater: str, number: int, answer: Answer = "present") -> None:
    for item in desk.block(rater, number)["items"]:
        judge(desk, rater, item["item"], answer)


def test_nothing_on_the_page_gives_an_item_away(desk: Desk) -> None:
    told = json.dumps(
        [desk.block("ann", block["block"]) for block in desk.session("ann")["blocks"]]
    )
    kinds = set(desk.queue.items["kind"])
    assert {"flag", "positive", "negative"} <= kinds
    for secret in (*kinds, "logit", "rank", "band", *desk.workspace.clips["clip_id"]):
        assert secret not in told


def test_raters_see_their_own_answers_only(desk: Desk) -> None:
    judge_block(desk, "ann", 0)
    assert len(desk.session("ann")["history"]) == len(desk.block("ann", 0)["items"])
    assert desk.session("bob")["history"] == []
    bobs = {row["class_id"]: row for row in Figures(desk).overview("bob")["classes"]}
    assert all(row["n_answered"] == 0 and row["low"] is None for row in bobs.values())
    with pytest.raises(Conflict, match="0 of"):
        Figures(desk).summary("bob", 0)


def test_raters_share_some_blocks_and_divide_the_others(tmp_path: Path) -> None:
    params = ReviewParams(aim="measure", flags_per_block=6, blocks_per_class=1, overlap=0)
    desk = open_tones(tmp_path, ("ann", "bob"), params)
    mine, theirs = (
        {block["block"] for block in desk.session(rater)["blocks"]} for rater in ("ann", "bob")
    )
    assert mine | theirs == set(desk.queue.items["block"])
    assert not mine & theirs
    with pytest.raises(Unknown):
        desk.block("ann", next(iter(theirs)))


def test_undo_takes_an_answer_out_of_the_history(desk: Desk) -> None:
    first, second = (item["item"] for item in desk.block("ann", 0)["items"][:2])
    kept, undone = judge(desk, "ann", first), judge(desk, "ann", second, "unsure")
    judge(desk, "ann", second, None, retracts=undone.id)
    assert [row["id"] for row in desk.session("ann")["history"]] == [str(kept.id)]
    with pytest.raises(Conflict, match="no judgement"):
        judge(desk, "bob", first, None, retracts=kept.id)


def test_no_precision_before_the_block_is_finished(desk: Desk) -> None:
    items = [item["item"] for item in desk.block("ann", 0)["items"]]
    for item in items[:-1]:
        judge(desk, "ann", item)
    with pytest.raises(Conflict, match=f"{len(items) - 1} of {len(items)}"):
        Figures(desk).summary("ann", 0)
    row = Figures(desk).overview("ann")["classes"][0]
    assert (row["n_answered"], row["low"]) == (len(items) - 1, None)
    judge(desk, "ann", items[-1])
    assert Figures(desk).summary("ann", 0)["low"] == 1.0
    assert Figures(desk).overview("ann")["classes"][0]["low"] == 1.0


def test_a_summary_counts_answers_controls_and_precision(desk: Desk) -> None:
    items = desk.queue.items.filter(block=0)
    truth = desk.workspace.truth
    assert truth is not None
    states = truth.states()
    clips = {clip_id: row for row, clip_id in enumerate(truth.clip_ids)}
    column = truth.class_ids.index(items["class_id"][0])
    n_right = 0
    for item, clip_id, kind in items.select("item", "clip_id", "kind").iter_rows():
        is_there = states[clips[clip_id], column] > 0
        n_right += is_there and kind == "flag"
        judge(desk, "ann", item, "present" if is_there else "not_present")
    told = Figures(desk).summary("ann", 0)
    assert sum(told["answers"].values()) == len(items)
    assert told["n_judged"] == (items["kind"] == "flag").sum()
    assert 0 < told["low"] == told["high"] <= 1
    assert told["interval_low"] < told["low"] <= told["interval_high"]
    assert told["gold"] == {"passed": 2, "total": 2, "is_failed": False}
    assert told["points"][-1]["percent"] == 20
    assert told["points"][-1]["low"] == told["low"]


def test_unsure_makes_bounds_and_wrong_answers_fail_the_block(desk: Desk) -> None:
    judge_block(desk, "ann", 0, "unsure")
    told = Figures(desk).summary("ann", 0)
    assert (told["low"], told["high"]) == (0.0, 1.0)
    assert not told["gold"]["is_failed"]
    judge_block(desk, "ann", 1, "present")
    assert Figures(desk).summary("ann", 1)["gold"]["is_failed"]


def test_clips_that_cannot_be_played_are_counted_and_say_nothing(desk: Desk) -> None:
    judge_block(desk, "ann", 0, "cannot_play")
    told = Figures(desk).summary("ann", 0)
    assert told["answers"]["cannot_play"] == len(desk.block("ann", 0)["items"])
    assert (told["n_judged"], told["low"]) == (0, None)


def test_the_score_is_told_when_it_is_asked_for(desk: Desk) -> None:
    item = desk.queue.items.row(0, named=True)
    assert desk.score("ann", item["item"]) == {"logit": item["logit"], "patches": []}


def test_a_review_can_be_narrowed_down_to_classes(desk: Desk) -> None:
    narrow = open_desk(
        desk.workspace, RECIPE, desk.queue, desk.judgements, ("ann",), ("Whistle", "hum")
    )
    names = [block["name"] for block in narrow.session("ann")["blocks"]]
    assert names == ["Hum", "Whistle"]
    assert [row["name"] for row in Figures(narrow).overview("ann")["classes"]] == names
    few = desk.queue.items.filter(class_id="hum")
    partial = type(desk.queue)(few, desk.queue.sizes)
    with pytest.raises(EarmarkError, match=r"'whistle' is not in the queue.*earmark queue"):
        open_desk(desk.workspace, RECIPE, partial, desk.judgements, ("ann",), ("Whistle",))


def test_the_flags_that_were_written_last_are_summed_up(tmp_path: Path) -> None:
    before = open_tones(tmp_path)
    told = "the top 20 % of each class, as `earmark flag` wrote none"
    assert Figures(before).overview("ann")["flags"] == told
    flags = write_flags(before.workspace, before.recipe, discard_percent=7).flags
    overview = Figures(open_tones(tmp_path)).overview("ann")
    told = f"the {len(flags)} written by `earmark flag`, the top 7 % of each class"
    assert overview["flags"] == told
    own = dict(flags.group_by("class_id").len().iter_rows())
    assert {row["class_id"]: row["n_flags"] for row in overview["classes"]} == own


def test_an_adjudicator_hears_what_raters_were_at_odds_about(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path)
    labels = workspace.labels
    implicit = labels.clip_ids.gather((labels.states()[:, 0] == 0).nonzero()[0][:8])
    with JudgementStore(workspace.judgements_path) as store:
        for number, clip_id in enumerate(implicit):
            label = {"clip_id": clip_id, "class_id": "hum", "item": f"item{number}"}
            store.add(judgement(number, "present", **label))
            store.add(judgement(100 + number, "not_present", rater="bob", **label))
        queue = draw_adjudication(workspace, RECIPE).queue
        desk = open_desk(workspace, RECIPE, queue, store, ["ann"])
        assert desk.session("ann")["history"] == []  # what ann said as a rater is another item
        judge_block(desk, "ann", 0, "not_present")
        summary = Figures(desk).summary("ann", 0)
        assert summary["answers"]["not_present"] == summary["n_judged"] == 8
        assert not summary["is_sample"]
        assert summary["flags"] == "the labels that raters were at odds about"
        assert Figures(desk).overview("ann")["classes"][0]["n_answered"] == 8
        with pytest.raises(EarmarkError, match="at odds about no label"):
            draw_adjudication(workspace, RECIPE)
