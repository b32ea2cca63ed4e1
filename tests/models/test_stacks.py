from __future__ import annotations

import torch

from earmark.config import ModelParams
from earmark.models import build, n_students, state_of_student, student_of

PROBE = ModelParams(architecture="mlp_probe", n_hidden=8)


def test_one_students_state_is_its_own() -> None:
    network = build(PROBE, 64, 2, n_students=2)
    state = network.state_dict()
    for values in state_of_student(network, state, 1):
        values.zero_()
    first, second = (state_of_student(network, state, student) for student in (0, 1))
    assert len(first) == len(second)
    assert all(not values.any() for values in second)
    assert any(values.any() for values in first)
    assert sum(values.numel() for values in first + second) == sum(
        values.numel() for values in state.values()
    )


def test_one_student_is_a_network_of_its_own() -> None:
    stack = build(PROBE, 64, 2, n_students=2).eval()
    with torch.no_grad():
        for values in state_of_student(stack, stack.state_dict(), 1):
            values += 1
    inputs = torch.randn(2, 96, 64), torch.tensor([96, 50])
    with torch.inference_mode():
        together = stack(*inputs)
        for student in (0, 1):
            alone = student_of(stack, student)
            assert n_students(alone) == 1
            assert torch.allclose(alone(*inputs).view(2, 2), together[student])
