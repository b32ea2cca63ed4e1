from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from earmark.config import ReviewParams
from earmark.errors import EarmarkError
from earmark.pipeline import draw_adjudication, write_flags
from earmark.review import Answer, Conflict, JudgementStore, QueueSnapshot, ReviewQueue
from earmark.review.server.figures import Figures
from earmark.review.server.session import Posted, ReviewSession, Unknown, open_review_session
from listening import RECIPE, open_tones, tone_workspace
from reviews import judgement

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def session(tmp_path: Path) -> ReviewSession:
    return open_tones(tmp_path, raters=("ann", "bob"))


def judge(
    session: ReviewSession, rater: str, item: str, answer: Answer | None = "present", **more
) -> Posted:
    n_before = len(session.judgements.rows())
    posted = Posted(
        id=uuid.uuid4(),
        at=NOON + timedelta(seconds=n_before),
        rater=rater,
        item=item,
        answer=answer,
        **({"retracts": None} | more),
    )
    session.record(rater, posted)
    return posted


def judge_block(
    session: ReviewSession, rater: str, number: int, answer: Answer = "present"
) -> None:
    for item in session.block(rater, number)["items"]:
        judge(session, rater, item["item"], answer)


def test_nothing_on_the_page_gives_an_item_away(session: ReviewSession) -> None:
    told = json.dumps(
        [session.block("ann", block["block"]) for block in session.describe("ann")["blocks"]]
    )
    kinds = set(session.queue.items["kind"])
    assert {"flag", "positive", "negative"} <= kinds
    for secret in (*kinds, "logit", "rank", "band", *session.workspace.clips["clip_id"]):
        assert secret not in told


def test_raters_see_their_own_answers_only(session: ReviewSession) -> None:
    judge_block(session, "ann", 0)
    assert len(session.describe("ann")["history"]) == len(session.block("ann", 0)["items"])
    assert session.describe("bob")["history"] == []
    bobs = {row["class_id"]: row for row in Figures(session).overview("bob")["classes"]}
    assert all(row["n_answered"] == 0 and row["low"] is None for row in bobs.values())
    with pytest.raises(Conflict, match="0 of"):
        Figures(session).summary("bob", 0)


def test_raters_share_some_blocks_and_divide_the_others(tmp_path: Path) -> None:
    params = ReviewParams(aim="measure", flags_per_block=6, blocks_per_class=1, overlap=0)
    session = open_tones(tmp_path, ("ann", "bob"), params)
    mine, theirs = (
        {block["block"] for block in session.describe(rater)["blocks"]} for rater in ("ann", "bob")
    )
    assert mine | theirs == set(session.queue.items["block"])
    assert not mine & theirs
    with pytest.raises(Unknown):
        session.block("ann", next(iter(theirs)))


def test_undo_takes_an_answer_out_of_the_history(session: ReviewSession) -> None:
    first, second = (item["item"] for item in session.block("ann", 0)["items"][:2])
    kept, undone = judge(session, "ann", first), judge(session, "ann", second, "unsure")
    judge(session, "ann", second, None, retracts=undone.id)
    assert [row["id"] for row in session.describe("ann")["history"]] == [str(kept.id)]
    with pytest.raises(Conflict, match="no judgement"):
        judge(session, "bob", first, None, retracts=kept.id)


def test_no_precision_before_the_block_is_finished(session: ReviewSession) -> None:
    items = [item["item"] for item in session.block("ann", 0)["items"]]
    for item in items[:-1]:
        judge(session, "ann", item)
    with pytest.raises(Conflict, match=f"{len(items) - 1} of {len(items)}"):
        Figures(session).summary("ann", 0)
    row = Figures(session).overview("ann")["classes"][0]
    assert (row["n_answered"], row["low"]) == (len(items) - 1, None)
    judge(session, "ann", items[-1])
    assert Figures(session).summary("ann", 0)["low"] == 1.0
    assert Figures(session).overview("ann")["classes"][0]["low"] == 1.0


def test_a_summary_counts_answers_controls_and_precision(session: ReviewSession) -> None:
    items = session.queue.items.filter(block=0)
    truth = session.workspace.truth
    assert truth is not None
    states = truth.states()
    clips = {clip_id: row for row, clip_id in enumerate(truth.clip_ids)}
    column = truth.class_ids.index(items["class_id"][0])
    n_right = 0
    for item, clip_id, kind in items.select("item", "clip_id", "kind").iter_rows():
        is_there = states[clips[clip_id], column] > 0
        n_right += is_there and kind == "flag"
        judge(session, "ann", item, "present" if is_there else "not_present")
    told = Figures(session).summary("ann", 0)
    assert sum(told["answers"].values()) == len(items)
    assert told["n_judged"] == (items["kind"] == "flag").sum()
    assert 0 < told["low"] == told["high"] <= 1
    assert told["interval_low"] < told["low"] <= told["interval_high"]
    assert told["gold"] == {"passed": 2, "total": 2, "is_failed": False}
    assert told["points"][-1]["percent"] == 20
    assert told["points"][-1]["low"] == told["low"]


