"""Files of weights as Google publishes YAMNet's, but made up; and teachers' caches that hold them.

The network has YAMNet's full size and random weights, scaled such that sound gets through. Its last
layer can be taught to tell a few sounds apart, so that zero-shot scores know something.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tflite
import torch
from torch import nn

from earmark.audio import log_mel, patches
from earmark.config import ModelParams
from earmark.models import Network, SameConv, build_model, pretrained
from earmark.models.pretrained import (
    CACHE_VARIABLE,
    KERAS_MODEL,
    N_OUTPUTS,
    KeptTeacher,
    PublishedFile,
    Teacher,
    catalogue,
    embedding,
    keras_layers,
    network,
)
from made_up_tflite import Operator, Tensor, write_tflite

EPSILON = 1e-4
"""Of YAMNet's batch normalisation."""


def made_up_network(seed: int = 0, model: ModelParams = KERAS_MODEL) -> Network:
    """Return YAMNet with weights at random, normalised by what it makes of some sounds."""
    network = build_model(model, N_OUTPUTS, seed)
    generator = torch.Generator().manual_seed(seed)
    norms = [one for one in network.body if isinstance(one, nn.BatchNorm2d)]
    seen = np.concatenate([patches(log_mel(one)) for one in _tones_in_noise(seed)])
    with torch.no_grad():
        for norm in norms:
            norm.momentum = None  # the statistics become those of all that is seen
            norm.bias.copy_(0.3 * torch.randn(norm.bias.shape, generator=generator))
        network.train()(torch.from_numpy(seen))
        network.head.bias.copy_(torch.randn(N_OUTPUTS, generator=generator) - 3)
    return network.eval()


def _tones_in_noise(seed: int) -> Iterator[np.ndarray]:
    rng, time = np.random.default_rng(seed), np.arange(15_600) / 16_000
    for level in (0.001, 0.003, 0.01, 0.03) * 3:
        tone = 0.2 * np.sin(2 * np.pi * rng.uniform(200, 4_000) * time)
        yield (tone + rng.normal(0, level, len(time))).astype(np.float32)


def embedded(network: Network, waveform: np.ndarray) -> np.ndarray:
    """Return the embeddings [patch, feature] of a waveform, by torch."""
    with torch.inference_mode():
        return network.embed(torch.from_numpy(patches(log_mel(waveform)).copy())).numpy()


def teach_head(
    network: Network, sounds: Sequence[tuple[np.ndarray, Sequence[int]]], outputs: Sequence[int]
) -> None:
    """Have some outputs tell sounds apart: pairs of a waveform and the outputs that are right.

    Least squares on the embeddings, to logits of 3 and -3.
    """
    seen = np.concatenate([embedded(network, waveform) for waveform, _ in sounds])
    n_patches = [len(patches(log_mel(waveform))) for waveform, _ in sounds]
    wanted = np.array([[3.0 if one in right else -3 for one in outputs] for _, right in sounds])
    wanted = np.repeat(wanted, n_patches, axis=0)
    mean = seen.mean(axis=0)
    kernel = (seen - mean) @ (seen - mean).T + 0.01 * np.eye(len(seen))
    weights = (seen - mean).T @ np.linalg.solve(kernel, wanted - wanted.mean(axis=0))
    with torch.no_grad():
        network.head.weight[list(outputs)] = torch.from_numpy(weights.T).float()
        bias = wanted.mean(axis=0) - mean @ weights
        network.head.bias[list(outputs)] = torch.from_numpy(bias).float()


def write_keras(path: Path, network: Network) -> Path:
    """Write a network as ``yamnet.h5``: a group for each layer, in it its weights by full names."""
    layers = keras_weights(network)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in layers]
        file.attrs["backend"], file.attrs["keras_version"] = b"tensorflow", b"2.2.4-tf"
        for name, weights in layers.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = [one.encode() for one in weights]
            for weight_name, values in weights.items():
                group[weight_name] = values
    return path


