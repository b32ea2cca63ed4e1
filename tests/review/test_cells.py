from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.labels import LabelSet
from earmark.review import Orders, draw, random_queue, ranks
from earmark.review.random_queue import Cells
from earmark.scores import open_scores
from reviews import make_scores

PERCENTS = (0, 1, 5, 20)


def _cells(labels: LabelSet, scores: np.ndarray, columns: list[int]) -> Cells:
    return Cells.find(labels, open_scores(scores, labels), np.array(columns), PERCENTS)


def _slow_bands(labels: LabelSet, scores: np.ndarray, column: int) -> dict[int, int]:
    """Band of each implicit label by its place in the sorted scores; no ties in these."""
    rows = np.flatnonzero(labels.states()[:, column] == 0)
    rows = rows[np.argsort(-scores[rows, column])]
    ends = [len(rows) * percent // 100 for percent in PERCENTS[1:]] + [len(rows)]
    return {
        int(row): next(b for b, end in enumerate(ends) if i < end) for i, row in enumerate(rows)
    }


def test_bands_lie_between_operating_points() -> None:
    labels, _, scores = make_scores()
    cells = _cells(labels, scores, [2, 0])
    bands = cells.bands(labels.states()[:, [2, 0]], scores[:, [2, 0]])
    for place, column in enumerate((2, 0)):
        expected = _slow_bands(labels, scores, column)
        found = {row: int(b) for row, b in enumerate(bands[:, place]) if b >= 0}
        assert found == expected
        counts = np.bincount(list(expected.values()), minlength=4)
        assert cells.n_labels[:, place].tolist() == counts.tolist()
    table = cells.table(labels.class_ids)
    assert table["class_id"].unique(maintain_order=True).to_list() == ["class2", "class0"]
    assert table["band_high"].to_list()[:4] == [1, 5, 20, 100]
    assert table["is_flagged"].to_list()[:4] == [True, True, True, False]
    assert table["n_labels"].sum() == labels.n_implicit[[2, 0]].sum()


def test_tied_scores_stay_in_one_band() -> None:
    labels = LabelSet.from_dense(np.zeros((100, 1), np.int8))
    cells = _cells(labels, np.ones((100, 1), np.float32), [0])
    assert cells.n_labels[:, 0].tolist() == [0, 0, 0, 100]


@settings(max_examples=20, deadline=None)
@given(n_most=st.integers(1, 40), seed=st.integers(0, 2**31), data_seed=st.integers(0, 5))
def test_what_is_drawn_is_the_beginning_of_each_cells_order(
    n_most: int, seed: int, data_seed: int
) -> None:
    labels, _, scores = make_scores(200, 2, data_seed)
    cells = _cells(labels, scores, [0, 1])
    orders = Orders.of(labels, cells.columns, seed)
    drawn = draw(labels, open_scores(scores, labels), cells, orders, n_most)
    numbers = orders.of_clips(slice(None))
    for column in (0, 1):
        bands = _slow_bands(labels, scores, column)
        for band in range(4):
            mine = [row for row, own in bands.items() if own == band]
            expected = sorted(mine, key=lambda row: numbers[row, column])[:n_most]
            found = drawn.filter(chosen=column, band=band).sort("turn")
            assert found["row"].to_list() == expected
            assert found["logit"].to_list() == scores[expected, column].tolist()


def test_a_pass_that_kept_too_few_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, _, scores = make_scores(2_000, 1)
    cells = _cells(labels, scores, [0])
    orders = Orders.of(labels, cells.columns, 0)
    arguments = (labels, open_scores(scores, labels), cells, orders, 60)
    expected = draw(*arguments)
    monkeypatch.setattr(random_queue, "MARGIN_SDS", 1e-3)
    assert draw(*arguments).equals(expected)


def test_any_beginning_of_a_cell_is_a_simple_random_sample() -> None:
    """Over seeds, each label of a cell comes first, and among the first five, equally often."""
    labels = LabelSet.from_dense(np.zeros((20, 1), np.int8))
    scores = np.arange(20, dtype=np.float32)[:, None]
    cells = Cells.find(labels, open_scores(scores, labels), np.array([0]), (50,))
    n_seeds = 1_000
    firsts, fives = np.zeros(20), np.zeros(20)
    for seed in range(n_seeds):
        orders = Orders.of(labels, cells.columns, seed)
        rows = draw(labels, open_scores(scores, labels), cells, orders, 5)
        rows = rows.filter(band=0)["row"].to_numpy()
        firsts[rows[0]] += 1
        fives[rows] += 1
    assert not firsts[:10].any()  # the lower half is the unflagged band
    # Five standard deviations of a binomial count.
    for counts, share in ((firsts[10:], 0.1), (fives[10:], 0.5)):
        assert np.abs(counts - n_seeds * share).max() < 5 * np.sqrt(n_seeds * share * (1 - share))


def test_the_order_depends_on_names_and_seed_alone() -> None:
    labels, _, scores = make_scores(300, 3)
    shuffled = np.random.default_rng(1).permutation(300)
    other = labels.select(shuffled)
    found = []
    for some, values in ((labels, scores), (other, scores[shuffled])):
        cells = _cells(some, values, [1])
        orders = Orders.of(some, cells.columns, 7)
        drawn = draw(some, open_scores(values, some), cells, orders, 4)
        found.append(some.clip_ids.gather(drawn["row"]).to_list())
    assert found[0] == found[1]


def test_a_rank_counts_the_implicit_labels_that_score_higher() -> None:
    labels, _, scores = make_scores()
    scores = scores.round(1)  # with ties
    cells = _cells(labels, scores, [2, 1])
    is_flagged = (labels.states() == 0)[:, cells.columns] & (
        scores[:, cells.columns] > cells.edges[-1]
    )
    rows, chosen = np.nonzero(is_flagged)
    assert len(rows) > 50
    columns = cells.columns[chosen]
    own = scores[rows, columns]
    drawn = pl.DataFrame({"chosen": chosen, "logit": own})
    found = ranks(labels, open_scores(scores, labels), cells, drawn)
    implicit = labels.states() == 0
    expected = [
        1 + int((scores[implicit[:, c], c] > value).sum())
        for c, value in zip(columns, own, strict=True)
    ]
    assert found.tolist() == expected