def test_unsure_makes_bounds_and_wrong_answers_fail_the_block(session: ReviewSession) -> None:
    judge_block(session, "ann", 0, "unsure")
    told = Figures(session).summary("ann", 0)
    assert (told["low"], told["high"]) == (0.0, 1.0)
    assert not told["gold"]["is_failed"]
    judge_block(session, "ann", 1, "present")
    assert Figures(session).summary("ann", 1)["gold"]["is_failed"]


def test_clips_that_cannot_be_played_are_counted_and_say_nothing(session: ReviewSession) -> None:
    judge_block(session, "ann", 0, "cannot_play")
    told = Figures(session).summary("ann", 0)
    assert told["answers"]["cannot_play"] == len(session.block("ann", 0)["items"])
    assert (told["n_judged"], told["low"]) == (0, None)


def test_the_score_is_told_when_it_is_asked_for(session: ReviewSession) -> None:
    item = session.queue.items.row(0, named=True)
    assert session.score("ann", item["item"]) == {"logit": item["logit"], "patches": []}


def test_a_review_can_be_narrowed_down_to_classes(session: ReviewSession) -> None:
    narrow = open_review_session(
        session.workspace,
        RECIPE,
        ReviewQueue(session.queue.snapshot, session.judgements, ("ann",), ("whistle", "hum")),
    )
    names = [block["name"] for block in narrow.describe("ann")["blocks"]]
    assert names == ["Hum", "Whistle"]
    assert [row["name"] for row in Figures(narrow).overview("ann")["classes"]] == names
    few = session.queue.items.filter(class_id="hum")
    partial = QueueSnapshot(few, session.queue.snapshot.sizes)
    queue = ReviewQueue(partial, session.judgements, ("ann",), ("whistle",))
    with pytest.raises(EarmarkError, match=r"'whistle' is not in the queue.*earmark review"):
        open_review_session(session.workspace, RECIPE, queue)


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
        session = open_review_session(workspace, RECIPE, ReviewQueue(queue, store, ["ann"]))
        assert session.describe("ann")["history"] == []  # what ann said as a rater is another item
        judge_block(session, "ann", 0, "not_present")
        summary = Figures(session).summary("ann", 0)
        assert summary["answers"]["not_present"] == summary["n_judged"] == 8
        assert not summary["is_sample"]
        assert summary["flags"] == "the labels that raters were at odds about"
        assert Figures(session).overview("ann")["classes"][0]["n_answered"] == 8
        with pytest.raises(EarmarkError, match="at odds about no label"):
            draw_adjudication(workspace, RECIPE)


def test_more_like_this_looks_up_clips_in_a_table_made_once(session: ReviewSession) -> None:
    registry = session.registry
    clip, *others = session.workspace.clips["clip_id"].head(5).to_list()
    before = registry.likeness(clip, others)

    class LogitsAlone:
        logits = registry.scores.logits

    object.__setattr__(registry, "scores", LogitsAlone())
    np.testing.assert_array_equal(registry.likeness(clip, others), before)


def test_an_answer_and_an_undo_read_no_rows_but_their_own(tmp_path: Path) -> None:
    """However many answers there are, each is looked up by its id."""
    session = open_tones(tmp_path, n_clips=20)
    item = session.queue.items["item"][0]
    first, second = uuid.uuid4(), uuid.uuid4()
    given = {"at": NOON, "rater": "ann", "item": item}
    session.judgements.rows()
    statements: list[str] = []
    session.judgements._connection.set_trace_callback(statements.append)
    session.record("ann", Posted(**given, id=first, answer="present", retracts=None))
    session.record("ann", Posted(**given, id=second, answer=None, retracts=first))
    reads = [one for one in statements if one.startswith("SELECT")]
    assert len(reads) == 1
    assert f"WHERE id = '{first}'" in reads[0]
    statements.clear()
    assert len(session.judgements.rows()) == 2
    session.judgements.rows()
    assert ["rowid > 0" in statements[0], "rowid > 2" in statements[1]] == [True, True]
    session.judgements.close()


def test_a_queue_that_was_drawn_at_once_has_its_next_blocks_and_no_others(
    session: ReviewSession,
) -> None:
    blocks = [block["block"] for block in session.describe("ann")["blocks"]]
    judge_block(session, "ann", blocks[0])
    assert session.next_block("ann")["block"]["block"] == blocks[1]
    assert session.next_block("ann", after=blocks[1])["block"]["block"] == blocks[2]
    for number in blocks[1:]:
        judge_block(session, "ann", number)
    assert session.next_block("ann") == {"block": None}
    for ask in (session.gained, lambda rater: session.limit(rater, ["hum"])):
        with pytest.raises(Conflict, match="drawn at once"):
            ask("ann")