def keras_weights(network: Network) -> dict[str, dict[str, np.ndarray]]:
    """Return weights by layer, then by Keras's names, in its axes; ReLUs have none."""
    modules: list[Any] = list(network.body)
    layers: dict[str, dict[str, np.ndarray]] = {}
    for name, convolution, norm in zip(keras_layers(), modules[::3], modules[1::3], strict=True):
        kernel = convolution.weight.detach().numpy()  # [out, in, frame, band]
        is_depthwise = name.endswith("depthwise_conv")
        axes, kind = (
            ((2, 3, 0, 1), "depthwise_kernel") if is_depthwise else ((2, 3, 1, 0), "kernel")
        )
        layers[name] = {f"{name}/{kind}:0": kernel.transpose(axes)}
        layers[f"{name}/bn"] = {
            f"{name}/bn/beta:0": norm.bias.detach().numpy(),
            f"{name}/bn/moving_mean:0": norm.running_mean.numpy(),
            f"{name}/bn/moving_variance:0": norm.running_var.numpy(),
        }
        layers[f"{name}/relu"] = {}
    head = network.head
    layers["dense"] = {
        "dense/kernel:0": head.weight.detach().numpy().T,
        "dense/bias:0": head.bias.detach().numpy(),
    }
    return layers


@dataclass(frozen=True)
class Quantised:
    """Whole numbers and what they are times: a step for all, or for each channel on an axis."""

    whole: np.ndarray
    step: np.ndarray
    axis: int = 0

    @classmethod
    def of(cls, values: np.ndarray, axis: int | None, dtype: str, step: Any = None) -> Quantised:
        others = tuple(one for one in range(values.ndim) if one != axis)
        if step is None:
            step = np.abs(values).max(axis=None if axis is None else others) / 127
        steps = np.atleast_1d(np.asarray(step, np.float32))
        along = (
            steps
            if axis is None
            else steps.reshape([-1 if one == axis else 1 for one in range(values.ndim)])
        )
        return cls(np.round(values / along).astype(dtype), steps, axis or 0)

    @cached_property
    def values(self) -> np.ndarray:
        """The numbers that are meant, one by one."""
        found = np.empty(self.whole.shape, np.float64)
        for place in np.ndindex(*self.whole.shape[self.axis : self.axis + 1]):
            at = (slice(None),) * self.axis + place
            found[at] = self.whole[at].astype(np.float64) * self.step[place[0] % len(self.step)]
        return found


@dataclass(frozen=True)
class QuantisedLayer:
    """A convolution as TFLite keeps it: normalisation in kernel and bias."""

    kernel: Quantised
    """[out, frame, band, in]; of a depthwise one [1, frame, band, channel]."""
    bias: Quantised
    stride: int
    is_depthwise: bool


def quantised(network: Network) -> tuple[list[QuantisedLayer], Quantised, Quantised]:
    """Fold a network's normalisation and round it to int8; return its head's weights and bias, too.

    Kernels have a step for each channel, the head has one for all.
    """
    modules: list[Any] = list(network.body)
    layers, input_step = [], 6 / 255
    for convolution, norm in zip(modules[::3], modules[1::3], strict=True):
        assert isinstance(convolution, SameConv)
        gain = 1 / np.sqrt(norm.running_var.numpy() + EPSILON)
        kernel = convolution.weight.detach().numpy() * gain[:, None, None, None]
        shift = norm.bias.detach().numpy() - norm.running_mean.numpy() * gain
        is_depthwise = convolution.groups > 1
        axes, axis = ((1, 2, 3, 0), 3) if is_depthwise else ((0, 2, 3, 1), 0)
        found = Quantised.of(kernel.transpose(axes), axis, "int8")
        bias = Quantised.of(shift, 0, "int32", found.step * input_step)
        layers.append(QuantisedLayer(found, bias, convolution.stride[0], is_depthwise))
    head = Quantised.of(network.head.weight.detach().numpy(), None, "int8")
    bias = Quantised.of(network.head.bias.detach().numpy(), None, "int32", head.step * input_step)
    return layers, head, bias


