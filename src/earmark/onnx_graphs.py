"""Networks as ONNX graphs: to use them elsewhere, and to score faster on a CPU.

A graph holds the front end or not, takes any number of patches, clips or samples, and carries the
classes in its metadata. ONNX Runtime computes the convolutional networks about twice as fast as
torch does on one core; the seconds that making a graph takes pay off from some thousand patches.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from earmark.artefacts import write_aside
from earmark.errors import EarmarkError, load_library
from earmark.features import log_mel_module
from earmark.model_card import ModelCard
from earmark.models import Network, Probe
from earmark.params import FrontEndParams

TOLERANCE = 1e-4
"""How far a graph's logits may be from torch's."""

WORK_WORTH_A_GRAPH = 2e10
"""Parameters x patches from which making a graph pays off: 5,400 patches of MobileNetV1, 810 of
ResNet-50."""

Forward = Callable[..., NDArray[np.float32]]
"""A network's forward pass: tensors to logits."""


class WaveformNetwork(nn.Module):
    """The front end and a convolutional network in one: waveforms to logits."""

    def __init__(self, network: Network, front_end: FrontEndParams) -> None:
        super().__init__()
        self.front_end, self.network = log_mel_module(front_end), network
        self._patch = (front_end.patch_frames, front_end.patch_hop_frames)

    def forward(self, waveforms: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [clip, patch, class] of waveforms [clip, sample], and [clip, class].

        The logit of a clip is that of its mean output over patches, as in :mod:`earmark.scoring`.
        """
        patches = self.front_end(waveforms).unfold(1, *self._patch)  # [clip, patch, band, frame]
        logits = self.network(patches.transpose(2, 3).flatten(0, 1))
        logits = logits.unflatten(0, (patches.shape[0], patches.shape[1]))
        present = torch.logsumexp(functional.logsigmoid(logits), dim=1)
        absent = torch.logsumexp(functional.logsigmoid(-logits), dim=1)
        return logits, present - absent


class _LoneProbe(nn.Module):
    """A probe that is no stack: logits without the axis of students."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def forward(self, frames: Tensor, n_frames: Tensor) -> Tensor:
        logits: Tensor = self.probe(frames, n_frames).squeeze(0)
        return logits


def write_onnx(
    path: str | Path, network: Network | Probe, card: ModelCard, *, with_front_end: bool
) -> float:
    """Write a network as an ONNX file; return how far its logits are from torch's, at most.

    | network | inputs | outputs |
    |---|---|---|
    | convolutional, front end | waveforms [clip, sample] | logits [clip, patch, class], clip_logits |
    | convolutional | patches [patch, frame, band] | logits [patch, class] |
    | probe | frames [clip, frame, feature], n_frames int64 [clip] | logits [clip, class] |

    All are float32 but for the number of frames; a stack of probes has the student as first axis
    of its logits. The metadata say what goes in and which classes come out. A graph that does not
    agree with torch to 1e-4 is not written.
    """
    module = _whole(network, card, with_front_end)
    inputs = _sample_inputs(network, card, with_front_end)
    graph = make_graph(module, inputs, _metadata(card, inputs))
    difference = _largest_difference(module, graph, inputs)
    if not difference <= TOLERANCE:
        raise EarmarkError(
            f"{path}: the graph's logits are {difference:.1e} from torch's, more than "
            f"{TOLERANCE:g}; not written. Try another version of torch or onnxruntime"
        )
    with write_aside(path) as aside:
        aside.write_bytes(graph)
    return difference


def make_graph(
    module: nn.Module, inputs: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> bytes:
    """Return a module as an ONNX graph whose inputs may have any size in their first axes.

    All axes of an input but its last are free, and so is the last of waveforms.
    """
    load_library("onnxscript", "writing an ONNX graph", "onnx")
    free = torch.export.Dim.DYNAMIC
    n_free = {name: value.ndim - (name in ("patches", "frames")) for name, value in inputs.items()}
    n_free |= {"patches": 1}
    shapes = tuple(dict.fromkeys(range(n_free[name]), free) for name in inputs)
    outputs = ["logits", "clip_logits"] if isinstance(module, WaveformNetwork) else ["logits"]
    with warnings.catch_warnings(), _quiet("torch.onnx"):
        warnings.simplefilter("ignore")  # the exporter's, about torch's own future
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update(metadata)
    graph: bytes = program.model_proto.SerializeToString()
    return graph
