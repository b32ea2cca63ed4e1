"""Networks of any kind as one: a convolutional network, a probe, or a stack of students.

Students of a stack see the same batches. Probes stand side by side in the same tensors; of
convolutional networks a stack holds several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from earmark.networks.architectures import Network, Probe, build_model, build_probe
from earmark.networks.device import own_device
from earmark.runs import ModelParams


class Stack(nn.Module):
    """Convolutional students side by side: they share every batch, and nothing else.

    ``forward`` takes patches [patch, frame, band] and returns logits [student, patch, class].
    """

    def __init__(self, students: Sequence[Network]) -> None:
        super().__init__()
        self.students = nn.ModuleList(students)
        self.n_students, self.n_classes = len(students), students[0].n_classes

    def forward(self, patches: Tensor) -> Tensor:
        """Return logits [student, patch, class]."""
        return torch.stack([student(patches) for student in self.students])


AnyNetwork = Network | Probe | Stack


def build(
    params: ModelParams, n_inputs: int, n_classes: int, n_students: int = 1, seed: int = 0
) -> AnyNetwork:
    """Build a network, or a stack of students that begin with the same weights, on the device.

    ``n_inputs`` is the width of a frame, which only a probe needs to know.
    """
    network: AnyNetwork
    if params.is_probe:
        network = build_probe(params, n_inputs, n_classes, n_students, seed)
    elif n_students == 1:
        network = build_model(params, n_classes, seed)
    else:
        network = Stack([build_model(params, n_classes, seed) for _ in range(n_students)])
    return network.to(own_device())


def parts_of(network: AnyNetwork) -> list[tuple[slice, Network | Probe]]:
    """Return what computes at once: the students of a stack one by one, or the whole network.

    Each comes with its place among the students.
    """
    if not isinstance(network, Stack):
        return [(slice(0, n_students(network)), network)]
    students = cast(Sequence[Network], network.students)
    return [(slice(place, place + 1), one) for place, one in enumerate(students)]


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training changes."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def state_of_student(
    network: AnyNetwork, state: Mapping[str, Tensor], student: int
) -> list[Tensor]:
    """Return one student's part of a network's state, as views."""
    if isinstance(network, Probe):
        return [values[student] for values in state.values()]
    prefix = f"students.{student}." if isinstance(network, Stack) else ""
    return [values for name, values in state.items() if name.startswith(prefix)]


def n_students(network: AnyNetwork) -> int:
    """Return the number of students in a network."""
    return 1 if isinstance(network, Network) else network.n_students


def student_of(network: AnyNetwork, student: int) -> AnyNetwork:
    """Return one student of a stack as a network of its own, with the very same weights."""
    if isinstance(network, Stack):
        return cast(Network, network.students[student])
    return network.student(student) if isinstance(network, Probe) else network
