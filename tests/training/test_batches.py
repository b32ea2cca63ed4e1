from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.config import TrainParams
from earmark.errors import EarmarkError
from earmark.training import EpochOrder, Plan, learning_rate

PER_CLIP = np.array([3, 1, 0, 4])


def epoch(per_clip: np.ndarray, params: TrainParams, number: int = 0, **how) -> list[tuple]:
    clips, which = EpochOrder.draw(per_clip, params, number, **how).part(slice(None))
    return list(zip(clips.tolist(), which.tolist(), strict=True))


def test_an_epoch_takes_every_patch_once() -> None:
    expected = [(clip, patch) for clip, n in enumerate(PER_CLIP) for patch in range(n)]
    assert sorted(epoch(PER_CLIP, TrainParams())) == expected


def test_patches_per_clip_never_repeat_and_change_with_the_epoch() -> None:
    per_clip = np.array([7, 1, 5, 2] * 5)
    params = TrainParams(patches_per_clip=3)
    epochs = [set(epoch(per_clip, params, number)) for number in (0, 1)]
    for drawn in epochs:
        assert len(drawn) == int(np.minimum(per_clip, 3).sum())
        assert all(0 <= patch < per_clip[clip] for clip, patch in drawn)
    assert epochs[0] != epochs[1]


def test_order_depends_on_seed_and_epoch_alone() -> None:
    per_clip = np.full(50, 4)
    first, again = (epoch(per_clip, TrainParams(seed=1), 3) for _ in range(2))
    assert first == again
    assert first != epoch(per_clip, TrainParams(seed=2), 3)
    assert first != epoch(per_clip, TrainParams(seed=1), 4)


def test_a_balanced_epoch_draws_clips_by_their_balance() -> None:
    per_clip = np.array([4, 1, 0, 40])
    balance = np.array([0.5, 0.2, 0.2, 0.1])
    drawn = [
        pair
        for number in range(200)
        for pair in epoch(per_clip, TrainParams(), number, balance=balance)
    ]
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


def test_the_same_steps_for_a_small_and_a_large_set() -> None:
    params = TrainParams(steps=100, batch_patches=10)
    for n_clips in (7, 5_000):
        plan = Plan(params, np.full(n_clips, 2))
        assert plan.n_steps == 100
        assert plan.learning_rate(*divmod(99, plan.steps_per_epoch)) == learning_rate(
            params, 99, 100
        )


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    params = TrainParams(learning_rate=1.0)
    rates = [learning_rate(params, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[4] == max(rates) == 1.0
    assert rates[-1] < 0.001
    assert np.all(np.diff(rates[4:]) <= 0)
    assert learning_rate(TrainParams(schedule="constant", learning_rate=1e-5), 99, 100) == 1e-5
