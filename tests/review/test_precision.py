from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import cohen_kappa_score

from earmark.config import ReviewParams
from earmark.errors import EarmarkError
from earmark.flags import flag
from earmark.labels import Ontology
from earmark.metrics import stratified
from earmark.review import (
    CONTROLS,
    JUDGEMENT_SCHEMA,
    Agreement,
    QueueSnapshot,
    Scope,
    agreement,
    controls,
    curve,
    make_queue,
    precision_table,
    tally,
    without_failed_blocks,
)
from reviews import SMALL, answer_all, make_scores, small_queue

NOTHING = pl.DataFrame(schema=JUDGEMENT_SCHEMA)


def _sampled(queue: QueueSnapshot) -> pl.DataFrame:
    return queue.items.filter(~pl.col("kind").is_in(CONTROLS))


def _simulated_coverage(n_classes: int, n_items: int, deepest: float, n_reviews: int) -> float:
    """Review simulated flags whose precision falls with depth; how often 90 % intervals hold."""
    rng = np.random.default_rng(5)
    points = np.array([p for p in ReviewParams().discard_percents if p <= deepest])
    sizes = np.tile(np.diff(points * 500).astype(int), n_classes)  # 50,000 clips
    depth = np.tile(points[1:], n_classes)
    hits = 0
    for _ in range(n_reviews):
        slope = np.repeat(rng.normal(0, 0.7, n_classes), len(points) - 1)
        n_true = rng.binomial(sizes, 1 / (1 + (depth / 2) ** 1.2 * np.exp(slope)))
        per_cell, more = divmod(n_items, len(points) - 1)
        n_judged = np.full(len(sizes), per_cell)
        for own in np.split(np.arange(len(sizes)), n_classes):
            n_judged[rng.permutation(own)[:more]] += 1
        n_present = rng.hypergeometric(n_true, sizes - n_true, n_judged)
        _, low, high = (ends[0] for ends in stratified(n_present, n_judged, sizes, level=0.9))
        hits += low <= n_true.sum() / sizes.sum() <= high
    return hits / n_reviews


@pytest.mark.parametrize(
    ("n_classes", "n_items", "deepest"), [(1, 100, 1), (1, 100, 10), (10, 25, 1), (10, 50, 10)]
)
def test_intervals_cover_as_often_as_they_say(n_classes: int, n_items: int, deepest: float) -> None:
    assert 0.85 <= _simulated_coverage(n_classes, n_items, deepest, 600) <= 0.97


def test_a_full_review_finds_the_true_precision() -> None:
    params = SMALL.model_copy(update={"flags_per_block": 400, "blocks_per_class": 1})
    queue, truth = small_queue(params)
    table = precision_table(queue, answer_all(queue.items, truth))
    present = {(clip, name) for clip, name, yes in truth.rows().iter_rows() if yes}
    sampled = _sampled(queue)
    for row in table.iter_rows(named=True):
        mine = sampled if row["class_id"] is None else sampled.filter(class_id=row["class_id"])
        if row["scope"] == "flags":
            mine = mine.filter(kind="flag")
        if row["scope"] == "cell":
            mine = mine.filter(band_high=row["band_high"])
        pairs = mine.select("clip_id", "class_id").rows()
        expected = sum(pair in present for pair in pairs) / len(pairs)
        assert row["n_judged"] == row["n_labels"] == len(pairs)
        for name in ("precision_low", "precision_high", "low", "high"):
            assert row[name] == pytest.approx(expected)
        assert row["coverage"] == 1


def test_unsure_widens_the_bounds_to_both_sides() -> None:
    queue, truth = small_queue()
    all_yes = answer_all(queue.items, truth, slip=lambda answer: "present")
    mixed = all_yes.with_columns(
        answer=pl.when(pl.int_range(pl.len()) % 4 == 0).then(pl.lit("unsure")).otherwise("answer")
    )
    row = precision_table(queue, mixed).filter(scope="flags").row(-1, named=True)
    assert row["precision_low"] < 1
    assert row["precision_high"] == pytest.approx(1)
    assert row["low"] < row["precision_low"]
    assert row["n_unsure"] + row["n_present"] == row["n_judged"]


def test_controls_and_what_cannot_be_played_do_not_count() -> None:
    queue, truth = small_queue()
    judgements = answer_all(queue.items, truth)
    silent = answer_all(queue.items, truth, slip=lambda answer: "cannot_play")
    assert tally(queue, judgements)["n_judged"].sum() == len(_sampled(queue))
    counts = tally(queue, silent)
    assert counts["n_judged"].sum() == 0
    assert counts["n_cannot_play"].sum() == len(_sampled(queue))


