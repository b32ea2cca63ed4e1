from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.labels import (
    LabelSet,
    assign,
    complete_splits,
    deal_splits,
    folds,
    largest_deviation,
    subset,
)

PRIORS = [0.5, 0.2, 0.1, 0.05]


def random_labels(n_clips: int, seed: int, priors: list[float] = PRIORS) -> LabelSet:
    draws = np.random.default_rng(seed).random((n_clips, len(priors)))
    return LabelSet.from_dense((draws < priors).astype(np.int8))


def random_sources(n_clips: int, seed: int) -> list[str]:
    numbers = np.random.default_rng(seed).integers(0, max(n_clips // 3, 2), n_clips)
    return [f"recording{number}" for number in numbers]


def n_parts_of_each(sources: list[str], parts: np.ndarray) -> list[int]:
    table = pl.DataFrame({"source": sources, "part": parts})
    return table.group_by("source").agg(pl.col("part").n_unique())["part"].to_list()


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_folds_keep_recordings_whole_and_spread_rare_classes(seed: int, n_folds: int) -> None:
    labels = random_labels(60, seed)
    sources = [f"recording{i // 2}" for i in range(60)]
    fold_of = folds(labels, sources, n_folds, seed)
    assert np.array_equal(fold_of[::2], fold_of[1::2])
    assert set(fold_of) == set(range(n_folds))
    counts = np.array([labels.select(fold_of == k).n_positives for k in range(n_folds)])
    rarest = int(labels.n_positives.argmin())
    assert np.ptp(counts[:, rarest]) <= 2  # a recording of two clips is never cut


def test_a_class_of_three_recordings_reaches_three_folds() -> None:
    states = np.zeros((30, 2), np.int8)
    states[:3, 0] = states[3:, 1] = 1
    fold_of = folds(LabelSet.from_dense(states), [str(i) for i in range(30)], 3)
    assert sorted(fold_of[:3]) == [0, 1, 2]
    assert np.bincount(fold_of).tolist() == [10, 10, 10]


def test_more_folds_than_recordings_are_refused() -> None:
    with pytest.raises(EarmarkError, match="2 recordings cannot be cut into 3 folds"):
        folds(LabelSet.from_dense(np.ones((4, 1))), ["a", "a", "b", "b"], 3)


def slow_assign(labels: LabelSet, sources: list[str], shares: list[float], order: list[str]):
    """Place recordings in a given order, counting everything anew each time."""
    states, names = labels.states() > 0, np.array(sources)
    part_of = dict.fromkeys(order, -1)
    for recording in order:
        placed = np.array([part_of[name] for name in sources])
        mine = states[names == recording].sum(axis=0)
        costs = []
        for part, share in enumerate(shares):
            had = states[placed == part].sum(axis=0) / np.maximum(states.sum(axis=0), 1) / share
            clips = (placed == part).sum() / len(names) / share
            costs.append((round(float(had @ mine), 9), round(float(clips), 9), part))
        part_of[recording] = min(costs)[2]
    return np.array([part_of[name] for name in sources])


def test_parts_are_what_a_slow_loop_gives() -> None:
    # One positive class each, of distinct frequency: then the order is known but for the seed,
    # and recordings of one class and size can be swapped without changing the counts.
    sizes = [1] * 3 + [2] * 6 + [1] * 20
    classes = [0] * 3 + [1] * 6 + [2] * 20
    sources = [f"r{i:02}" for i, size in enumerate(sizes) for _ in range(size)]
    columns = [c for c, size in zip(classes, sizes, strict=True) for _ in range(size)]
    labels = LabelSet.from_dense(np.eye(3, dtype=np.int8)[columns])
    shares = [0.6, 0.25, 0.15]
    fast = assign(labels, sources, shares, seed=5)
    slow = slow_assign(labels, sources, shares, sorted(set(sources)))
    for part in range(3):
        expected = labels.select(slow == part).n_positives.tolist()
        assert labels.select(fast == part).n_positives.tolist() == expected


@given(st.integers(0, 10_000))
def test_unequal_parts_meet_their_shares(seed: int) -> None:
    labels, sources = random_labels(600, seed), random_sources(600, seed)
    parts = assign(labels, sources, [0.8, 0.1, 0.1], seed)
    assert set(n_parts_of_each(sources, parts)) == {1}
    assert np.bincount(parts) / 600 == pytest.approx([0.8, 0.1, 0.1], abs=0.05)
    for part, share in enumerate([0.8, 0.1, 0.1]):
        n_positives = labels.select(parts == part).n_positives
        assert n_positives == pytest.approx(share * labels.n_positives, abs=6)


def test_parts_do_not_depend_on_the_order_of_clips() -> None:
    labels, sources = random_labels(200, 1), random_sources(200, 1)
    shuffled = np.random.default_rng(0).permutation(200)
    parts = assign(labels, sources, [0.5, 0.5], 7)
    again = assign(labels.select(shuffled), [sources[i] for i in shuffled], [0.5, 0.5], 7)
    assert np.array_equal(parts[shuffled], again)
    assert not np.array_equal(parts, assign(labels, sources, [0.5, 0.5], 8))


def test_clips_without_labels_are_spread_evenly() -> None:
    labels = LabelSet.from_dense(np.zeros((40, 2), np.int8))
    parts = assign(labels, [str(i) for i in range(40)], [0.5, 0.25, 0.25])
    assert np.bincount(parts).tolist() == [20, 10, 10]


def test_no_clips_give_no_parts() -> None:
    nothing = LabelSet.from_dense(np.zeros((0, 2), np.int8))
    assert len(assign(nothing, [], [0.5, 0.5])) == 0
    assert len(subset(nothing, [], 0.5)) == 0


@pytest.mark.parametrize("shares", [[], [0.5, 0.0], [-1.0]])
def test_shares_that_are_no_shares_are_refused(shares: list[float]) -> None:
    with pytest.raises(EarmarkError, match="shares must be positive"):
        assign(random_labels(4, 0), list("abcd"), shares)


def test_a_clip_without_source_is_refused() -> None:
    with pytest.raises(EarmarkError, match="4 clips needs a source, got 3"):
        assign(random_labels(4, 0), ["a", None, "b", "c"], [1.0])  # type: ignore[list-item]


@given(st.integers(0, 10_000), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_smaller_subset_lies_within_a_larger_one(seed: int, one: float, other: float) -> None:
    labels, sources = random_labels(120, seed), random_sources(120, seed)
    small, large = (subset(labels, sources, share, seed) for share in sorted((one, other)))
    assert not (small & ~large).any()
    assert small.any()
    assert set(n_parts_of_each(sources, small)) == {1}


@pytest.mark.parametrize("share", [0.03, 0.2, 0.37, 0.5, 1.0])
def test_a_subset_of_single_clips_meets_its_share_exactly(share: float) -> None:
    chosen = subset(random_labels(1_000, 0), [str(i) for i in range(1_000)], share)
    assert chosen.sum() == round(share * 1_000)


def test_a_subset_keeps_the_class_distribution_where_chance_does_not() -> None:
    labels = random_labels(20_000, 3, [0.3, 0.1, *[0.02] * 20])
    sources = [f"recording{i // 2}" for i in range(20_000)]
    deviation = largest_deviation(labels, subset(labels, sources, 0.2))
    by_chance = np.repeat(np.random.default_rng(0).random(10_000) < 0.2, 2)
    assert deviation.relative < 0.05
    assert largest_deviation(labels, by_chance).relative > 2 * deviation.relative


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_a_share_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(EarmarkError, match="above 0 and at most 1"):
        subset(random_labels(4, 0), list("abcd"), share)


def test_the_largest_deviation_by_hand() -> None:
    states = np.zeros((8, 3), np.int8)
    states[[0, 1, 2, 3], 0] = 1  # half of all, 3 of the 4 chosen: 50 % too many
    states[[0, 4, 5, 6], 1] = 1  # half of all, 1 of the 4 chosen: 50 % too few
    states[7, 2] = 1  # too rare to count
    states[7, 0] = 1
    labels = LabelSet.from_dense(states, class_ids=["a", "b", "c"])
    chosen = np.array([1, 1, 1, 0, 0, 0, 0, 0], bool)
    # a: 5/8 of all, 3/3 of the chosen: +60 %; b: 4/8 of all, 1/3 of the chosen: -33 %
    assert largest_deviation(labels, chosen, min_positives=2) == (pytest.approx(0.6), "a")
    assert largest_deviation(labels, chosen, min_positives=1) == (pytest.approx(1.0), "c")
    assert largest_deviation(labels, chosen) == (0.0, None)


def test_splits_that_are_given_are_kept() -> None:
    given_splits = pl.Series(["train", "tune", "eval", "train"])
    labels = random_labels(4, 0)
    assert complete_splits(labels, list("abcd"), given_splits).to_list() == given_splits.to_list()
    only_eval = pl.Series(["eval"] * 4)
    assert complete_splits(labels, list("abcd"), only_eval).to_list() == ["eval"] * 4


def test_tune_is_taken_from_train_alone() -> None:
    labels, sources = random_labels(400, 0), [f"recording{i // 2}" for i in range(400)]
    official = pl.Series(["train"] * 300 + ["eval"] * 100)
    split = complete_splits(labels, sources, official)
    assert split[300:].to_list() == ["eval"] * 100
    assert split[:300].to_list().count("tune") == pytest.approx(30, abs=4)
    assert set(n_parts_of_each(sources, split.to_numpy())) == {1}


@pytest.mark.parametrize("official", [None, pl.Series(["train"] * 400)])
def test_without_official_splits_all_is_train_unless_recordings_are_dealt_out(
    official: pl.Series | None,
) -> None:
    labels, sources = random_labels(400, 0), random_sources(400, 0)
    assert complete_splits(labels, sources, official).to_list() == ["train"] * 400
    split = complete_splits(labels, sources, official, deal=True)
    assert split.equals(deal_splits(labels, sources))
    assert set(n_parts_of_each(sources, split.to_numpy())) == {1}
    counts = dict(split.value_counts().iter_rows())
    assert counts["train"] == pytest.approx(320, abs=16)
    assert counts["tune"] == pytest.approx(40, abs=12)
    assert counts["eval"] == pytest.approx(40, abs=12)
