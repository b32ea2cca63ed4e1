from __future__ import annotations

import numpy as np
import pytest

from earmark.flags import in_sample_warning, score_histograms, tilts_of_missing
from earmark.labels import LabelSet
from suspects import planted_case


class TestInSample:
    def test_scores_out_of_fold_pass(self) -> None:
        labels, scores, _ = planted_case()
        assert in_sample_warning(labels, score_histograms(labels, scores)) is None

    def test_labels_learnt_by_heart_are_noticed(self) -> None:
        labels, scores, _ = planted_case()
        # the teacher has pushed every label that it saw as negative below its positives
        learnt = np.where(labels.states() == 1, scores + 5, np.minimum(scores, 0))
        message = in_sample_warning(labels, score_histograms(labels, learnt))
        assert message is not None
        assert "out of fold" in message

    def test_labels_pushed_half_way_down_are_noticed(self) -> None:
        labels, scores, truth = planted_case()
        pushed = scores - 2.3 * (truth & (labels.states() == 0))  # 1.3 standard deviations
        message = in_sample_warning(labels, score_histograms(labels, pushed))
        assert message is not None
        assert "faint" in message

    def test_scores_called_out_of_fold_are_not_advised_to_be_so(self) -> None:
        labels, scores, truth = planted_case()
        learnt = np.where(labels.states() == 1, scores + 5, np.minimum(scores, 0))
        pushed = scores - 2.3 * (truth & (labels.states() == 0))
        for made in (learnt, pushed):
            histograms = score_histograms(labels, made)
            assert (in_sample_warning(labels, histograms) or "").endswith("; score out of fold")
            message = in_sample_warning(labels, histograms, out_of_fold=True) or ""
            assert message.endswith(", though its scores are called out of fold")


class TestTilts:
    @pytest.mark.parametrize(("pushed_down", "expected"), [(0.0, 0.0), (1.5, 1.5)])
    def test_tell_whether_the_teacher_saw_the_labels(
        self, pushed_down: float, expected: float
    ) -> None:
        rng = np.random.default_rng(0)
        truth = rng.random((30_000, 5)) < 0.05
        is_missing = truth & (rng.random(truth.shape) < 0.4)
        scores = rng.normal(size=truth.shape) + 5.0 * truth - pushed_down * is_missing
        labels = LabelSet.from_dense((truth & ~is_missing).astype(np.int8))
        found = tilts_of_missing(score_histograms(labels, scores))
        assert np.median(found) == pytest.approx(expected, abs=0.3)

    def test_only_classes_with_enough_positives_tell(self) -> None:
        states = np.zeros((200, 2), np.int8)
        states[:40, 0] = states[:5, 1] = 1
        scores = np.random.default_rng(0).normal(size=states.shape)
        assert len(tilts_of_missing(score_histograms(LabelSet.from_dense(states), scores))) == 1
