from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.datasets import PAIR
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.review import (
    ADJUDICATED,
    JUDGEMENT_SCHEMA,
    Judgement,
    JudgementStore,
    WeighedRaters,
    adjudication_queue,
    combine_votes,
    item_id,
    relabel,
    tally,
    weigh_answers,
)
from reviews import START, judgement, make_scores, table, uuid

GOOD, POOR = (0.92, 0.92), (0.6, 0.6)


def say(number: int, rater: str, clip_id: str, answer: str, suffix: str = "") -> Judgement:
    """Return what a rater says of a clip and class0; ``suffix`` ends the item's name."""
    item = item_id(clip_id, "class0") + suffix
    return judgement(number, answer, rater=rater, clip_id=clip_id, item=item)


def votes(*said: tuple[str, str, str], suffix: str = "", first: int = 0) -> pl.DataFrame:
    """Return what raters say: (rater, clip, answer)."""
    return table(*(say(first + n, *one, suffix) for n, one in enumerate(said)))


def heard_by(
    rng: np.random.Generator, truth: pl.DataFrame, rater: str, right: tuple[float, float]
) -> Iterator[Judgement]:
    """Answer all labels, with a sensitivity and a specificity; one answer in ten is unsure."""
    for number, (clip_id, class_id, is_present) in enumerate(truth.select(*PAIR, "present").rows()):
        says = is_present if rng.random() < right[0 if is_present else 1] else not is_present
        answer = "unsure" if rng.random() < 0.1 else "present" if says else "not_present"
        names = {"clip_id": clip_id, "class_id": class_id, "item": item_id(clip_id, class_id)}
        yield judgement(number, answer, rater=rater, **names)


def truth_of(n_labels: int, seed: int) -> pl.DataFrame:
    """Return labels of four classes, of which 20 to 80 % are there."""
    rng = np.random.default_rng(seed)
    column = np.arange(n_labels) % 4
    present = rng.random(n_labels) < np.array([0.2, 0.4, 0.6, 0.8])[column]
    names = [f"clip{n:03}" for n in range(n_labels)], [f"class{n}" for n in column]
    return pl.DataFrame(dict(zip((*PAIR, "present"), (*names, present), strict=True)))


def simulated(n_labels: int = 160, seed: int = 0, **raters: tuple[float, float]) -> pl.DataFrame:
    rng, truth = np.random.default_rng(seed), truth_of(n_labels, seed)
    return table(*(one for name, how in raters.items() for one in heard_by(rng, truth, name, how)))


def row_of(weighed: WeighedRaters, rater: str) -> dict[str, object]:
    return weighed.raters.row(by_predicate=pl.col("rater") == rater, named=True)


def test_good_and_poor_raters_are_told_apart() -> None:
    """Of 60 intervals that hold the truth in 90 % of all cases, 45 are a safe bet."""
    right = {"ann": GOOD, "bob": GOOD, "eve": POOR}
    n_held = 0
    for seed in range(10):
        weighed = weigh_answers(simulated(240, seed, **right))
        rows = {name: row_of(weighed, name) for name in right}
        for place, kind in enumerate(("sensitivity", "specificity")):
            held = [rows[name][kind + "_low"] <= right[name][place] for name in right]
            n_held += sum(held) - sum(rows[n][kind + "_high"] < right[n][place] for n in right)
            assert rows["eve"][kind] < rows["ann"][kind]
        assert rows["ann"]["n_labels"] == 240
        assert 180 < rows["ann"]["n_compared"] < 240
        assert rows["ann"]["alike"] > rows["eve"]["alike"]
        assert rows["ann"]["unsure_low"] < rows["ann"]["unsure"] < rows["ann"]["unsure_high"]
        assert {row["doubt"] for row in rows.values()} == {""}
    assert n_held >= 45


def test_chances_beat_most_votes_where_one_of_three_is_poor() -> None:
    """Measured: 7.0 % of the labels wrong by the chances, 11.0 % by most votes (a tie is half)."""
    by_chance, by_votes = [], []
    for seed in range(8):
        said, truth = simulated(300, seed, ann=GOOD, bob=GOOD, eve=POOR), truth_of(300, seed)
        labels = weigh_answers(said).labels.join(truth, on=PAIR)
        by_chance.append(((labels["chance"] > 0.5) != labels["present"]).mean())
        both = combine_votes(said, PAIR).join(truth, on=PAIR)
        wrong = (pl.col("answer") == "present") != pl.col("present")
        errors = both.select(pl.when(pl.col("answer") == "unsure").then(0.5).otherwise(wrong))
        by_votes.append(errors.to_series().mean())
    assert np.mean(by_chance) < 0.8 * np.mean(by_votes)


