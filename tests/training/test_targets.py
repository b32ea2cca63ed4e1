from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.config import NetworkParams, TrainParams
from earmark.labels import LabelSet
from earmark.losses import TREATMENTS
from earmark.scores import MappedScores
from earmark.training import Flags, LabelTreatment, TargetProvider, TrainingSet, class_balance
from scenes import band_workspace


def scores_file(folder: Path, logits: np.ndarray, name: str = "logits") -> MappedScores:
    path = folder / f"{name}.npy"
    np.save(path, logits.astype(np.float32))
    return MappedScores(path, name)


def slow_treatment(
    state: int, logit: float, is_flagged: bool, treatment: str
) -> tuple[float, float]:
    """The table of treatments, label by label: (target, weight)."""
    if state != 0 or not is_flagged:
        return float(state > 0), 1.0
    p = 1 / (1 + np.exp(-logit))
    treated = {"mask": (0, 0), "flip": (1, 1), "soft": (p, 1), "hedge": (p / 2, 1)}
    return {**treated, "weight": (0, 1 - p)}[treatment]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_batch_is_told_what_the_table_of_treatments_says(tmp_path_factory, seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = (9, 4)
    states = random.integers(-1, 2, shape).astype(np.int8)
    logits = random.normal(0, 2, shape).astype(np.float32)
    logits[:, 3] = np.nan  # a class that the teacher does not know
    is_listed = random.random(shape) < 0.5
    rulings = np.where(random.random(shape) < 0.3, random.choice([-1, 1], shape), 0)
    edges = random.normal(0, 1, 4).astype(np.float32)
    file = scores_file(tmp_path_factory.mktemp("treat"), logits)
    everything = np.full(4, -np.inf, np.float32)
    by_edges, by_list = Flags(file, edges), Flags(file, everything, LabelSet.from_dense(is_listed))
    told = [LabelTreatment(flags, name) for flags in (by_edges, by_list) for name in TREATMENTS]
    students = (LabelTreatment(), *told)
    labels, ruled = LabelSet.from_dense(states), LabelSet.from_dense(rulings)
    treated = TargetProvider(labels, students, None, ruled)
    rows = random.permutation(9)[:5]
    found = treated.targets(rows)
    both = (found.target, found.weight)  # one row where nothing is flagged in the batch
    all_targets, all_weights = (values.expand(len(students), -1, -1) for values in both)
    may_be_flagged = (rulings != -1) & ~np.isnan(logits)
    suspects = [(np.zeros(shape, bool), "mask")]
    suspects += [(chosen, name) for chosen in (logits > edges, is_listed) for name in TREATMENTS]
    for student, (is_flagged, name) in enumerate(suspects):
        for place, column in np.ndindex(5, 4):
            label = (rows[place], column)
            target, weight = slow_treatment(
                states[label], logits[label], is_flagged[label] and may_be_flagged[label], name
            )
            weight = 0.0 if states[label] == 0 and rulings[label] == 1 else weight
            place_of = (student, place, column)
            assert all_weights[place_of].item() == pytest.approx(weight, abs=1e-6)
            assert all_targets[place_of].item() == pytest.approx(target, abs=1e-6)
    np.testing.assert_array_equal(found.implicit.numpy(), states[rows] == 0)


def test_students_that_only_mask_share_their_targets(tmp_path: Path) -> None:
    file = scores_file(tmp_path, np.zeros((3, 2)))
    labels = LabelSet.from_dense([[1, 0], [0, 0], [-1, 0]])
    masks = tuple(LabelTreatment(Flags(file, np.full(2, edge, np.float32))) for edge in (-1.0, 1.0))
    found = TargetProvider(labels, masks).targets(np.arange(3))
    assert found.target.shape == (1, 3, 2)
    assert found.weight[0].tolist() == [[1, 0], [0, 0], [1, 0]]
    assert found.weight[1].tolist() == [[1, 1], [1, 1], [1, 1]]


RECORDINGS = np.array([0, 0, 1, 1])
STACK = (
    LabelTreatment(),
    LabelTreatment(),
    LabelTreatment(loss="em"),
    LabelTreatment(loss="consistency", point=2.0),
    LabelTreatment(loss="consistency", point=2.0),
)


def stack() -> TargetProvider:
    labels = LabelSet.from_dense(np.zeros((4, 3), int))
    return TargetProvider(labels, STACK, recordings=RECORDINGS)


def test_a_stack_mixes_losses_and_remembers_what_they_remember() -> None:
    together, rows = stack(), np.arange(4)
    targets = together.targets(rows)
    logits = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    together.entries(logits, targets, 0)
    second = together.entries(-logits, targets, 1)
    for student, treatment in enumerate(STACK):
        alone = together.with_treatments([treatment])
        its_targets, its_logits = alone.targets(rows), logits[student : student + 1]
        alone.entries(its_logits, its_targets, 0)
        torch.testing.assert_close(
            second[student : student + 1], alone.entries(-its_logits, its_targets, 1)
        )
    resumed = stack()
    resumed.load_state(together.state())
    expected = together.entries(logits, targets, 2)
    torch.testing.assert_close(resumed.entries(logits, targets, 2), expected)
    assert not torch.equal(stack().entries(logits, targets, 2), expected)


def test_what_changes_nothing_has_one_digest(tmp_path: Path) -> None:
    file = scores_file(tmp_path, np.zeros((3, 2)))
    flags = Flags(file, np.zeros(2, np.float32))
    assert (
        LabelTreatment().digest
        == LabelTreatment(treatment="soft").digest
        == LabelTreatment(point=3.0).digest
    )
    told = [
        LabelTreatment(),
        LabelTreatment(flags),
        LabelTreatment(flags, "soft"),
        LabelTreatment(loss="em", point=0.1),
    ]
    told += [
        LabelTreatment(loss="em", point=0.2),
        LabelTreatment(Flags(file, np.ones(2, np.float32))),
    ]
    assert len({one.digest for one in told}) == len(told)


def as_labels(states: list[list[int]]) -> LabelSet:
    return LabelSet.from_dense(np.array(states, np.int8).reshape(len(states), -1))


def test_every_class_is_drawn_as_often() -> None:
    states = [[1, 0], [1, -1], [1, 1], [1, 0], [0, 1]]
    # Class 0 has 4 clips (1/4 each), class 1 has 2 (1/2 each); the sum of all is 2.
    expected = np.array([1 / 4, 1 / 4, 3 / 4, 1 / 4, 1 / 2]) / 2
    assert class_balance(as_labels(states)) == pytest.approx(expected)


def test_clips_without_a_positive_are_one_class_more() -> None:
    states = [[1], [1], [0], [-1], [0], [0]]
    assert class_balance(as_labels(states)) == pytest.approx([1 / 4, 1 / 4, *[1 / 8] * 4])
    assert class_balance(as_labels([[0], [0]])) == pytest.approx([1 / 2, 1 / 2])


class Tune:
    """A tune split of some name."""

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def evaluate(self, network: object) -> dict[str, np.ndarray]:
        raise AssertionError("nobody sits it here")


def test_the_tune_split_is_part_of_a_run_that_stops_by_it(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    told = TargetProvider(workspace.labels)
    sets = [
        TrainingSet(workspace.frames_folder, np.arange(60), told, validation)
        for validation in (None, Tune("one"), Tune("two"))
    ]
    plain = NetworkParams(name="x")
    patient = NetworkParams(name="x", train=TrainParams(patience=3))
    assert len({data.digest(plain) for data in sets}) == 1
    assert len({data.digest(patient) for data in sets}) == 3
