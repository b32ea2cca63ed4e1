from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from earmark.config import ReviewParams
from earmark.datasets import Workspace, write_dataset
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.labels import LabelSet, Ontology
from earmark.review import (
    CONTROLS,
    QUEUE_SCHEMA,
    QueueSnapshot,
    block_plan,
    deal_blocks,
    is_drawn_from,
    item_id,
    make_queue,
    read_queue,
    write_queue,
)
from reviews import SMALL, make_scores, small_queue


def _is_control() -> pl.Expr:
    return pl.col("kind").is_in(CONTROLS)


def test_a_queue_has_blocks_of_one_class_with_a_tenth_of_controls() -> None:
    queue, _ = small_queue()
    assert queue.items.schema == QUEUE_SCHEMA
    assert queue.items["item"].n_unique() == len(queue.items)
    plan = block_plan(queue.items)
    assert plan["block"].to_list() == list(range(9))
    assert plan["class_id"].to_list() == ["class0", "class1", "class2"] * 3
    assert plan["n_controls"].to_list() == [2] * 9
    assert plan["n_items"].to_list() == [14] * 9
    for _, block in queue.items.group_by("block"):
        assert block["class_id"].n_unique() == 1
        assert block["place"].to_list() == list(range(len(block)))


def test_items_are_what_they_say_they_are() -> None:
    labels, _, scores = make_scores()
    queue = make_queue(labels, scores, Ontology(labels.class_ids), SMALL)
    states, sizes = labels.states(), queue.sizes
    for row in queue.items.iter_rows(named=True):
        clip = int(row["clip_id"].removeprefix("clip"))
        column = labels.class_ids.index(row["class_id"])
        expected = {"positive": 1, "negative": -1, "flag": 0, "unflagged": 0}
        assert row["logit"] == scores[clip, column]
        if row["kind"] in expected:
            assert states[clip, column] == expected[row["kind"]]
            assert row["item"] == item_id(row["clip_id"], row["class_id"])
            assert row["repeats"] is None
        if row["kind"] in ("flag", "unflagged"):
            implicit = scores[states[:, column] == 0, column]
            rank = 1 + (implicit > row["logit"]).sum()
            assert row["rank"] == (rank if row["kind"] == "flag" else None)
            up_to = sizes.filter(class_id=row["class_id"]).filter(
                pl.col("band_high") <= row["band_high"]
            )
            assert rank <= up_to["n_labels"].sum()
            assert (row["kind"] == "flag") == (row["band_high"] < 100)
        else:
            assert row["rank"] is None
            assert row["band_low"] is None


def test_a_repeat_comes_after_its_item_in_the_same_block() -> None:
    queue, _ = small_queue()
    repeats = queue.items.filter(kind="repeat")
    assert len(repeats) == 6
    pairs = repeats.join(queue.items, left_on="repeats", right_on="item")
    assert len(pairs) == len(repeats)
    assert (pairs["clip_id"] == pairs["clip_id_right"]).all()
    assert (pairs["block"] == pairs["block_right"]).all()
    assert (pairs["place"] - pairs["place_right"] >= 4).all()


def test_kinds_of_controls_take_turns_and_missing_kinds_are_left_out() -> None:
    labels, _, scores = make_scores()
    kinds = make_queue(labels, scores, Ontology(labels.class_ids), SMALL).items["kind"]
    assert {kind: (kinds == kind).sum() for kind in CONTROLS} == dict.fromkeys(CONTROLS, 6)
    only_positives = LabelSet.from_dense(np.maximum(labels.states(), 0))
    queue = make_queue(only_positives, scores, Ontology(only_positives.class_ids), SMALL)
    kinds = queue.items["kind"]
    assert {kind: (kinds == kind).sum() for kind in CONTROLS} == {
        "positive": 9, "negative": 0, "repeat": 9,
    }  # fmt: skip


def test_each_block_takes_turns_through_the_cells() -> None:
    queue, _ = small_queue()
    sampled = queue.items.filter(~_is_control())
    for _, block in sampled.group_by("block"):
        assert block.group_by("band_high").len()["len"].to_list() == [3] * 4