def test_labels_are_counted_and_disputes_listed() -> None:
    said = votes(
        *((rater, f"clip{n}", "present") for rater in ("ann", "bob") for n in range(9)),
        *((rater, f"clip{n}", "not_present") for rater in ("ann", "bob") for n in range(9, 20)),
        ("ann", "odds", "present"),
        ("bob", "odds", "not_present"),
        ("ann", "dark", "unsure"),
        ("bob", "dark", "unsure"),
        ("ann", "alone", "present"),
        ("ann", "deaf", "cannot_play"),
    )
    weighed = weigh_answers(said)
    found = {row["clip_id"]: row for row in weighed.labels.iter_rows(named=True)}
    assert "deaf" not in found
    assert found["clip0"]["chance"] > 0.9
    assert found["clip9"]["chance"] < 0.1
    counts = ("n_raters", "n_present", "n_not_present", "n_unsure")
    assert [found["odds"][name] for name in counts] == [2, 1, 1, 0]
    assert [found["dark"][name] for name in counts] == [2, 0, 0, 2]
    assert set(weighed.disputed["clip_id"]) == {"odds", "dark"}
    doubts = (weighed.disputed["chance"] - 0.5).abs()
    assert doubts.is_sorted()


def test_of_one_rater_alone_nothing_is_said() -> None:
    row = row_of(weigh_answers(simulated(60, ann=GOOD)), "ann")
    assert row["n_compared"] == 0
    assert row["sensitivity"] is row["specificity_high"] is row["alike"] is None
    assert row["doubt"] == "nobody else heard these labels"
    assert 0 < row["unsure"] < 0.2


def test_controls_tell_of_one_rater_alone() -> None:
    weighed = weigh_answers(simulated(60, ann=GOOD), truth_of(60, 0).head(40))
    row = row_of(weighed, "ann")
    assert row["n_compared"] == row["n_known"] > 10
    assert row["sensitivity"] > 0.7
    assert weighed.labels["explicit"].null_count() == 20
    assert weighed.disputed["explicit"].null_count() == len(weighed.disputed)


@pytest.mark.parametrize("answer", ["present", "not_present", "unsure"])
def test_a_rater_whose_answers_are_all_alike_is_named(answer: str) -> None:
    said = simulated(60, ann=GOOD, bob=GOOD)
    stuck = said.filter(rater="bob").with_columns(rater=pl.lit("eve"), answer=pl.lit(answer))
    weighed = weigh_answers(pl.concat([said, stuck]))
    assert row_of(weighed, "eve")["doubt"] == f"every answer is {answer.replace('_', ' ')}"
    assert row_of(weighed, "ann")["sensitivity"] > 0.7


def test_where_all_are_unsure_an_adjudicator_hears_everything() -> None:
    said = votes(*((r, f"clip{n}", "unsure") for r in ("ann", "bob") for n in range(8)))
    weighed = weigh_answers(said)
    assert len(weighed.disputed) == 8
    assert weighed.raters["sensitivity"].null_count() == 2
    assert weighed.labels["chance"].is_between(0.1, 0.9).all()


def test_without_answers_there_is_nothing_to_weigh() -> None:
    for nothing in (pl.DataFrame(schema=JUDGEMENT_SCHEMA), votes(("ann", "clip0", "cannot_play"))):
        with pytest.raises(EarmarkError, match="no rater has answered"):
            weigh_answers(nothing)


def test_a_contradicted_repeat_is_one_unsure_vote() -> None:
    first = say(0, "ann", "clip0", "present")
    again = {"item": item_id("clip0", "class0", is_repeat=True), "clip_id": "clip0"}
    alike, other = (judgement(1, answer, **again) for answer in ("present", "not_present"))
    counts = ("n_raters", "n_present", "n_unsure")
    assert weigh_answers(table(first, alike)).labels.select(counts).row(0) == (1, 1, 0)
    assert weigh_answers(table(first, other)).labels.select(counts).row(0) == (1, 0, 1)


