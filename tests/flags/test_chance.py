from __future__ import annotations

import numpy as np
import pytest

from earmark.flags.counts import count_missing
from earmark.labels.label_set import LabelSet
from suspects import hidden


class TestChance:
    def test_rises_and_adds_up_to_the_count(self) -> None:
        states, scores, n_missing = hidden(0.05, 3.5, 0.5)
        found = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None])
        implicit = np.sort(scores[states == 0])
        chances = found.chances.at(np.zeros(len(implicit), int), implicit)
        assert (np.diff(chances) >= 0).all()
        assert 0 <= chances.min() <= chances.max() <= 1
        assert chances.sum() == pytest.approx(n_missing, rel=0.15)

    def test_score_at_inverts_chance(self) -> None:
        states, scores, _ = hidden(0.05, 3.5, 0.5)
        found = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None])
        for chance in (0.1, 0.5, 0.9):
            reached = found.chances.at(np.array([0]), found.chances.score_at(chance))
            assert reached[0] == pytest.approx(chance)
        assert found.chances.score_at(1.5).tolist() == [np.inf]
