from __future__ import annotations

import numpy as np
import pytest

from earmark.flags import gather_evidence, in_sample_warning
from earmark.labels import LabelSet
from suspects import planted_case


def warning(labels: LabelSet, scores: np.ndarray, **options: bool) -> str | None:
    evidence = gather_evidence(labels, scores)
    return in_sample_warning(labels, evidence.explicit, evidence.count_above, **options)


def test_scores_out_of_fold_pass() -> None:
    labels, scores, _ = planted_case()
    assert warning(labels, scores) is None


@pytest.mark.parametrize("out_of_fold", [False, True])
def test_labels_learnt_by_heart_are_noticed(out_of_fold: bool) -> None:
    labels, scores, _ = planted_case()
    # the teacher has pushed every label that it saw as negative below its positives
    learnt = np.where(labels.states() == 1, scores + 5, np.minimum(scores, 0))
    message = warning(labels, learnt, out_of_fold=out_of_fold)
    assert message is not None
    advice = ", though its scores are called out of fold" if out_of_fold else "; score out of fold"
    assert message.endswith(advice)


def test_classes_with_few_positives_tell_nothing() -> None:
    rng = np.random.default_rng(0)
    states = np.zeros((500, 2), np.int8)
    states[:29] = 1
    scores = rng.normal(size=states.shape) + 9 * states
    assert warning(LabelSet.from_dense(states), scores) is None
    states[29] = 1
    scores[29] += 9
    assert warning(LabelSet.from_dense(states), scores) is not None


def test_half_of_the_classes_decide() -> None:
    rng = np.random.default_rng(0)
    states = (rng.random((2_000, 3)) < 0.1).astype(np.int8)
    weak = rng.normal(size=states.shape) + states
    learnt = np.where([True, False, False], weak + 20 * states, weak)
    assert warning(LabelSet.from_dense(states), learnt) is None
    learnt = np.where([True, True, False], weak + 20 * states, weak)
    assert warning(LabelSet.from_dense(states), learnt) is not None
