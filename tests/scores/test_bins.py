from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plain_loops
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.scores import N_BINS, Grid, Kept, count_bins, keep, unpack_rows, unpack_scores
from made_up import NASTY
from plain_loops import codes_of

N_CLIPS, N_CLASSES = 600, 3


@pytest.fixture(params=["numpy", "C"])
def case(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[np.ndarray, np.ndarray]:
    """States and tied scores, to be looked at in many chunks by either kind of loop."""
    if request.param == "numpy":
        for name in ("count_scores", "pick_scores", "place_keys"):
            monkeypatch.setattr(
                f"earmark.scores.order_statistics.{name}", getattr(plain_loops, name)
            )
    monkeypatch.setattr("earmark.scores.matrix.CHUNK_SCORES", 100)
    rng = np.random.default_rng(0)
    states = rng.choice(np.array([0, 0, 0, 1, -1], np.int8), size=(N_CLIPS, N_CLASSES))
    return states, rng.normal(size=states.shape).round(1).astype(np.float32)


def grid_of(scores: np.ndarray, low: float = 0.0) -> Grid:
    return Grid.spread(np.full(N_CLASSES, low, np.float32), np.sort(scores.T))


def test_counts_add_up_and_explicit_scores_come_out(case: tuple[np.ndarray, np.ndarray]) -> None:
    states, scores = case
    labels = LabelSet.from_dense(states)
    found = count_bins(labels, scores, grid_of(scores))
    assert found.counts.sum(axis=1).tolist() == labels.n_implicit.tolist()
    n_above = ((scores > 0) & (states == 0)).sum(axis=0)
    assert found.counts[:, 1:].sum(axis=1).tolist() == n_above.tolist()
    assert np.array_equal(found.explicit, scores[states != 0])


def test_ranks_lie_in_the_bins_that_are_said(case: tuple[np.ndarray, np.ndarray]) -> None:
    states, scores = case
    grid = grid_of(scores)
    found = count_bins(LabelSet.from_dense(states), scores, grid)
    ranks = np.array([[0] * N_CLASSES, [40] * N_CLASSES, [N_CLIPS] * N_CLASSES])
    bins = found.bins_of(ranks)
    for column in range(N_CLASSES):
        ranked = np.sort(scores[states[:, column] == 0, column])[::-1]
        codes = codes_of(grid, np.full(2, column), ranked[[0, 40]])
        assert bins[:, column].tolist() == [*(codes - column * N_BINS).tolist(), -1]


def test_hot_bins_are_kept_whole_and_sorted(case: tuple[np.ndarray, np.ndarray]) -> None:
    states, scores = case
    labels, grid = LabelSet.from_dense(states), grid_of(scores)
    found = count_bins(labels, scores, grid)
    is_hot = np.zeros(found.counts.shape, bool)
    is_hot[0, 0], is_hot[1, N_BINS // 2 :] = True, True  # the lowest of one class, a half, nothing
    kept = keep(labels, scores, grid, is_hot, np.where(is_hot, found.counts, 0).sum(axis=1))
    for column in range(N_CLASSES):
        rows = np.flatnonzero(states[:, column] == 0)
        codes = codes_of(grid, np.full(len(rows), column), scores[rows, column])
        rows = rows[is_hot.ravel()[codes]]
        rows = rows[np.lexsort((rows, -scores[rows, column]))]
        assert unpack_rows(kept.of(column)).tolist() == rows.tolist()
        assert np.array_equal(unpack_scores(kept.of(column)), scores[rows, column])


def test_merged_shards_equal_the_whole(case: tuple[np.ndarray, np.ndarray]) -> None:
    states, scores = case
    labels, grid = LabelSet.from_dense(states), grid_of(scores)
    shards = [(labels.select(rows), scores[rows]) for rows in (slice(0, 250), slice(250, None))]
    whole = count_bins(labels, scores, grid)
    parts = [count_bins(*shard, grid) for shard in shards]
    merged = parts[0].merge(parts[1])
    assert merged.n_clips == N_CLIPS
    assert np.array_equal(merged.counts, whole.counts)
    assert np.array_equal(merged.explicit, whole.explicit)
    is_hot = np.broadcast_to(np.arange(N_BINS) > 300, whole.counts.shape)
    n_kept = [np.where(is_hot, found.counts, 0).sum(axis=1) for found in (whole, *parts)]
    all_kept = keep(labels, scores, grid, is_hot, n_kept[0])
    one, two = (keep(*shards[i], grid, is_hot, n_kept[i + 1]) for i in range(2))
    joined = one.merge(two)
    assert np.array_equal(joined.keys, all_kept.keys)
    assert np.array_equal(joined.starts, all_kept.starts)


def test_what_was_found_differently_does_not_merge() -> None:
    labels, scores = LabelSet.from_dense([[0]]), np.ones((1, 1), np.float32)
    grids = [Grid.above(np.array([low], np.float32)) for low in (0.0, 0.5)]
    counts = [count_bins(labels, scores, grid) for grid in grids]
    with pytest.raises(EarmarkError, match="one grid"):
        counts[0].merge(counts[1])
    hot = [np.arange(N_BINS)[None] >= first for first in (N_BINS - 1, 1)]
    kept = [keep(labels, scores, grids[0], is_hot, np.array([1])) for is_hot in hot]
    with pytest.raises(EarmarkError, match="the same bins"):
        kept[0].merge(kept[1])


def test_scores_that_change_between_the_passes_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "logits.npy"
    np.save(path, np.ones((5, 1), np.float32))
    labels = LabelSet.from_dense(np.zeros((5, 1), int))
    grid = Grid.above(np.zeros(1, np.float32))
    found = count_bins(labels, path, grid)
    for changed in (-1.0, 1.0):
        np.save(path, np.array([[1], [1], [1], [1], [changed]], np.float32))
        n_kept = found.counts[:, -1] - (changed > 0)
        with pytest.raises(EarmarkError, match="changed while they were read"):
            keep(labels, path, grid, np.arange(N_BINS)[None] > 0, n_kept)


def test_outliers_do_not_take_the_bins_from_the_others() -> None:
    rng = np.random.default_rng(0)
    sample = np.sort(np.append(rng.normal(size=999), 1e6).astype(np.float32))[None]
    grid = Grid.spread(np.array([0.8], np.float32), sample)
    above = sample[sample > 0.8]
    bins = codes_of(grid, np.zeros(len(above), int), above)
    assert bins[-1] == N_BINS - 1
    assert np.bincount(bins).max() < 0.1 * len(above)


def test_grids_without_width() -> None:
    sample = np.array([[2.0, 2.0], [-np.inf, -np.inf]], np.float32)
    grid = Grid.spread(np.array([2.0, np.inf], np.float32), sample)
    codes = codes_of(grid, np.array([0, 0, 1]), np.array([2.0, 2.5, 9.0], np.float32))
    assert codes.tolist() == [0, N_BINS - 1, N_BINS]  # all that is above, then nothing


def test_an_odd_score_is_named_by_any_thread(case: tuple[np.ndarray, np.ndarray]) -> None:
    states, scores = case
    scores[431, 2] = np.nan
    labels = LabelSet.from_dense(states, class_ids=["a", "b", NASTY])
    with pytest.raises(EarmarkError, match=r"clip '431' \(row 431\)"):
        count_bins(labels, scores, grid_of(np.zeros_like(scores)))


def test_keys_below_others_are_counted_within_their_class() -> None:
    keys = np.array([1, 3, 3, 9, 2, 2, 7], np.int64)
    kept = Kept(4, np.zeros((3, N_BINS), bool), np.array([0, 4, 4, 7]), keys)
    columns, asked = np.array([0, 0, 0, 1, 2, 2, 2]), np.array([0, 3, 10, 5, 2, 7, 8])
    assert kept.n_below(columns, asked).tolist() == [0, 1, 4, 0, 0, 2, 3]
