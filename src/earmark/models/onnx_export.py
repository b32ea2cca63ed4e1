"""Networks as ONNX graphs, to use them elsewhere.

A graph holds the front end or not, takes any number of patches, clips or samples, and carries the
classes in its metadata.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from earmark.audio import log_mel_module
from earmark.config import FrontEndParams
from earmark.errors import EarmarkError, load_library
from earmark.models.architectures import AnyNetwork, Network, Probe
from earmark.models.model_card import ModelCard
from earmark.storage import write_aside

TOLERANCE = 1e-3
"""How far a graph's logits may be from torch's. Rounding to float32 moves those of a full-width
ResNet-50 by 1e-4 on either side; MobileNetV1's are 4e-5 apart."""

_FREE_AXES = {
    "waveforms": ("clips", "samples"),
    "patches": ("patches",),
    "frames": ("clips", "frames"),
    "n_frames": ("clips",),
}
"""The axes of each input that may have any length; the axes after them are fixed."""


class _WaveformNetwork(nn.Module):
    """The front end and a convolutional network in one."""

    def __init__(self, network: Network, front_end: FrontEndParams) -> None:
        super().__init__()
        self.front_end, self.network = log_mel_module(front_end), network
        self._patch = (front_end.patch_frames, front_end.patch_hop_frames)

    def forward(self, waveforms: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [clip, patch, class] of waveforms [clip, sample], and [clip, class].

        The logit of a clip is that of its mean output over patches, as in
        :mod:`earmark.models.clip_scores`.
        """
        patches = self.front_end(waveforms).unfold(1, *self._patch)  # [clip, patch, band, frame]
        logits = self.network(patches.transpose(2, 3).flatten(0, 1))
        logits = logits.unflatten(-2, (patches.shape[0], patches.shape[1]))
        # Not logsigmoid, which a graph computes as log(sigmoid): -inf from -104 on.
        log_rest = torch.log(1 + torch.exp(-logits.abs()))
        present = torch.logsumexp(logits.clamp(max=0) - log_rest, dim=-2)
        absent = torch.logsumexp((-logits).clamp(max=0) - log_rest, dim=-2)
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
    path: str | Path, network: AnyNetwork, card: ModelCard, *, with_front_end: bool
) -> float:
    """Write a network as an ONNX file; return how far its logits are from torch's, at most.

    - convolutional with its front end: ``waveforms`` [clip, sample] to ``logits`` [clip, patch,
      class] and ``clip_logits`` [clip, class]
    - convolutional without: ``patches`` [patch, frame, band] to ``logits`` [patch, class]
    - a probe (``with_front_end`` means nothing to it): ``frames`` [clip, frame, feature] and
      ``n_frames`` int64 [clip] to ``logits`` [clip, class]

    A stack's outputs have the student as first axis. All else is float32. The metadata name the
    classes and the sample rate. A graph that is further from torch than :data:`TOLERANCE` (of a
    logit above 1: than that share of it) is not written.
    """
    module = _whole(network, card, with_front_end)
    inputs = _sample_inputs(module, card)
    graph = make_graph(module, inputs, _metadata(card, module))
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
    module: nn.Module, inputs: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return a module as an ONNX graph in which the axes of ``_FREE_AXES`` have any size.

    ``inputs`` are examples by name, no axis of length 0 or 1: the exporter would fix those.
    """
    load_library("onnxscript", "making an ONNX graph", "onnx")
    shapes = tuple(dict(enumerate(_FREE_AXES[name])) for name in inputs)
    has_clips = isinstance(module, _WaveformNetwork)
    with warnings.catch_warnings(), _quiet("torch.onnx"):
        warnings.simplefilter("ignore")  # the exporter's, about torch's own future
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=["logits", "clip_logits"] if has_clips else ["logits"],
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update(metadata or {})
    graph: bytes = program.model_proto.SerializeToString()
    return graph


def open_session(model: str | Path | bytes, n_threads: int | None = None) -> Any:
    """Open an ONNX file, or a graph in memory, in ONNX Runtime on the CPU.

    It uses as many threads as torch unless told. What is no ONNX model raises EarmarkError.
    """
    runtime = load_library("onnxruntime", "running an ONNX model", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = n_threads or torch.get_num_threads()
    options.log_severity_level = 3  # errors: warnings are about the graphs of others
    # Threads that wait must not spin: other processes share the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = model if isinstance(model, bytes) else str(model)
    try:
        return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a family of errors of its own, and no common base
        name = "the graph" if isinstance(model, bytes) else model
        reason = str(error).splitlines()[0]
        raise EarmarkError(
            f"{name}: ONNX Runtime cannot open it ({reason}); damaged, or not an ONNX model?"
        ) from None


def _whole(network: AnyNetwork, card: ModelCard, with_front_end: bool) -> nn.Module:
    """Return the module that a file is to hold."""
    on_cpu = copy.deepcopy(network).cpu().eval()
    if isinstance(on_cpu, Probe):
        return _LoneProbe(on_cpu) if on_cpu.n_students == 1 else on_cpu
    if not with_front_end:
        return on_cpu
    if card.front_end is None:
        raise EarmarkError(
            f"network {card.network.name!r} was trained on frames from elsewhere, so there is no "
            "front end to put before it; export it with --no-front-end"
        )
    return _WaveformNetwork(on_cpu, card.front_end).eval()


def _sample_inputs(module: nn.Module, card: ModelCard) -> dict[str, Tensor]:
    """Return inputs by name, random but always the same: to trace a module, and to check it."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(module, _WaveformNetwork) and card.front_end is not None:
        n_samples = 2 * card.front_end.patch_samples + 1
        return {"waveforms": torch.rand(2, n_samples, generator=generator) - 0.5}
    if isinstance(module, Probe | _LoneProbe):
        frames = torch.randn(2, 5, card.n_inputs, generator=generator)
        return {"frames": frames, "n_frames": torch.tensor([5, 3])}
    shape = (2, card.patch_frames, card.n_inputs)
    return {"patches": torch.randn(shape, generator=generator)}


def _metadata(card: ModelCard, module: nn.Module) -> dict[str, str]:
    """Return what a graph says of itself: texts, so lists are JSON."""
    rate = {}
    if isinstance(module, _WaveformNetwork) and card.front_end is not None:
        rate = {"sample_rate_hz": str(card.front_end.sample_rate_hz)}
    return {
        "class_ids": json.dumps(card.class_ids),
        "class_names": json.dumps(card.class_names, ensure_ascii=False),
        "digest": card.digest,
        **rate,
    }


def _largest_difference(module: nn.Module, graph: bytes, inputs: Mapping[str, Tensor]) -> float:
    with torch.inference_mode():
        expected = module(*inputs.values())
    expected = expected if isinstance(expected, tuple) else (expected,)
    outputs = open_session(graph).run(None, {name: value.numpy() for name, value in inputs.items()})
    differences = [
        np.abs(output - logits.numpy()) / np.maximum(np.abs(logits.numpy()), 1)
        for logits, output in zip(expected, outputs, strict=True)
    ]
    return float(np.max([one.max() for one in differences]))


@contextmanager
def _quiet(logger_name: str) -> Iterator[None]:
    """Keep a library's warnings about its own business from the user for a while."""
    logger = logging.getLogger(logger_name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
