from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from earmark.errors import EarmarkError
from earmark.experiments import LOSS_POINTS
from earmark.labels import LabelSet
from earmark.losses import BatchTargets
from earmark.training import (
    LOSSES,
    RECORDING_RATE,
    LabelTreatment,
    RecordingConsistency,
    TargetProvider,
    largest,
    make_loss,
    robust_losses,
)

FIRST, SECOND, THIRD = range(3)
LOG2 = math.log(2)


def told(states: ArrayLike, recordings: ArrayLike | None = None) -> BatchTargets:
    given = torch.as_tensor(np.asarray(states))
    target = (given > 0).double().unsqueeze(0)
    numbers = None if recordings is None else torch.as_tensor(np.asarray(recordings))
    return BatchTargets(target, torch.ones_like(target), given == 0, numbers)


def losses_of(name: str, point: float | None, z: float, state: int, epoch: int) -> float:
    logits = torch.tensor([[[z]]], dtype=torch.float64)
    return make_loss(name, point)(logits, told([[state]], [0]), epoch).item()


# By hand, at p = 1/2 (z = 0) or p = 3/4 (z = log 3).
@pytest.mark.parametrize(
    ("name", "point", "z", "state", "expected"),
    [
        ("bce", None, math.log(3), 0, math.log(4)),
        ("an-ls", 0.1, math.log(3), 0, 0.9 * math.log(4) + 0.1 * math.log(4 / 3)),
        ("an-ls", 0.1, math.log(3), 1, 0.9 * math.log(4 / 3) + 0.1 * math.log(4)),
        ("weak-negatives", None, math.log(3), 0, 0.01 * math.log(4)),
        ("weak-negatives", 0.5, math.log(3), 0, 0.5 * math.log(4)),
        ("weak-negatives", 0.5, math.log(3), 1, math.log(4 / 3)),
        ("em", 0.1, 0.0, 0, -0.1 * LOG2),
        ("em", 0.1, 0.0, 1, LOG2),
        ("splc", 0.6, 0.0, 0, 0.25 * LOG2),
        ("splc", 0.6, 1.0, 1, 0.25 * LOG2),
    ],
)
def test_formulas_by_hand(
    name: str, point: float | None, z: float, state: int, expected: float
) -> None:
    assert losses_of(name, point, z, state, FIRST) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "bce"])
def test_an_explicit_negative_keeps_its_cross_entropy(name: str) -> None:
    expected = math.log(4)
    if name == "an-ls":  # smooths every label
        expected = 0.9 * math.log(4) + 0.1 * math.log(4 / 3)
    assert losses_of(name, None, math.log(3), -1, THIRD) == pytest.approx(expected)


def test_splc_takes_confident_implicit_labels_for_positives_from_the_second_epoch() -> None:
    z = math.log(3)  # p = 0.75, above tau
    assert losses_of("splc", 0.6, z, 0, FIRST) == pytest.approx(0.75**2 * math.log(4))
    expected = losses_of("splc", 0.6, z, 1, SECOND)
    assert losses_of("splc", 0.6, z, 0, SECOND) == pytest.approx(expected)
    assert losses_of("splc", 0.8, z, 0, SECOND) == pytest.approx(0.75**2 * math.log(4))


