from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from earmark.flags import count_missing
from earmark.labels import LabelSet
from suspects import hidden


class TestByScore:
    def test_rises_and_adds_up_to_the_count(self) -> None:
        states, scores, n_missing = hidden(0.05, 3.5, 0.5)
        found = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None])
        rows = np.flatnonzero(states == 0)
        rows = rows[np.argsort(scores[rows])]
        chances = found.chances.at(rows, np.zeros(len(rows), int))
        assert (np.diff(chances) >= 0).all()
        assert 0 <= chances.min() <= chances.max() <= 1
        assert chances.sum() == pytest.approx(n_missing, rel=0.15)

    def test_low_is_below_high_and_the_sure_one_between(self) -> None:
        states, scores, _ = hidden(0.05, 2.0, 0.5)
        found = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None])
        by_score = found.chances.clues.by_score
        rising = [by_score.low, by_score.sure, by_score.values, by_score.high]
        assert (np.diff(np.stack(rising), axis=0) >= -1e-9).all()

    def test_people_who_said_not_present_bound_it(self) -> None:
        states, scores, _ = hidden(0.05, 3.5, 0.5)
        asked = np.flatnonzero((states == 0) & (scores > np.quantile(scores, 0.97)))[::2]
        states[asked] = -1
        found = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None])
        by_score = found.chances.clues.by_score
        assert (by_score.values <= by_score.most + 1e-6).all()
        assert expit(by_score.most.min()) < 0.9

    def test_does_not_depend_on_the_scale_of_the_scores(self) -> None:
        states, scores, _ = hidden(0.05, 3.5, 0.5)
        labels = LabelSet.from_dense(states[:, None])
        rows = np.flatnonzero(states == 0)[:500]
        one, other = (
            count_missing(labels, (factor * scores + shift)[:, None]).chances.at(rows, 0 * rows)
            for factor, shift in ((1.0, 0.0), (3.0, 2.0))
        )
        assert np.allclose(one, other, atol=0.02)

    def test_many_labels_have_the_chances_of_each(self) -> None:
        """Few are looked up clip by clip, many in a pass over the scores."""
        states, scores, _ = hidden(0.05, 2.0, 0.5, n_clips=3_000)
        pairs = np.stack([scores, scores[::-1]], axis=1)
        labels = LabelSet.from_dense(np.stack([states, states[::-1]], axis=1))
        chances = count_missing(labels, pairs).chances
        rng = np.random.default_rng(0)
        rows, columns = rng.integers(0, 3_000, 2_000), rng.integers(0, 2, 2_000)
        many = chances.at(rows.astype(np.uint32), columns.astype(np.uint32))
        few = [chances.at(rows[[i]], columns[[i]])[0] for i in range(0, 2_000, 40)]
        assert many[::40].tolist() == few
