"""The loops in C against their twins, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plain_resamples
from earmark import native as loops
from earmark.metrics import (
    RESAMPLES_PER_BLOCK,
    resample_blocks,
    resample_weights,
    resampled_auc_and_ap,
)

N_CLIPS, N_CLASSES = 50, 4
BROKEN = {
    "climb_ladders": {
        "weights": (0, lambda block: block.astype(np.uint16)),
        "weights as columns": (0, lambda block: block[:, :32].copy()),
        "clips below 50": (1, lambda clips: clips + 1),
        "clips below 50 ": (1, lambda clips: clips - 50),
        "ends that rise": (2, lambda ends: ends[::-1].copy()),
        "ends that rise up to": (2, lambda ends: ends - 1),
        "three for each step": (3, lambda rungs: rungs - np.array([1, 0, 0, 0])),
        "is_rest_outside": (4, lambda flags: flags[:-1].copy()),
        "totals": (5, lambda totals: totals[:-1].copy()),
        "auc": (6, lambda out: out[:-1].copy()),
        "n_negatives": (9, lambda out: out[:, :-1].copy()),
    },
    "weigh_pairs": {
        "weights": (0, lambda block: block.astype(np.int8)),
        "clips below 50": (1, lambda clips: clips + 1),
        "values": (2, lambda values: values[:-1].copy()),
        "ends that rise": (3, lambda ends: ends[::-1].copy()),
        "sums": (4, lambda out: out[:, ::2]),
        "counts": (5, lambda out: out[:2].copy()),
    },
}


def ladders_of(kind: type[np.unsignedinteger], seed: int) -> list[Any]:
    """Return rungs of every size, empty ones among them, and room for the results."""
    random = np.random.default_rng(seed)
    weights = random.integers(0, 4, (N_CLIPS, RESAMPLES_PER_BLOCK)).astype(kind)
    weights[:, 0] = 0
    n_rungs = 1 + 3 * np.array([0, 1, 5, 9])
    sizes = random.choice([0, 0, 1, 2, 13, 40], n_rungs.sum())
    clips = random.integers(0, N_CLIPS, sizes.sum()).astype(np.int32)
    clips[0] = N_CLIPS - 1
    totals = np.full(RESAMPLES_PER_BLOCK, 10_000, np.uint32)
    out = np.zeros((4, N_CLASSES, RESAMPLES_PER_BLOCK))
    is_outside = np.array([True, False, True, False])
    return [weights, clips, sizes.cumsum(), n_rungs.cumsum(), is_outside, totals, *out]


def pairs_of(kind: type[np.unsignedinteger], seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    weights = random.integers(0, 4, (N_CLIPS, RESAMPLES_PER_BLOCK)).astype(kind)
    sizes = np.array([0, 1, 17, 60])
    clips = random.integers(0, N_CLIPS, sizes.sum()).astype(np.int32)
    clips[0] = N_CLIPS - 1
    out = np.zeros((2, N_CLASSES, RESAMPLES_PER_BLOCK))
    return [weights, clips, random.random(len(clips)), sizes.cumsum(), *out]


CASES = {"climb_ladders": (ladders_of, 4), "weigh_pairs": (pairs_of, 2)}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [np.uint8, np.uint32])
@pytest.mark.parametrize("name", CASES)
def test_loops_equal_their_twins(name, kind, seed):
    make, n_out = CASES[name]
    found, expected = make(kind, seed), make(kind, seed)
    getattr(loops, name)(*found)
    getattr(plain_resamples, name)(*expected)
    for one, other in zip(found[-n_out:], expected[-n_out:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "message"), [(name, message) for name, broken in BROKEN.items() for message in broken]
)
def test_what_does_not_fit_is_refused(name, message):
    place, breaks = BROKEN[name][message]
    given = CASES[name][0](np.uint8, 0)
    given[place] = breaks(given[place])
    with pytest.raises((ValueError, TypeError), match=message.split(" as ")[0].strip()):
        getattr(loops, name)(*given)


@pytest.mark.parametrize("name", CASES)
def test_too_few_arguments_are_refused(name):
    with pytest.raises(TypeError, match="arguments"):
        getattr(loops, name)(*CASES[name][0](np.uint8, 0)[:-1])


def test_no_classes_and_no_pairs_are_nothing():
    block = np.zeros((3, RESAMPLES_PER_BLOCK), np.uint8)
    nothing, ends = np.empty(0, np.int32), np.empty(0, np.int64)
    out = np.empty((0, RESAMPLES_PER_BLOCK))
    loops.weigh_pairs(block, nothing, np.empty(0), ends, out, out.copy())
    totals = np.zeros(RESAMPLES_PER_BLOCK, np.uint32)
    outs = [out.copy() for _ in range(4)]
    loops.climb_ladders(block, nothing, ends, ends, np.empty(0, bool), totals, *outs)


def test_blocks_hold_every_resample_once_as_columns():
    weights = resample_weights(7, 2 * RESAMPLES_PER_BLOCK + 3, seed=1)
    blocks = list(resample_blocks(weights))
    assert [block.dtype for _, block in blocks] == [np.uint8] * 3
    columns = [block[:, : chosen.stop - chosen.start] for chosen, block in blocks]
    np.testing.assert_array_equal(np.concatenate(columns, axis=1), weights.T)
    assert not blocks[-1][1][:, 3:].any()


def test_labels_that_are_neither_take_no_part_however_many():
    """The rest is counted by what is smaller: negatives below all positives, or neither."""
    random = np.random.default_rng(2)
    scores = random.normal(size=(200, 2)).round(1)
    states = np.where(scores > 1, 1, -1)
    states[:, 0][random.random(200) < 0.9] = 0
    states[:, 1][random.random(200) < 0.05] = 0
    weights = resample_weights(200, 3, seed=3)
    found = resampled_auc_and_ap(states, scores, weights, "explicit")
    for i, row in enumerate(weights):
        repeated = np.repeat(states, row, axis=0)
        np.testing.assert_array_equal(found.n_negatives[i], (repeated < 0).sum(axis=0))