def test_what_was_taken_back_does_not_count(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "answers.sqlite") as store:
        store.add_all([say(0, "ann", "clip0", "present"), say(1, "bob", "clip0", "present")])
        taken_back = say(2, "bob", "clip1", "not_present")
        store.add(taken_back)
        before = weigh_answers(store.current())
        undo = {"id": uuid(99), "at": START, "answer": None, "retracts": taken_back.id}
        store.add(taken_back.model_copy(update=undo))
        after = weigh_answers(store.current())
    assert before.labels["clip_id"].to_list() == ["clip0", "clip1"]
    assert after.labels["clip_id"].to_list() == ["clip0"]
    assert after.raters["n_labels"].to_list() == [1, 1]


def test_the_teacher_moves_what_raters_leave_open() -> None:
    truth, rng = truth_of(400, 3), np.random.default_rng(4)
    said = simulated(400, 3, ann=(0.75, 0.75), bob=(0.75, 0.75))
    heard = 1 / (1 + np.exp(-rng.normal(3.0 * truth["present"].to_numpy() - 2.0, 1)))
    teacher = truth.select(PAIR).with_columns(chance=pl.Series(heard)).head(300)
    teacher = teacher.with_columns(
        chance=pl.when(pl.int_range(pl.len()) == 0).then(np.nan).otherwise("chance")
    )
    alone, helped = weigh_answers(said), weigh_answers(said, teacher=teacher)
    assert helped.raters.equals(alone.raters)
    assert helped.teacher is not None
    assert alone.teacher is None
    assert helped.teacher["n_labels"].sum() == 299
    assert helped.teacher["odds"][0] < 1 < helped.teacher["odds"][-1] <= 9
    both = alone.labels.join(helped.labels, on=PAIR, suffix="_helped").join(truth, on=PAIR)
    asked = both.join(teacher.tail(299), on=PAIR, how="semi")
    wrong = [
        ((asked[name] > 0.5) != asked["present"]).mean() for name in ("chance", "chance_helped")
    ]
    assert wrong[1] < wrong[0]
    others = both.join(asked, on=PAIR, how="anti")
    assert others["chance"].equals(others["chance_helped"], check_names=False)


def test_the_teacher_cannot_settle_what_nobody_heard_clearly() -> None:
    said = votes(
        *((rater, f"clip{n}", "present" if n % 2 else "not_present")
          for rater in ("ann", "bob") for n in range(60)),
        ("ann", "dark", "unsure"),
    )  # fmt: skip
    chances = [(f"clip{n}", "class0", 0.9 if n % 2 else 0.1) for n in range(60)]
    teacher = pl.DataFrame([*chances, ("dark", "class0", 0.99)], [*PAIR, "chance"], orient="row")
    weighed = weigh_answers(said, teacher=teacher)
    assert weighed.disputed["clip_id"].to_list() == ["dark"]
    assert weighed.disputed["chance"][0] < 0.95


RULED = [("present", True, 1), ("not_present", True, -1), ("unsure", False, 0)]


@pytest.mark.parametrize(("answer", "is_decided", "state"), RULED)
def test_an_adjudicator_decides(answer: str, is_decided: bool, state: int) -> None:
    """Against all others, and whatever is answered; by a name of the item, not of the rater."""
    labels = LabelSet.from_dense(np.zeros((1, 1), np.int8), ["c"], ["class0"])
    against = "not_present" if answer == "present" else "present"
    said = votes(("ann", "c", against), ("bob", "c", against), ("eve", "c", answer))
    ruling = say(9, "ann", "c", answer, ADJUDICATED).model_copy(update={"whole_clip": True})
    ruled = pl.concat([said, table(ruling)])
    assert relabel(labels, said).labels.states()[0, 0] != state or answer == "not_present"
    result = relabel(labels, ruled)
    assert result.labels.states()[0, 0] == state
    assert result.changes["after"].to_list() == [answer if is_decided else "ignored"]
    assert result.changes["rater"].to_list() == ["ann"]
    row = weigh_answers(ruled).labels.row(0, named=True)
    assert (row["ruling"], row["n_raters"], row["is_disputed"]) == (answer, 3, False)


def test_an_adjudicator_who_cannot_play_decides_nothing() -> None:
    said = votes(("ann", "c", "present"), ("bob", "c", "present"))
    silent = table(say(9, "eve", "c", "cannot_play", ADJUDICATED))
    assert combine_votes(pl.concat([said, silent]), PAIR)["answer"].to_list() == ["present"]