def slow_largest(losses: np.ndarray, implicit: np.ndarray, share: float) -> np.ndarray:
    """Walk through the losses from the top, student by student."""
    chosen = np.zeros(losses.shape, bool)
    for student, own in enumerate(losses):
        k = math.ceil(round(share * own.size, 6))
        places = [place for place in np.ndindex(own.shape) if implicit[place]]
        for place in sorted(places, key=lambda place: -own[place])[:k]:
            chosen[(student, *place)] = True
    return chosen


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.6))
def test_the_largest_are_those_that_a_walk_from_the_top_meets(seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    losses, implicit = random.random((2, 4, 3)), random.random((4, 3)) < 0.7
    found = largest(torch.from_numpy(losses), torch.from_numpy(implicit), share).numpy()
    np.testing.assert_array_equal(found, slow_largest(losses, implicit, share))


BATCH = torch.tensor([[[3.0, 0.0, -1.0], [1.0, 2.0, -2.0]]], dtype=torch.float64)
STATES = [[0, 1, 0], [0, -1, 0]]  # the largest implicit losses are at z = 3 and z = 1


def test_large_losses_are_dropped_more_of_them_every_epoch() -> None:
    loss, targets = make_loss("ll-r", 10), told(STATES)  # k = ceil(6 x 10 % x epoch)
    plain = make_loss("bce")(BATCH, targets, FIRST)
    assert torch.equal(loss(BATCH, targets, FIRST), plain)
    once = plain.clone()
    once[0, 0, 0] = 0.0
    torch.testing.assert_close(loss(BATCH, targets, SECOND), once)
    twice = once.clone()
    twice[0, 1, 0] = 0.0
    torch.testing.assert_close(loss(BATCH, targets, THIRD), twice)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_changes_with_the_epoch_asks_for_it(name: str) -> None:
    targets = told(STATES, recordings=[0, 1])
    changes = not torch.equal(*(make_loss(name)(3 * BATCH, targets, e) for e in (FIRST, THIRD)))
    if changes:
        with pytest.raises(EarmarkError, match="pass the epoch"):
            make_loss(name)(BATCH, targets, None)
    else:
        make_loss(name)(BATCH, targets, None)
    assert changes == (name in ("splc", "ll-r"))


@pytest.mark.parametrize("name", LOSSES)
def test_students_in_a_stack_have_the_losses_that_they_have_alone(name: str) -> None:
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    states = torch.randint(-1, 2, (5, 4), generator=torch.Generator().manual_seed(2)).tolist()
    targets = told(states, recordings=list(range(5)))
    together = make_loss(name)(logits, targets, THIRD)
    for student in range(3):
        alone = make_loss(name)(logits[student : student + 1], targets, THIRD)
        torch.testing.assert_close(together[student : student + 1], alone)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("z", [-60.0, 0.0, 60.0])
def test_losses_and_gradients_are_finite_far_out(name: str, z: float) -> None:
    logits = torch.full((1, 1, 3), z, requires_grad=True)
    targets = BatchTargets(
        torch.tensor([[[1.0, 0.0, 0.0]]]), torch.ones(1, 1, 3),
        torch.tensor([[False, False, True]]), torch.tensor([0]),
    )  # fmt: skip
    entries = make_loss(name)(logits, targets, THIRD)
    entries.sum().backward()
    assert torch.isfinite(entries).all()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", LOSSES)
def test_a_weight_of_zero_takes_a_label_out_of_the_loss(name: str) -> None:
    targets = told(STATES, recordings=[0, 1])
    unweighted = replace(targets, weight=targets.weight * 0)
    assert make_loss(name)(BATCH, unweighted, THIRD).abs().max() == 0


def test_an_unknown_loss_lists_the_choices() -> None:
    with pytest.raises(EarmarkError, match="no loss 'll'; the choices are bce"):
        make_loss("ll")


def test_several_processes_are_refused_where_the_whole_batch_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(robust_losses, "n_processes", lambda: 2)
    for name in ("ll-r", "consistency"):
        with pytest.raises(EarmarkError, match=r"in one process"):
            make_loss(name)(BATCH, told(STATES, recordings=[0, 1]), SECOND)


def test_every_loss_has_operating_points_and_the_other_way_round() -> None:
    assert set(LOSSES) == {"bce", *LOSS_POINTS}


def slow_losses(
    batches: list[tuple[np.ndarray, np.ndarray, np.ndarray]], alpha: float
) -> list[np.ndarray]:
    """The rule label by label: (logits, states, recordings) of every batch to its losses."""
    said: dict[tuple[int, int], float] = {}
    found = []
    for logits, states, recordings in batches:
        outputs = 1 / (1 + np.exp(-logits))
        losses = np.empty_like(logits)
        for example, column in np.ndindex(logits.shape):
            p, y = outputs[example, column], float(states[example, column] > 0)
            loss = -y * np.log(p) - (1 - y) * np.log(1 - p)
            m = said.get((recordings[example], column))
            if m is not None and states[example, column] == 0:
                loss += alpha * (-m * np.log(p) - (1 - m) * np.log(1 - p))
            losses[example, column] = loss
        for recording in set(recordings) - {-1}:
            for column in range(logits.shape[1]):
                now = outputs[recordings == recording, column].mean()
                before = said.get((recording, column), now)
                said[recording, column] = before + RECORDING_RATE * (now - before)
        found.append(losses)
    return found


def batches_of(seed: int, n_batches: int = 4) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [
        (random.normal(0, 2, (6, 3)), random.integers(-1, 2, (6, 3)), random.integers(-1, 3, 6))
        for _ in range(n_batches)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_clips_of_a_recording_are_drawn_to_what_was_said_of_it(seed: int) -> None:
    batches = batches_of(seed)
    loss = RecordingConsistency(0.7)
    for (logits, states, recordings), expected in zip(
        batches, slow_losses(batches, 0.7), strict=True
    ):
        own = torch.from_numpy(logits).unsqueeze(0)
        found = loss(own, told(states, recordings), FIRST)
        np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-5)


def test_what_was_said_of_recordings_survives_a_checkpoint() -> None:
    labels = LabelSet.from_dense(np.zeros((6, 3), int))
    told_both = (LabelTreatment(loss="consistency"), LabelTreatment(loss="consistency", point=2.0))
    recordings = np.array([0, 0, 1, 1, -1, -1])
    treated = TargetProvider(labels, tuple(told_both), recordings=recordings)
    targets = treated.targets(np.arange(6))
    logits = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    first = treated.entries(logits, targets, FIRST)
    state = {name: values.clone() for name, values in treated.state().items()}
    assert len(state) == 2
    resumed = treated.with_treatments(told_both)
    resumed.load_state(state)
    second = treated.entries(logits, targets, FIRST)
    assert torch.equal(resumed.entries(logits, targets, FIRST), second)
    assert (second[:, :4] > first[:, :4]).all()
    assert torch.equal(second[:, 4:], first[:, 4:]), "nothing else is of their recordings"
    resumed.load_state({})
    assert torch.equal(resumed.entries(logits, targets, FIRST), first)


def test_recordings_are_part_of_what_a_student_is_told() -> None:
    labels = LabelSet.from_dense(np.zeros((4, 1), int))
    one, other = np.array([0, 0, -1, -1]), np.array([-1, -1, 0, 0])

    def digest(recordings: np.ndarray, loss: str) -> str:
        return TargetProvider(labels, (LabelTreatment(loss=loss),), recordings=recordings).digest

    assert digest(one, "consistency") != digest(other, "consistency")
    assert digest(one, "bce") == digest(other, "bce")
    selected = TargetProvider(labels, (LabelTreatment(),), recordings=one).select(np.array([1, 3]))
    assert selected.targets(np.arange(2)).recordings.tolist() == [0, -1]


def test_consistency_needs_to_know_the_recordings() -> None:
    with pytest.raises(EarmarkError, match="mixup"):
        RecordingConsistency()(torch.zeros(1, 1, 1), told(np.zeros((1, 1)), None), FIRST)
