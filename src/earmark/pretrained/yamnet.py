"""YAMNet as a pretrained network: waveforms to embeddings [patch, 1024] and logits [patch, 521].

On a GPU torch computes it; on a CPU ONNX Runtime does, half as fast again as torch and as TFLite's
own interpreter (benchmarks/embedding.py). Its graph is written down directly: torch's exporter
takes ten seconds for what is a chain of convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from earmark.audio import YAMNET, log_mel, patches
from earmark.errors import EarmarkError, load_library
from earmark.networks import CACHED_PATCHES, Network, SameConv, open_session, own_device
from earmark.pretrained.catalogue import DEFAULT_TEACHER, kept_weights
from earmark.pretrained.class_maps import read_yamnet_classes
from earmark.pretrained.network import Heard, NetworkFacts
from earmark.pretrained.yamnet_weights import N_FEATURES, N_OUTPUTS, read_yamnet
from earmark.runs import PretrainedParams, digest, file_sha256

_OPSET, _IR_VERSION = 17, 8
"""Of ONNX: old enough for every runtime of the last years."""

_GPU_PATCHES = 512

_Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


class YamnetNetwork:
    """YAMNet, ready to listen."""

    def __init__(self, path: Path) -> None:
        self._network = read_yamnet(path)
        is_on_gpu = own_device().type != "cpu"
        self._session = None if is_on_gpu else open_session(_graph(self._network))
        self._network.to(own_device())
        names = read_yamnet_classes()
        self.facts = NetworkFacts(
            name=DEFAULT_TEACHER,
            # GPU and CPU round differently, so what they hear is told apart.
            digest=digest("yamnet", file_sha256(path), "gpu" if is_on_gpu else "cpu"),
            sample_rate_hz=YAMNET.sample_rate_hz,
            frame_seconds=YAMNET.patch_frames * YAMNET.hop_seconds,
            hop_seconds=YAMNET.patch_hop_frames * YAMNET.hop_seconds,
            n_features=N_FEATURES,
            output_names=names.names,
            output_ids=names.ids,
            n_outputs=N_OUTPUTS,
        )

    def hear(self, waveforms: Sequence[NDArray[np.float32]]) -> list[Heard]:
        """Listen to waveforms [sample] at 16 kHz."""
        return [Heard(*self._hear(patches(log_mel(waveform)))) for waveform in waveforms]

    def _hear(self, image: NDArray[np.float32]) -> _Pair:
        """Return embeddings and logits of the patches [patch, frame, band] of one clip."""
        n_most = CACHED_PATCHES // 2 if self._session is not None else _GPU_PATCHES
        # Even parts: a few patches that are left over take longer than their share.
        parts = [self._run(part) for part in np.array_split(image, -(-len(image) // n_most))]
        embeddings, logits = zip(*parts, strict=True)
        return np.concatenate(embeddings), np.concatenate(logits)

    def _run(self, image: NDArray[np.float32]) -> _Pair:
        if self._session is not None:
            given = {"patches": np.ascontiguousarray(image)}
            embeddings, logits = self._session.run(None, given)
            return embeddings, logits
        with torch.inference_mode():
            features = self._network.embed(torch.from_numpy(image.copy()).to(own_device()))
            logits = self._network.head(features)
            return features.float().cpu().numpy(), logits.float().cpu().numpy()


def open_yamnet(params: PretrainedParams, class_names: Sequence[str] = ()) -> YamnetNetwork:
    """Open YAMNet from the cache, or from a file; nothing is left to be said of it."""
    del class_names
    plain = PretrainedParams(network=params.network, prompt=params.prompt)
    said = [name for name, value in params if value != getattr(plain, name)]
    if said:
        raise EarmarkError(
            f"{params.network}: what YAMNet takes and gives is known; leave {said[0]} out, or give "
            "another network"
        )
    is_name = params.network == DEFAULT_TEACHER
    return YamnetNetwork(kept_weights(DEFAULT_TEACHER).path if is_name else Path(params.network))


def _folded(network: Network) -> Iterator[tuple[SameConv, _Pair, float | None]]:
    """Yield each convolution with kernel and bias that normalise too, and where it saturates."""
    modules: list[Any] = list(network.body)
    for place in range(0, len(modules), 3):
        convolution, norm, relu = modules[place : place + 3]
        fused = nn.utils.fuse_conv_bn_eval(convolution, norm)
        values = fused.weight.detach().numpy(), fused.bias.detach().numpy()
        yield convolution, values, getattr(relu, "max_val", None)


class _GraphWriter:
    """The nodes and weights of an ONNX graph, written one after the other."""

    def __init__(self) -> None:
        onnx = load_library("onnx", "listening with YAMNet", "onnx")
        self._helper, self._numbers = onnx.helper, onnx.numpy_helper
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, given: str, found: str, *weights: Any, **options: Any) -> str:
        """Add a node with its weights; return the name of what it gives."""
        names = [f"{found}.{place}" for place in range(len(weights))]
        self.weights += [
            self._numbers.from_array(np.asarray(values), name)
            for values, name in zip(weights, names, strict=True)
        ]
        self.nodes.append(self._helper.make_node(kind, [given, *names], [found], **options))
        return found

    def model(self, given: dict[str, list[Any]], found: dict[str, list[Any]]) -> bytes:
        """Return the graph with its inputs and outputs, given by name and axes."""
        inputs, outputs = (
            [self._helper.make_tensor_value_info(name, 1, axes) for name, axes in ends.items()]
            for ends in (given, found)  # 1: float32
        )
        graph = self._helper.make_graph(self.nodes, "yamnet", inputs, outputs, self.weights)
        opset = [self._helper.make_opsetid("", _OPSET)]
        made: bytes = self._helper.make_model(
            graph, opset_imports=opset, ir_version=_IR_VERSION
        ).SerializeToString()
        return made


def _graph(network: Network) -> bytes:
    """Return a MobileNetV1 as an ONNX graph: ``patches`` to ``embeddings`` and ``logits``."""
    writer = _GraphWriter()
    image = writer.add("Unsqueeze", "patches", "image", np.array([1]))
    for place, (convolution, weights, limit) in enumerate(_folded(network)):
        options: dict[str, Any] = {
            "kernel_shape": list(convolution.kernel_size),
            "strides": list(convolution.stride),
            "group": convolution.groups,
            "auto_pad": "SAME_UPPER",
        }
        image = writer.add("Conv", image, f"conv{place}", *weights, **options)
        limits = () if limit is None else (np.float32(0), np.float32(limit))
        image = writer.add("Clip" if limits else "Relu", image, f"relu{place}", *limits)
    pooled = writer.add("GlobalAveragePool", image, "pooled")
    writer.add("Flatten", pooled, "embeddings")
    head = (network.head.weight.detach().numpy(), network.head.bias.detach().numpy())
    writer.add("Gemm", "embeddings", "logits", *head, transB=1)
    return writer.model(
        {"patches": ["n", YAMNET.patch_frames, YAMNET.n_bands]},
        {"embeddings": ["n", N_FEATURES], "logits": ["n", N_OUTPUTS]},
    )
