from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.config import TrainParams
from earmark.errors import EarmarkError
from earmark.training import Plan

PER_CLIP = np.array([3, 1, 0, 4])


def epoch(per_clip: np.ndarray, number: int = 0, balance=None, **params) -> list[tuple]:
    batches = Plan(TrainParams(batch_patches=7, epochs=200, **params), per_clip, balance).batches(
        number
    )
    return [
        pair
        for batch in batches
        for pair in zip(batch.clips.tolist(), batch.which.tolist(), strict=True)
    ]


def test_an_epoch_takes_every_patch_once() -> None:
    expected = [(clip, patch) for clip, n in enumerate(PER_CLIP) for patch in range(n)]
    assert sorted(epoch(PER_CLIP)) == expected


def test_patches_per_clip_never_repeat_and_change_with_the_epoch() -> None:
    per_clip = np.array([7, 1, 5, 2] * 5)
    epochs = [set(epoch(per_clip, number, patches_per_clip=3)) for number in (0, 1)]
    for drawn in epochs:
        assert len(drawn) == int(np.minimum(per_clip, 3).sum())
        assert all(0 <= patch < per_clip[clip] for clip, patch in drawn)
    assert epochs[0] != epochs[1]


def test_order_depends_on_seed_and_epoch_alone() -> None:
    per_clip = np.full(50, 4)
    first, again = (epoch(per_clip, 3, seed=1) for _ in range(2))
    assert first == again
    assert first != epoch(per_clip, 3, seed=2)
    assert first != epoch(per_clip, 4, seed=1)


def test_a_balanced_epoch_draws_clips_by_their_balance() -> None:
    per_clip = np.array([4, 1, 0, 40])
    balance = np.array([0.5, 0.2, 0.2, 0.1])
    drawn = [pair for number in range(200) for pair in epoch(per_clip, number, balance)]
    shares = np.bincount([clip for clip, _ in drawn], minlength=4) / len(drawn)
    expected = np.array([0.5, 0.2, 0, 0.1]) / 0.8  # a clip without a patch cannot be drawn
    assert shares == pytest.approx(expected, abs=0.02)
    assert len(drawn) == 200 * per_clip.sum()
    assert {patch for clip, patch in drawn if clip == 3} == set(range(40))


@given(
    per_clip=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    size=st.integers(1, 9),
    n_steps=st.none() | st.integers(1, 30),
)
def test_batches_of_a_plan_add_up(per_clip: list[int], size: int, n_steps: int | None) -> None:
    length = {"epochs": 2} if n_steps is None else {"steps": n_steps}
    params = TrainParams(batch_patches=size, **length)
    if not sum(per_clip):
        with pytest.raises(EarmarkError, match="not one patch"):
            Plan(params, np.array(per_clip))
        return
    plan = Plan(params, np.array(per_clip))
    batches = [batch for number in range(plan.n_epochs) for batch in plan.batches(number)]
    assert len(batches) == plan.n_steps == (n_steps or plan.n_steps)
    assert sum(len(batch.clips) for batch in batches) == plan.n_examples
    n_before = 0
    for batch in batches:
        assert plan.n_examples_before(batch.epoch, batch.step) == n_before
        n_before += len(batch.clips)
    resumed = list(plan.batches(0, first_step=1))
    assert all(
        np.array_equal(one.clips, two.clips) and one.step == two.step
        for one, two in zip(resumed, batches[1 : len(resumed) + 1], strict=True)
    )


def rates(n_clips: int, **params) -> list[float]:
    plan = Plan(TrainParams(batch_patches=10, steps=100, **params), np.full(n_clips, 2))
    assert plan.n_steps == 100
    return [plan.learning_rate(*divmod(step, plan.steps_per_epoch)) for step in range(100)]


def test_the_learning_rate_rises_then_falls_to_nothing_in_small_and_large_sets() -> None:
    found = rates(7, learning_rate=1.0)
    assert found == rates(5_000, learning_rate=1.0)
    assert found[0] == pytest.approx(0.2)
    assert found[4] == max(found) == 1.0
    assert found[-1] < 0.001
    assert np.all(np.diff(found[4:]) <= 0)
    assert set(rates(7, schedule="constant", learning_rate=1e-5)) == {1e-5}
