from __future__ import annotations

import numpy as np

from earmark.flags.judged import judge_flags
from earmark.flags.thresholds import thresholds
from earmark.labels.label_set import LabelSet


def test_flags_are_judged_by_the_truth() -> None:
    labels = LabelSet.from_dense([[0, 1], [0, 0], [0, 0], [-1, 0]])
    truth = LabelSet.from_dense([[1, 1], [-1, -1], [1, -1], [-1, 1]])
    logits = np.array([[3.0, 9.0], [2.0, 1.0], [1.0, 0.0], [9.0, 2.0]], np.float32)
    found = thresholds(labels, logits, [0, 34, 67])  # one, then two flags in each class
    judged = judge_flags(labels, truth, logits, found)
    assert judged["n_missing"].to_list() == [3, 3, 3]
    assert judged["n_flags"].to_list() == [0, 2, 4]
    assert judged["n_right"].to_list() == [0, 2, 2]