def write_tflite_yamnet(path: Path, network: Network) -> Path:
    """Write a network as YAMNet's TFLite file: int8 but for the front end and the end."""
    layers, head, bias = quantised(network)
    mel = np.zeros((64, 257), np.float32)
    tensors = [
        Tensor("waveform", (15_600,)),
        Tensor("spectrum", (96, 257)),
        Tensor("mel", mel.shape, mel),
        Tensor("offset", (64,), np.full(64, 0.001, np.float32)),
        Tensor("bands", (96, 64)),
        Tensor("image0", (1, 96, 64, 1), step=0.1),
    ]
    operators = [
        Operator("ABS", ["waveform"], ["spectrum"]),  # stands for a Fourier transform
        Operator("FULLY_CONNECTED", ["spectrum", "mel", "offset"], ["bands"]),
        Operator("QUANTIZE", ["bands"], ["image0"]),
    ]
    n_frames, n_bands = 96, 64
    for place, layer in enumerate(layers):
        n_frames, n_bands = -(-n_frames // layer.stride), -(-n_bands // layer.stride)
        names = [f"image{place}", f"kernel{place}", f"bias{place}"]
        found = f"image{place + 1}"
        tensors += [
            _constant(names[1], layer.kernel),
            _constant(names[2], layer.bias),
            Tensor(
                found, (1, n_frames, n_bands, len(layer.bias.whole)), step=6 / 255, zero_point=-128
            ),
        ]
        options = {"StrideH": layer.stride, "StrideW": layer.stride}
        options["FusedActivationFunction"] = tflite.ActivationFunctionType.RELU6
        kind = "DEPTHWISE_CONV_2D" if layer.is_depthwise else "CONV_2D"
        operators.append(Operator(kind, names, [found], options))
    tensors += [
        Tensor("axes", (2,), np.array([1, 2], np.int32)),
        Tensor("embedding", (1, 1, 1, 1_024), step=6 / 255, zero_point=-128),
        _constant("head", head),
        _constant("head_bias", bias),
        Tensor("logits", (1, N_OUTPUTS), step=0.1),
        Tensor("scores", (1, N_OUTPUTS), step=1 / 256, zero_point=-128),
        Tensor("found", (1, N_OUTPUTS)),
    ]
    operators += [
        Operator("MEAN", [f"image{len(layers)}", "axes"], ["embedding"]),
        Operator("FULLY_CONNECTED", ["embedding", "head", "head_bias"], ["logits"]),
        Operator("LOGISTIC", ["logits"], ["scores"]),
        Operator("DEQUANTIZE", ["scores"], ["found"]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_tflite(path, tensors, operators, ["waveform"], ["found"])


def _constant(name: str, one: Quantised) -> Tensor:
    return Tensor(name, one.whole.shape, one.whole, one.step, axis=one.axis)


def published(path: Path, what: str = "made up", url: str | None = None) -> PublishedFile:
    """Return a file as if its authors published it."""
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return PublishedFile(url or f"https://example.org/{path.name}", sha256, len(content), what)


def publish(monkeypatch: pytest.MonkeyPatch, folder: Path, *files: PublishedFile) -> None:
    """Make files the catalogue's ``yamnet``, the best first, and ``folder`` the teachers' cache."""
    teacher = Teacher("yamnet", "made-up sounds", "nobody's", files)
    for module in (catalogue, network, pretrained):  # the door keeps what it was once asked for
        monkeypatch.setattr(module, "CATALOGUE", (teacher,))
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    embedding._opened.cache_clear()  # a network of that name may be open


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *paths: Path) -> list[KeptTeacher]:
    """Publish files and keep them in the cache; only this very process knows of them."""
    publish(monkeypatch, folder, *(published(path) for path in paths))
    return [catalogue.add_teacher(path) for path in paths]
