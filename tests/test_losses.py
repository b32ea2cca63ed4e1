from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.losses import ignored, masked_bce, weighted_bce


def slow_masked_bce(logits: np.ndarray, states: np.ndarray, ignored: np.ndarray) -> float:
    """Equations (1) and (2) with loops: the mask multiplies the negative term."""
    total = 0.0
    for z_row, y_row, ignored_row in zip(logits, states, ignored, strict=True):
        for z, y, is_ignored in zip(z_row, y_row, ignored_row, strict=True):
            p = 1 / (1 + math.exp(-z))
            mask = 0 if is_ignored else 1
            total -= math.log(p) if y > 0 else mask * math.log(1 - p)
    return total / len(logits)


@given(st.integers(0, 2**32 - 1))
def test_it_is_the_papers_equation(seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2, (5, 4))
    states = generator.integers(-1, 2, (5, 4))
    ignored = generator.random((5, 4)) < 0.4
    loss = masked_bce(torch.tensor(logits), torch.tensor(states), torch.tensor(ignored))
    assert loss.item() == pytest.approx(slow_masked_bce(logits, states, ignored), rel=1e-9)


def test_a_hand_worked_case() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), 0.0]])  # p = 1/2, 3/4, 1/2
    states = torch.tensor([[1, 0, -1]])
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    second = torch.tensor([[False, True, False]])
    assert masked_bce(logits, states, nothing).item() == pytest.approx(math.log(2 * 4 * 2))
    assert masked_bce(logits, states, second).item() == pytest.approx(math.log(2 * 2))
    mean = masked_bce(logits, states, second, reduction="mean_kept")
    assert mean.item() == pytest.approx(math.log(2))


def test_a_positive_is_never_ignored() -> None:
    everything = torch.ones(1, 1, dtype=torch.bool)
    loss = masked_bce(torch.zeros(1, 1), torch.ones(1, 1), everything)
    assert loss.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("reduction", ["sum", "mean_kept"])
def test_a_batch_with_everything_ignored_teaches_nothing(reduction: str) -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = masked_bce(logits, torch.zeros(4, 3), torch.ones(4, 3, dtype=torch.bool), reduction)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros(4, 3))


def test_an_ignored_label_has_no_gradient_and_the_others_keep_theirs() -> None:
    states = torch.zeros(1, 2)
    ignored = torch.tensor([[True, False]])
    logits = torch.tensor([[5.0, 5.0]], requires_grad=True)
    masked_bce(logits, states, ignored).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] == 0
    assert logits.grad[0, 1].item() == pytest.approx(1 / (1 + math.exp(-5)))


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(EarmarkError, match=r"\(2, 3\).*\(2, 4\)"):
        masked_bce(torch.zeros(2, 3), torch.zeros(2, 4))


@pytest.mark.parametrize("reduction", ["sum", "mean_kept"])
def test_students_in_a_stack_have_the_gradients_that_they_have_alone(reduction: str) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 5, generator=generator)
    target = (torch.rand(4, 5, generator=generator) < 0.3).float()
    weight = (torch.rand(3, 4, 5, generator=generator) < 0.7).float()
    stack = logits.clone().requires_grad_()
    weighted_bce(stack, target.expand_as(stack), weight, reduction).backward()
    for student in range(3):
        alone = logits[student].clone().requires_grad_()
        weighted_bce(alone, target, weight[student], reduction).backward()
        assert torch.allclose(stack.grad[student], alone.grad, atol=1e-7)


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float16, np.float32, np.float64]))
def test_arrays_and_tensors_have_one_mask(seed: int, dtype: type[np.floating]) -> None:
    generator = np.random.default_rng(seed)
    states = generator.integers(-1, 2, (6, 4)).astype(np.int8)
    logits = generator.normal(0, 1, (6, 4)).round(1).astype(dtype)  # some tie with a threshold
    logits[generator.random((6, 4)) < 0.2] = np.nan
    row = np.append(generator.normal(0, 1, 2).round(1), [np.inf, -np.inf]).astype(np.float32)
    flags = ignored(states, logits, row)
    slow = [
        [s == 0 and np.float32(z) > t for s, z, t in zip(*both, row, strict=True)]
        for both in zip(states, logits, strict=True)
    ]
    assert flags.tolist() == slow
    assert flags.dtype == bool
    tensors = map(torch.from_numpy, (states, logits, row))
    assert ignored(*tensors).tolist() == slow


def test_the_mask_needs_no_torch() -> None:
    code = (
        "import sys, numpy, earmark; "
        "earmark.ignored(numpy.zeros((1, 1)), numpy.ones((1, 1)), numpy.zeros(1)); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class TestIgnored:
    def test_only_implicit_labels_above_the_threshold(self) -> None:
        states = np.array([[0, 0, 1], [0, -1, 0]], np.int8)
        scores = np.array([[2.0, 1.0, 9.0], [1.0, 9.0, np.nan]])
        row = np.array([1.0, 0.5, 0.0], np.float32)
        assert ignored(states, scores, row).tolist() == [[True, True, False], [False] * 3]

    def test_shapes_must_agree(self) -> None:
        with pytest.raises(EarmarkError, match="shape"):
            ignored(np.zeros((2, 3), np.int8), np.zeros((3, 2)), np.zeros(3, np.float32))


def test_arrays_and_tensors_may_be_mixed() -> None:
    states, logits = np.array([[0, 0, 1]]), np.array([[2.0, 1.0, 2.0]], np.float32)
    edges = np.ones(3, np.float32)
    expected = [[True, False, False]]
    for mixed in [
        (torch.tensor(states), torch.tensor(logits), torch.tensor(edges)),
        (states, torch.tensor(logits), edges),
        (torch.tensor(states), logits, edges),
        (states, torch.tensor(logits, dtype=torch.bfloat16), edges),
    ]:
        found = ignored(*mixed)
        assert isinstance(found, torch.Tensor)
        assert found.tolist() == expected
    assert isinstance(ignored(states, logits, edges), np.ndarray)


def test_the_loss_takes_the_arrays_that_labels_and_masks_are() -> None:
    states, mask = np.array([[1, 0]], np.int8), np.array([[False, True]])
    logits = torch.zeros(1, 2, requires_grad=True)
    found = masked_bce(logits, states, mask)
    torch.testing.assert_close(
        found, masked_bce(logits, torch.from_numpy(states), torch.from_numpy(mask))
    )
    found.backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-0.5, 0.0]]
