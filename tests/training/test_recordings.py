from __future__ import annotations

import numpy as np
import pytest
import torch

from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.losses import BatchTargets
from earmark.training import RECORDING_RATE, LabelTreatment, RecordingConsistency, TargetProvider

EPOCH = 0


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


def told(states: np.ndarray, recordings: np.ndarray | None) -> BatchTargets:
    given = torch.from_numpy(states)
    target = (given > 0).double().unsqueeze(0)
    known = None if recordings is None else torch.from_numpy(recordings)
    return BatchTargets(target, torch.ones_like(target), given == 0, known)


@pytest.mark.parametrize("seed", range(5))
def test_clips_of_a_recording_are_drawn_to_what_was_said_of_it(seed: int) -> None:
    batches = batches_of(seed)
    loss = RecordingConsistency(0.7)
    for (logits, states, recordings), expected in zip(
        batches, slow_losses(batches, 0.7), strict=True
    ):
        own = torch.from_numpy(logits).unsqueeze(0)
        found = loss(own, told(states, recordings), EPOCH)
        np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-5)


def test_what_was_said_of_recordings_survives_a_checkpoint() -> None:
    labels = LabelSet.from_dense(np.zeros((6, 3), int))
    told_both = (LabelTreatment(loss="consistency"), LabelTreatment(loss="consistency", point=2.0))
    recordings = np.array([0, 0, 1, 1, -1, -1])
    treated = TargetProvider(labels, tuple(told_both), recordings=recordings)
    targets = treated.targets(np.arange(6))
    logits = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    first = treated.entries(logits, targets, EPOCH)
    state = {name: values.clone() for name, values in treated.state().items()}
    assert len(state) == 2
    resumed = treated.with_treatments(told_both)
    resumed.load_state(state)
    second = treated.entries(logits, targets, EPOCH)
    assert torch.equal(resumed.entries(logits, targets, EPOCH), second)
    assert (second[:, :4] > first[:, :4]).all()
    assert torch.equal(second[:, 4:], first[:, 4:]), "nothing else is of their recordings"
    resumed.load_state({})
    assert torch.equal(resumed.entries(logits, targets, EPOCH), first)


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
        RecordingConsistency()(torch.zeros(1, 1, 1), told(np.zeros((1, 1)), None), EPOCH)