def test_small_cells_are_heard_in_full_and_others_fill_up() -> None:
    labels, _, scores = make_scores(60, 1)
    params = ReviewParams(discard_percents=(4, 50), flags_per_block=20, blocks_per_class=2)
    queue = make_queue(labels, scores, Ontology(labels.class_ids), params)
    counts = queue.items.filter(~_is_control()).group_by("band_high").len().sort("band_high")
    sizes = queue.sizes["n_labels"].to_list()
    assert counts["len"].to_list()[0] == sizes[0] == 1
    assert counts["len"].sum() == min(40, sum(sizes))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 1000))
def test_a_longer_queue_begins_like_a_shorter_one(per_block: int, n_blocks: int, seed: int) -> None:
    def first_of_cells(blocks_per_class: int) -> dict[tuple[object, ...], list[str]]:
        params = SMALL.model_copy(
            update={
                "flags_per_block": per_block,
                "blocks_per_class": blocks_per_class,
                "seed": seed,
            }
        )
        items = small_queue(params, n_clips=150)[0].items.filter(~_is_control())
        cells = items.group_by("class_id", "band_high")
        return {key: cell.sort("block", "place")["item"].to_list() for key, cell in cells}

    shorter, longer = first_of_cells(n_blocks), first_of_cells(n_blocks + 1)
    for cell, items in shorter.items():
        assert longer[cell][: len(items)] == items


def test_the_seed_and_nothing_else_changes_the_queue() -> None:
    assert small_queue()[0].digest == small_queue()[0].digest
    other = small_queue(SMALL.model_copy(update={"seed": 1}))[0]
    assert other.digest != small_queue()[0].digest


def test_classes_are_found_by_name_and_heard_in_the_order_asked_for() -> None:
    labels, _, scores = make_scores()
    ontology = Ontology(labels.class_ids, names={"class2": "Siren", "class0": "Bark"})
    params = SMALL.model_copy(update={"classes": ("siren", "class0", "Bark")})
    queue = make_queue(labels, scores, ontology, params)
    assert block_plan(queue.items)["class_id"].to_list() == ["class2", "class0"] * 3
    assert queue.sizes["class_id"].unique(maintain_order=True).to_list() == ["class2", "class0"]
    alone = make_queue(labels, scores, ontology, params.model_copy(update={"classes": ("Bark",)}))
    mine = queue.items.filter(class_id="class0").sort("block", "place")["item"]
    assert alone.items["item"].to_list() == mine.to_list()
    with pytest.raises(EarmarkError, match="did you mean 'Siren'"):
        make_queue(labels, scores, ontology, params.model_copy(update={"classes": ("Sirene",)}))


def test_a_class_without_scores_is_left_out_or_refused() -> None:
    labels, _, scores = make_scores()
    scores[:, 1] = np.nan
    queue = make_queue(labels, scores, Ontology(labels.class_ids), SMALL)
    assert set(queue.items["class_id"]) == {"class0", "class2"}
    params = SMALL.model_copy(update={"classes": ("class1",)})
    with pytest.raises(EarmarkError, match="no scores"):
        make_queue(labels, scores, Ontology(labels.class_ids), params)


def test_a_dataset_without_implicit_labels_has_an_empty_queue() -> None:
    labels = LabelSet.from_dense(np.ones((5, 2), np.int8))
    queue = make_queue(labels, np.zeros((5, 2), np.float32), Ontology(labels.class_ids))
    assert queue.items.is_empty()
    assert queue.items.schema == QUEUE_SCHEMA
    assert block_plan(queue.items).is_empty()
    assert queue.sizes["n_labels"].sum() == 0


def test_raters_share_some_blocks_and_deal_out_the_others() -> None:
    queue = small_queue()[0]
    plan = queue.plan
    raters = ["ann", "bob", "cyd"]
    dealt = deal_blocks(queue, raters)
    own = [[block.block for block in dealt if block.is_for(rater)] for rater in raters]
    shared = plan.filter("is_shared")["block"].to_list()
    assert shared == [0, 5]
    assert all(set(shared) <= set(blocks) for blocks in own)
    rest = sorted(block for blocks in own for block in blocks if block not in shared)
    assert rest == plan.filter(~pl.col("is_shared"))["block"].to_list()
    assert max(map(len, own)) - min(map(len, own)) <= 1
    assert all(block.is_for("ann") for block in deal_blocks(queue, ["ann"]))
    assert pl.concat(block.items for block in dealt).equals(queue.items)


@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_all_or_no_blocks_are_shared_if_asked_for(overlap: float) -> None:
    queue, _ = small_queue(SMALL.model_copy(update={"overlap": overlap}))
    assert queue.items["is_shared"].unique().to_list() == [overlap == 1]


