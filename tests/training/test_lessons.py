from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.labels.label_set import LabelSet
from earmark.runs.parameters import NetworkParams, TrainParams
from earmark.training import lessons
from earmark.training.lessons import AsLabelled, TrainingSet, class_balance
from scenes import band_workspace


def as_labelled(states: list[list[int]]) -> AsLabelled:
    return AsLabelled(LabelSet.from_dense(np.array(states, np.int8).reshape(len(states), -1)))


def test_every_class_is_drawn_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "CHUNK_CLIPS", 2)
    states = [[1, 0], [1, -1], [1, 1], [1, 0], [0, 1]]
    # Class 0 has 4 clips (1/4 each), class 1 has 2 (1/2 each); the sum of all is 2.
    expected = np.array([1 / 4, 1 / 4, 3 / 4, 1 / 4, 1 / 2]) / 2
    assert class_balance(as_labelled(states), 5) == pytest.approx(expected)


def test_clips_without_a_positive_are_one_class_more() -> None:
    states = [[1], [1], [0], [-1], [0], [0]]
    assert class_balance(as_labelled(states), 6) == pytest.approx([1 / 4, 1 / 4, *[1 / 8] * 4])
    assert class_balance(as_labelled([[0], [0]]), 2) == pytest.approx([1 / 2, 1 / 2])


def test_labels_as_they_are() -> None:
    told = as_labelled([[1, -1, 0], [0, 0, 1]]).targets(np.array([1, 0]))
    assert told.target.tolist() == [[[0, 0, 1], [1, 0, 0]]]
    assert told.weight.unique().tolist() == [1]
    assert told.implicit.tolist() == [[True, True, False], [False, False, True]]


class Exam:
    """A tune split of some name."""

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def marks(self, network: object) -> dict[str, np.ndarray]:
        raise AssertionError("nobody sits it here")


def test_the_tune_split_is_part_of_a_run_that_stops_by_it(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    told = AsLabelled(workspace.labels)
    sets = [
        TrainingSet(workspace.frames_folder, np.arange(60), told, exam)
        for exam in (None, Exam("one"), Exam("two"))
    ]
    plain = NetworkParams(name="x")
    patient = NetworkParams(name="x", train=TrainParams(patience=3))
    assert len({data.digest(plain) for data in sets}) == 1
    assert len({data.digest(patient) for data in sets}) == 3
