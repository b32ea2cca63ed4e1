"""Networks of any kind, one or a stack of students: built, written and loaded.

A finished network is a folder: ``weights.safetensors``, ``params.json`` and, written last,
``meta.json`` with its classes, the frames that it takes and the digest of its run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from earmark import replicas
from earmark.artefacts import read_json, write_aside, write_json
from earmark.errors import EarmarkError
from earmark.frames import FrameStore
from earmark.models import Network, Probe, build_model, build_probe
from earmark.params import ModelParams, NetworkParams, digest
from earmark.shards import FrameFormat


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
    return network.to(replicas.device())


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


def write_network(
    folder: Path,
    params: NetworkParams,
    network: AnyNetwork,
    class_ids: Sequence[str],
    store: FrameStore,
    run_digest: str,
) -> None:
    """Write a finished network that was trained on a store's frames."""
    weights = {name: value.contiguous() for name, value in network.state_dict().items()}
    with write_aside(folder / "weights.safetensors") as aside:
        save_file(weights, aside)
    write_json(folder / "params.json", params.model_dump(mode="json"))
    meta = {
        "digest": run_digest,
        "class_ids": list(class_ids),
        "n_inputs": store.n_bands,
        "n_students": n_students(network),
        "frames": _kind_of_frames(store.meta),
    }
    write_json(folder / "meta.json", meta)


def load_network(folder: Path, store: FrameStore | None = None) -> AnyNetwork:
    """Load a finished network, ready for scoring.

    ``store`` holds the frames that it is going to score; where they are of another kind than those
    that it was trained on, they are refused.
    """
    try:
        meta = read_json(folder / "meta.json")
        params = ModelParams.model_validate(read_json(folder / "params.json")["model"])
        weights = load_file(folder / "weights.safetensors")
    except FileNotFoundError as error:
        raise EarmarkError(
            f"{folder}: no finished network here ({error.filename} is missing); "
            "train it with `earmark train`"
        ) from None
    if store is not None:
        _check_frames(folder, meta, store)
    network = build(params, meta["n_inputs"], len(meta["class_ids"]), meta["n_students"])
    network.load_state_dict(weights)
    return network.eval()


def n_students(network: AnyNetwork) -> int:
    """Return the number of students in a network."""
    return 1 if isinstance(network, Network) else network.n_students


def _kind_of_frames(frame_format: FrameFormat) -> dict[str, Any]:
    """Return what frames must have in common with those that a network was trained on."""
    names = ("n_bands", "patch_frames", "patch_hop_frames", "front_end")
    return {name: value for name, value in asdict(frame_format).items() if name in names}


def _check_frames(folder: Path, meta: Mapping[str, Any], store: FrameStore) -> None:
    trained_on, given = meta["frames"], _kind_of_frames(store.meta)
    if trained_on == given:
        return
    names = [name for name in given if given[name] != trained_on[name]]
    raise EarmarkError(
        f"{folder}: trained on frames {digest(trained_on)}, but {store.folder} holds frames "
        f"{digest(given)} with other {', '.join(names)}; make them alike with `earmark features "
        "WORK --recipe RECIPE`, or train again with `earmark train WORK`"
    )