def test_rulings_count_in_the_queue_that_raters_heard() -> None:
    said = votes(("ann", "c", "present"), ("bob", "c", "not_present"))
    ruling = table(say(9, "eve", "c", "present", ADJUDICATED))
    by_item = combine_votes(pl.concat([said, ruling]), "item").select("item", "answer").rows()
    own = item_id("c", "class0")
    assert sorted(by_item) == [(own, "present"), (own + ADJUDICATED, "present")]


def test_rulings_tell_of_the_raters_who_were_wrong() -> None:
    clips = [f"clip{n}" for n in range(30)]
    said = votes(
        *(("ann", c, "present") for c in clips), *(("eve", c, "not_present") for c in clips)
    )
    said = pl.concat([said, votes(("ann", "x", "not_present"), ("eve", "x", "present"), first=200)])
    rulings = votes(*(("zoe", c, "present") for c in clips), suffix=ADJUDICATED, first=100)
    weighed = weigh_answers(pl.concat([said, rulings]))
    assert row_of(weighed, "ann")["sensitivity_low"] > row_of(weighed, "eve")["sensitivity_high"]
    assert weighed.raters["rater"].to_list() == ["ann", "eve"]
    assert weighed.disputed["clip_id"].to_list() == ["x"] or weighed.disputed.is_empty()


def test_the_adjudicators_queue_has_the_most_doubtful_first() -> None:
    labels, _, scores = make_scores()
    implicit = np.argwhere(labels.states() == 0)
    chosen = implicit[np.random.default_rng(0).permutation(len(implicit))[:40]]
    pairs = [(labels.clip_ids[row], labels.class_ids[column]) for row, column in chosen.tolist()]
    disputed = pl.DataFrame(pairs, PAIR, orient="row").with_columns(chance=pl.lit(0.5))
    queue = adjudication_queue(labels, scores, disputed, flags_per_block=6)
    items = queue.items
    assert set(items.select(PAIR).rows()) == set(pairs)
    assert items.select(PAIR).row(0) == pairs[0]
    assert set(items["kind"]) == {"flag"}
    assert items["item"].to_list() == [item_id(*p) + ADJUDICATED for p in items.select(PAIR).rows()]
    sizes = items.group_by("block").agg(pl.col("class_id").n_unique(), n=pl.len())
    assert set(sizes["class_id"]) == {1}
    assert sizes["n"].max() == 6
    place = {pair: number for number, pair in enumerate(pairs)}
    for _, part in items.group_by("class_id"):
        order = [place[pair] for pair in part.select(PAIR).rows()]
        assert order == sorted(order)
    firsts = items.group_by("block", maintain_order=True).first().select(PAIR).rows()
    assert [place[pair] for pair in firsts] == sorted(place[pair] for pair in firsts)
    states, (row, column) = labels.states(), chosen[0]
    higher = ((scores[:, column] > scores[row, column]) & (states[:, column] == 0)).sum()
    assert items["rank"][0] in (None, higher + 1)
    assert items["logit"][0] == scores[row, column]


def test_a_queue_of_labels_without_scores_is_refused() -> None:
    labels, _, scores = make_scores()
    disputed = pl.DataFrame({"clip_id": ["clip0"], "class_id": ["class0"], "chance": [0.5]})
    scores[:, 0] = np.nan
    with pytest.raises(EarmarkError, match="none of the 1 labels in dispute has a score"):
        adjudication_queue(labels, scores, disputed)


def test_answers_of_the_adjudicators_queue_are_counted() -> None:
    labels, _, scores = make_scores()
    implicit = np.argwhere(labels.states() == 0)[:9].tolist()
    pairs = [(labels.clip_ids[row], labels.class_ids[column]) for row, column in implicit]
    disputed = pl.DataFrame(pairs, PAIR, orient="row").with_columns(chance=pl.lit(0.5))
    queue = adjudication_queue(labels, scores, disputed)
    said = [
        judgement(n, "present", item=row["item"], clip_id=row["clip_id"], class_id=row["class_id"])
        for n, row in enumerate(queue.items.iter_rows(named=True))
    ]
    counts = tally(queue, table(*said))
    assert counts["n_present"].sum() == counts["n_judged"].sum() == 9