def test_without_judgements_nothing_is_known() -> None:
    queue, _ = small_queue()
    table = precision_table(queue, NOTHING)
    assert table["precision_low"].is_null().all()
    assert table["low"].unique().to_list() == [0]
    assert table["high"].unique().to_list() == [1]
    assert table["coverage"].unique().to_list() == [0]
    assert controls(queue, NOTHING).is_empty()
    assert agreement(queue, NOTHING) == []


def test_coverage_tells_how_much_was_listened_to() -> None:
    queue, truth = small_queue()
    first_block = queue.items.filter(block=0)
    overall = precision_table(queue, answer_all(first_block, truth)).filter(scope="all")
    by_class = overall.filter(pl.col("class_id").is_not_null())["coverage"].to_list()
    assert by_class == [1, 0, 0]
    sizes = queue.sizes.group_by("class_id", maintain_order=True).agg(pl.col("n_labels").sum())
    expected = sizes["n_labels"][0] / sizes["n_labels"].sum()
    assert overall["coverage"][-1] == pytest.approx(expected)


def test_a_small_cell_heard_in_full_does_not_speak_for_others() -> None:
    params = ReviewParams(discard_percents=(0, 1, 2, 5, 20), flags_per_block=4, blocks_per_class=1)
    queue, truth = small_queue(params, n_clips=120, n_classes=1)
    first = _sampled(queue).filter(kind="flag").head(1)
    said = answer_all(first, truth, slip=lambda answer: "present")
    overall = precision_table(queue, said).filter(scope="flags").row(-1, named=True)
    assert overall["n_judged"] == 1
    assert overall["coverage"] < 1
    assert overall["low"] < 0.3
    everything = answer_all(_sampled(queue).filter(kind="flag"), truth)
    assert precision_table(queue, everything).filter(scope="cell")["low"].max() <= 1


def test_the_curve_is_the_precision_up_to_each_point() -> None:
    queue, truth = small_queue()
    judgements = answer_all(queue.items, truth)
    for class_id in (None, "class1"):
        points = curve(queue, judgements, class_id)
        assert points["discard_percent"].to_list() == [5, 10, 20]
        for row in points.iter_rows(named=True):
            table = precision_table(queue, judgements, Scope.up_to(row["discard_percent"]))
            table = table.filter(scope="flags").filter(pl.col("class_id").eq_missing(class_id))
            for name in ("n_labels", "n_judged", "precision_low", "low", "high"):
                assert table[name][0] == row[name]
    with pytest.raises(EarmarkError, match="not in the queue"):
        curve(queue, judgements, "class9")
    with pytest.raises(EarmarkError, match=r"the first ends at 5\.0 %"):
        precision_table(queue, judgements, Scope.up_to(1))


def test_listed_flags_are_counted_one_by_one() -> None:
    """Every label was heard, so the precision of any list of flags is the share that is right."""
    everything = SMALL.model_copy(update={"flags_per_block": 500, "blocks_per_class": 1})
    queue, truth = small_queue(everything)
    labels, _, scores = make_scores()
    listed = flag(labels, scores, policy="budget", n_flags=37)
    is_right = listed.join(truth.rows().filter("present"), on=["clip_id", "class_id"], how="semi")
    table = precision_table(queue, answer_all(queue.items, truth), Scope("37", None, listed))
    overall = table.filter(scope="flags").row(-1, named=True)
    assert overall["n_labels"] == overall["n_judged"] == 37
    assert overall["precision_low"] == pytest.approx(len(is_right) / 37)
    by_class = dict(table.filter(scope="flags").select("class_id", "n_labels").iter_rows())
    for class_id, n_listed in listed.group_by("class_id").len().iter_rows():
        assert by_class[class_id] == n_listed
    whole = precision_table(queue, answer_all(queue.items, truth))
    assert table.filter(scope="all")["n_labels"].equals(whole.filter(scope="all")["n_labels"])