def test_short_blocks_have_fewer_controls() -> None:
    params = ReviewParams(aim="measure", flags_per_block=25, blocks_per_class=1, n_items=12)
    queue, _ = small_queue(params)
    plan = block_plan(queue.items)
    assert (plan["n_controls"] <= np.ceil((plan["n_items"] - plan["n_controls"]) / 9)).all()
    assert (plan["n_controls"] > 0).all()


@pytest.mark.parametrize("n_items", [1, 10, 60])
def test_the_number_of_items_can_be_chosen(n_items: int) -> None:
    queue, _ = small_queue(SMALL.model_copy(update={"n_items": n_items}))
    heard = queue.items.filter(~_is_control())
    assert len(heard) == n_items
    counts = heard.group_by("class_id").len()["len"]
    assert counts.max() - counts.min() <= 1, "every class has its share"
    longer, _ = small_queue(SMALL.model_copy(update={"flags_per_block": 30}))
    assert heard["item"].is_in(longer.items["item"].implode()).all()


def test_every_label_says_with_which_probability_it_was_drawn() -> None:
    queue, _ = small_queue()
    cell = ["class_id", "band_low", "band_high"]
    drawn = queue.items.filter(~_is_control())
    assert queue.items.filter(_is_control())["probability"].is_null().all()
    each = drawn.group_by(cell).agg(
        pl.len(), pl.col("probability").first(), n_different=pl.col("probability").n_unique()
    )
    assert (each["n_different"] == 1).all()
    found = each.join(queue.sizes, on=cell)
    assert np.allclose(found["probability"] * found["n_labels"], found["len"])


def test_a_queue_is_written_whole_and_read_again(tmp_path: Path) -> None:
    workspace, queue = reviewed_workspace(tmp_path)
    with pytest.raises(EarmarkError, match="earmark review"):
        read_queue(workspace)
    write_queue(workspace, queue)
    again = read_queue(workspace)
    assert again.items.equals(queue.items)
    assert again.sizes.equals(queue.sizes)
    assert again.digest == queue.digest
    queue.items.head(5).write_parquet(workspace.queue_path)
    with pytest.raises(EarmarkError, match="changed or damaged"):
        read_queue(workspace)


def reviewed_workspace(root: Path) -> tuple[Workspace, QueueSnapshot]:
    """Write the clips and labels of a queue that is not written yet."""
    labels, _, scores = make_scores()
    queue = make_queue(labels, scores, Ontology(labels.class_ids), SMALL)
    nothing = pl.lit(None)
    clips = pl.DataFrame({"clip_id": labels.clip_ids}).with_columns(
        audio=nothing,
        start_seconds=nothing,
        end_seconds=nothing,
        split=pl.lit("train"),
        source=pl.col("clip_id"),
    )
    return write_dataset(root, clips, Ontology(labels.class_ids), labels), queue


def test_a_queue_older_than_the_dataset_says_so(tmp_path: Path) -> None:
    workspace, queue = reviewed_workspace(tmp_path)
    write_queue(workspace, queue, "labels and scores")
    rows = workspace.labels.rows()
    rows.head(len(rows) - 1).write_parquet(workspace.labels_path)
    changed = Workspace(tmp_path)
    with pytest.warns(EarmarkWarning, match=r"whose labels changed since.*`earmark review"):
        assert read_queue(changed).items.equals(queue.items)
    assert is_drawn_from(changed, "labels and scores")  # as whoever draws it anew finds out
    read_queue(changed)


def test_a_queue_whose_clips_are_gone_is_refused(tmp_path: Path) -> None:
    workspace, queue = reviewed_workspace(tmp_path)
    write_queue(workspace, queue)
    half = np.arange(len(workspace.clips) // 2)
    fewer = workspace.labels.select(half)
    write_dataset(tmp_path, workspace.clips[half], workspace.ontology, fewer, replace=True)
    with pytest.raises(EarmarkError, match=r"whose clips changed since; run `earmark review"):
        read_queue(Workspace(tmp_path))


@pytest.mark.parametrize("percents", [(), (0,), (2, 1), (1, 1), (50, 101), (-1, 5)])
def test_operating_points_that_make_no_sense_are_refused(percents: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError, match="must rise"):
        ReviewParams(discard_percents=percents)
