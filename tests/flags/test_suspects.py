from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.flags import FLAG_SCHEMA, FLAGS_AT_ONCE, FlagTable, Suspects, suspects
from earmark.labels import LabelSet, Ontology
from earmark.report import flags_to_hear

CLASS_IDS = ("dog", "siren", "rain", "none", "wind")
TREE = Ontology(CLASS_IDS, names={class_id: f"{class_id}, heard" for class_id in CLASS_IDS})


@st.composite
def some_suspects(draw: st.DrawFn) -> Suspects:
    """Flags of some classes, others without any, many as likely as others, some unknown."""
    n_clips = 30
    n_each = draw(st.lists(st.integers(0, 12), min_size=5, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 1_000)))
    rows = [rng.permutation(n_clips)[:n] for n in n_each]
    n = sum(n_each)
    likely = np.array([np.nan, 0, 1e-30, 0.25, 0.50004, 0.50006, 0.9, 1], np.float32)
    chances = rng.choice(likely[draw(st.integers(0, 7)) :], n)
    labels = LabelSet.from_dense(np.zeros((n_clips, 5), np.int8), class_ids=CLASS_IDS)
    return Suspects(
        labels,
        np.append(0, np.cumsum(n_each)),
        np.concatenate(rows).astype(np.uint32),
        rng.normal(size=n).astype(np.float32),
        chances,
    )


def plain_table(flags: Suspects) -> pl.DataFrame:
    """The flags by class and rank, one row after the other."""
    rows = []
    for column, class_id in enumerate(CLASS_IDS):
        first, end = flags.starts[column : column + 2]
        rows += [
            {
                "clip_id": str(flags.rows[place]),
                "class_id": class_id,
                "logit": float(flags.logits[place]),
                "rank": place - first + 1,
                "chance": None if np.isnan(flags.chances[place]) else float(flags.chances[place]),
            }
            for place in range(first, end)
        ]
    return pl.DataFrame(rows, schema=FLAG_SCHEMA)


def plain_likeliest(flags: Suspects) -> pl.DataFrame:
    """All flags in one table, named, sorted and rounded by polars."""
    ordered = plain_table(flags).sort(
        "chance", descending=True, nulls_last=True, maintain_order=True
    )
    name = pl.format("{}, heard", "class_id").alias("name")
    chance = pl.col("chance").round(4)
    return ordered.select("clip_id", "class_id", name, "logit", "rank", chance)


@given(some_suspects())
@settings(max_examples=20, deadline=None)
def test_a_table_goes_to_another_process_and_comes_back(flags: Suspects) -> None:
    for table in (FlagTable.named(flags, TREE), FlagTable.of(plain_likeliest(flags))):
        back = pickle.loads(pickle.dumps(table))
        assert back.table.equals(table.table)
        assert back.first_of_each(2).equals(table.first_of_each(2))


@given(some_suspects(), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_blocks_are_the_plain_table_cut(flags: Suspects, n_at_once: int) -> None:
    expected = plain_likeliest(flags)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspects, "FLAGS_AT_ONCE", n_at_once)
        table = FlagTable.named(flags, TREE)
        blocks = list(table.blocks())
    assert all(len(block) == n_at_once for block in blocks[:-1])
    assert len(blocks[-1]) <= n_at_once
    assert pl.concat(blocks).equals(expected)
    assert pl.concat(blocks).schema == expected.schema
    assert table.table.equals(expected)
    assert table.n_flags == len(expected)


@given(some_suspects())
@settings(max_examples=50, deadline=None)
def test_numbers_are_those_of_the_plain_table(flags: Suspects) -> None:
    plain = plain_table(flags)
    assert flags.table().equals(plain)
    by_class = plain.group_by("class_id").agg(n=pl.len(), lowest=pl.col("logit").min())
    expected = pl.DataFrame({"class_id": CLASS_IDS}).join(
        by_class, on="class_id", how="left", maintain_order="left"
    )
    assert flags.n_each.tolist() == expected["n"].fill_null(0).to_list()
    assert flags.lowest.to_list() == expected["lowest"].to_list()
    assert flags.lowest.dtype == pl.Float32
    chances = plain_likeliest(flags)["chance"].drop_nulls()
    n_expected = FlagTable.named(flags, TREE).n_expected
    assert n_expected == (None if chances.is_empty() else pytest.approx(chances.sum()))


@given(some_suspects(), st.integers(1, 20))
@settings(max_examples=50, deadline=None)
def test_the_first_of_each_class_are_heard_first(flags: Suspects, n_most: int) -> None:
    plain, table = plain_likeliest(flags), FlagTable.named(flags, TREE)
    first = table.first_of_each(max(n_most, 3))
    assert first["class_id"].value_counts()["count"].max() in {None, *range(max(n_most, 3) + 1)}
    assert flags_to_hear(first, n_most).equals(flags_to_hear(plain, n_most))
    of_table = FlagTable.of(plain).first_of_each(max(n_most, 3))
    assert of_table.sort("class_id", "rank").equals(first.sort("class_id", "rank"))


@given(some_suspects(), st.integers(0, 1_000))
@settings(max_examples=50, deadline=None)
def test_some_of_the_flags(flags: Suspects, seed: int) -> None:
    is_kept = np.random.default_rng(seed).random(len(flags)) < 0.5
    left = plain_table(flags).filter(pl.Series(is_kept, dtype=pl.Boolean)).drop("rank")
    assert flags.where(is_kept).table().drop("rank").equals(left)


def test_millions_of_flags_take_few_bytes_each() -> None:
    """Rows of names would take over a hundred; sorting takes a second copy of eight bytes."""
    n = 16 * FLAGS_AT_ONCE
    rng = np.random.default_rng(0)
    labels = LabelSet.from_dense(np.zeros((30, 5), np.int8), class_ids=CLASS_IDS)
    starts = np.linspace(0, n, 6).astype(np.int64)
    rows = rng.integers(0, 30, n).astype(np.uint32)
    flags = Suspects(labels, starts, rows, *rng.random((2, n), np.float32))
    n_rows = 0
    tracemalloc.start()
    table = FlagTable.named(flags, TREE)
    for block in table.blocks():
        n_rows += len(block)
        assert len(block) <= FLAGS_AT_ONCE
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_rows == n
    assert peak / n < 24