def test_listed_flags_between_two_points_are_estimated_from_the_sample() -> None:
    labels, truth, scores = make_scores(n_clips=3_000, n_classes=1)
    params = ReviewParams(flags_per_block=200, blocks_per_class=1)
    queue = make_queue(labels, scores, Ontology(labels.class_ids), params)
    listed = flag(labels, scores, discard_percent=2.5)
    right = listed.join(truth.rows().filter("present"), on=["clip_id", "class_id"], how="semi")
    table = precision_table(queue, answer_all(queue.items, truth), Scope("", None, listed))
    overall = table.filter(scope="flags").row(-1, named=True)
    assert overall["n_labels"] == len(listed)
    assert 0 < overall["n_judged"] < len(listed)
    assert overall["low"] <= len(right) / len(listed) <= overall["high"]


def test_where_there_is_no_kappa_it_is_said_why() -> None:
    same = np.diag([12, 0, 0])
    assert Agreement("raters", "ann", "bob", same).no_kappa == (
        "no kappa: every answer was present"
    )
    assert Agreement("raters", "ann", "bob", np.diag([3, 3, 0])).no_kappa == "too few for a kappa"
    known = Agreement("raters", "ann", "bob", np.diag([8, 8, 0]))
    assert known.no_kappa == ""
    assert known.kappa == 1.0


def test_a_careful_rater_passes_and_a_careless_one_fails_the_controls() -> None:
    queue, truth = small_queue()
    careful = controls(queue, answer_all(queue.items, truth))
    assert (careful["n_passed"] == 2).all()
    assert not careful["is_failed"].any()
    judgements = pl.concat(
        [
            answer_all(queue.items, truth),
            answer_all(queue.items, truth, "bob", first=1000, slip=lambda answer: "not_present"),
            answer_all(queue.items, truth, "cyd", first=2000, slip=lambda answer: "unsure"),
        ]
    )
    found = controls(queue, judgements)
    positives = queue.items.filter(kind="positive")["block"].to_list()
    assert found.filter(pl.col("rater") == "bob").filter("is_failed")["block"].to_list() == (
        sorted(set(positives))
    )
    assert not found.filter(rater="ann")["is_failed"].any()
    undecided = found.filter(rater="cyd")
    assert (undecided["n_undecided"] == 2).all()
    assert not undecided["is_failed"].any()
    kept = without_failed_blocks(queue, judgements)
    bobs = queue.items.filter(~pl.col("block").is_in(positives))["item"]
    assert set(kept.filter(rater="bob")["item"]) == set(bobs)
    assert len(kept.filter(rater="ann")) == len(queue.items)


def test_a_repeat_is_failed_by_the_opposite_answer() -> None:
    queue, truth = small_queue()
    repeat = queue.items.filter(kind="repeat").row(0, named=True)
    judgements = answer_all(queue.items.filter(block=repeat["block"]), truth)
    opposite = pl.when(pl.col("answer") == "present").then(pl.lit("not_present"))
    changed = judgements.with_columns(
        answer=pl.when(pl.col("item") == repeat["item"])
        .then(opposite.otherwise(pl.lit("present")))
        .otherwise("answer")
    )
    (row,) = controls(queue, changed).iter_rows(named=True)
    assert (row["n_passed"], row["n_failed"], row["is_failed"]) == (1, 1, True)
    (own,) = agreement(queue, changed)
    assert (own.kind, own.first, own.n_items, own.raw) == ("repeats", "ann", 1, 0)


def test_agreement_is_that_of_scikit_learn() -> None:
    queue, truth = small_queue()
    rng = np.random.default_rng(0)

    def slip(answer: str) -> str:
        return answer if rng.random() < 0.7 else str(rng.choice(["present", "unsure"]))

    items = queue.items.filter(pl.col("kind") != "repeat")
    ann, bob = (
        answer_all(items, truth, rater, first=first, slip=slip)
        for rater, first in (("ann", 0), ("bob", 1000))
    )
    (pair,) = agreement(queue, pl.concat([bob, ann]))
    assert (pair.kind, pair.first, pair.second) == ("raters", "ann", "bob")
    assert pair.n_items == len(items)
    assert pair.raw == pytest.approx((ann["answer"] == bob["answer"]).mean())
    assert pair.kappa == pytest.approx(cohen_kappa_score(ann["answer"], bob["answer"]))
    assert pair.confusion[0].sum() == (ann["answer"] == "present").sum()


def test_kappa_is_unknown_where_chance_explains_everything() -> None:
    queue, truth = small_queue()
    one = answer_all(queue.items, truth, slip=lambda answer: "present")
    two = answer_all(queue.items, truth, "bob", first=1000, slip=lambda answer: "present")
    pair = agreement(queue, pl.concat([one, two]))[0]
    assert pair.raw == 1
    assert np.isnan(pair.kappa)
