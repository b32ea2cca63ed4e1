from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from sklearn.isotonic import IsotonicRegression

from earmark.errors import EarmarkError
from earmark.flags.flag import FLAG_SCHEMA, flag
from earmark.labels.ontology import Ontology
from earmark.review.judged_chance import calibrated_chance, deepest_percents, flag_by_judgements
from earmark.review.judgements import JUDGEMENT_SCHEMA
from earmark.review.queue import make_queue
from earmark.runs.parameters import ReviewParams
from reviews import SMALL, answer_all, make_scores, small_queue

CENSUS = SMALL.model_copy(update={"flags_per_block": 400, "blocks_per_class": 1})


def test_chances_fall_with_the_band_and_lie_between_0_and_1() -> None:
    queue, truth = small_queue()
    found = calibrated_chance(queue, answer_all(queue.items.filter(block=0), truth))
    assert found.select("class_id", "band_high").equals(queue.sizes.select("class_id", "band_high"))
    assert found["chance"].is_between(0, 1).all()
    for _, own in found.group_by("class_id"):
        assert own["chance"].is_sorted(descending=True)


def test_a_full_review_gives_the_falling_curve_of_the_true_shares() -> None:
    queue, truth = small_queue(CENSUS)
    found = calibrated_chance(queue, answer_all(queue.items, truth), n_borrowed=1e-9)
    present = set(truth.rows().filter("present").select("clip_id", "class_id").rows())
    sampled = queue.items.filter(pl.col("kind").is_in(["flag", "unflagged"]))
    for class_id in truth.class_ids:
        shares, sizes = [], []
        for _, cell in (
            sampled.filter(class_id=class_id)
            .sort("band_high")
            .group_by("band_high", maintain_order=True)
        ):
            pairs = cell.select("clip_id", "class_id").rows()
            shares.append(sum(pair in present for pair in pairs) / len(pairs))
            sizes.append(len(pairs))
        model = IsotonicRegression(increasing=False).fit(range(4), shares, sizes)
        falling = model.predict(range(4))
        assert np.allclose(found.filter(class_id=class_id)["chance"], falling, atol=1e-6)


def test_a_class_that_nobody_judged_has_the_curve_of_all() -> None:
    queue, truth = small_queue()
    judged = answer_all(queue.items.filter(pl.col("class_id") != "class2"), truth)
    found = calibrated_chance(queue, judged)
    unheard = found.filter(class_id="class2")
    assert (unheard["n_judged"] == 0).all()
    pooled = found.filter(pl.col("class_id") != "class2").group_by("band_high", maintain_order=True)
    low, high = (
        pooled.agg(end)["chance"] for end in (pl.col("chance").min(), pl.col("chance").max())
    )
    assert ((unheard["chance"] >= low - 0.05) & (unheard["chance"] <= high + 0.05)).all()


def test_a_band_without_answers_lies_between_its_neighbours() -> None:
    queue, truth = small_queue()
    judged = queue.items.filter(pl.col("band_high") != 10)
    chances = calibrated_chance(queue, answer_all(judged, truth))["chance"].to_list()
    assert chances[0] >= chances[1] >= chances[2]


def test_borrowing_draws_a_class_towards_all() -> None:
    queue, truth = small_queue()
    contrary = {"class0": lambda a: "present", "class1": lambda a: "not_present"}
    judged = pl.concat(
        answer_all(queue.items.filter(class_id=name), truth, first=1000 * i, slip=slip)
        for i, (name, slip) in enumerate(contrary.items())
    )
    alone, drawn = (calibrated_chance(queue, judged, n) for n in (1e-9, 1e6))
    first = alone.filter(class_id="class0")["chance"]
    assert np.allclose(first, 1, atol=1e-6)
    assert np.allclose(drawn.filter(class_id="class0")["chance"], 0.5, atol=1e-3)


def test_flags_reach_as_deep_as_the_target_allows() -> None:
    labels, truth, scores = make_scores(2_000)
    params = ReviewParams(discard_percents=(0, 2, 5, 10, 30), flags_per_block=200)
    queue = make_queue(labels, scores, Ontology(labels.class_ids), params)
    calibrated = calibrated_chance(queue, answer_all(queue.items, truth))
    depths = dict(deepest_percents(calibrated, 0.4).rows())
    flags = flag_by_judgements(labels, scores, calibrated, 0.4)
    assert dict(flags.schema) == FLAG_SCHEMA
    assert (flags["chance"] >= 0.4).all()
    for class_id, depth in depths.items():
        own = flags.filter(class_id=class_id)
        expected = flag(labels, scores, discard_percent=depth, with_chance=False)
        expected = expected.filter(pl.col("class_id") == class_id)
        assert own.drop("chance").equals(expected.drop("chance"))
        assert own["chance"].is_sorted(descending=True)
    present = set(truth.rows().filter("present").select("clip_id", "class_id").rows())
    hits = np.array([pair in present for pair in flags.select("clip_id", "class_id").rows()])
    assert hits.mean() == pytest.approx(float(flags["chance"].mean() or 0), abs=0.1)


def test_an_unreachable_target_flags_nothing() -> None:
    labels, truth, scores = make_scores()
    queue = make_queue(labels, scores, Ontology(labels.class_ids), SMALL)
    refused = answer_all(queue.items, truth, slip=lambda answer: "not_present")
    calibrated = calibrated_chance(queue, refused)
    assert flag_by_judgements(labels, scores, calibrated, 0.9).is_empty()


def test_mistakes_are_named() -> None:
    queue, truth = small_queue()
    with pytest.raises(EarmarkError, match="no flag of this queue was judged"):
        calibrated_chance(queue, pl.DataFrame(schema=JUDGEMENT_SCHEMA))
    calibrated = calibrated_chance(queue, answer_all(queue.items, truth))
    with pytest.raises(EarmarkError, match="between 0 and 1, got 2"):
        deepest_percents(calibrated, 2)
