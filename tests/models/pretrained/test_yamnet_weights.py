"""YAMNet's weights, read from both kinds of file, held against a plain twin of the network."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from earmark.config import ModelParams
from earmark.errors import EarmarkError
from earmark.models import Network, build_model
from earmark.models.pretrained import keras_layers, read_yamnet
from made_up_tflite import Operator, Tensor, dense_network, write_tflite
from made_up_yamnet import (
    EPSILON,
    keras_weights,
    made_up_network,
    quantised,
    write_keras,
    write_tflite_yamnet,
)

STRIDES = {1: 2, 3: 2, 5: 2, 7: 2, 13: 2}
"""Layers of YAMNet that halve the picture, by Google's table; in the others the stride is 1."""


@pytest.fixture(scope="module")
def network() -> Network:
    return made_up_network()


@pytest.fixture(scope="module")
def image() -> torch.Tensor:
    """Patches [patch, frame, band] as loud and quiet as log-mel ones are."""
    return torch.from_numpy(np.random.default_rng(5).normal(-3, 2, (2, 96, 64))).float()


def same(image: torch.Tensor, stride: int, size: int) -> torch.Tensor:
    """Pad as TensorFlow's "same" does, worked out axis by axis."""
    widths = []
    for n in (image.shape[3], image.shape[2]):
        needed = max((-(-n // stride) - 1) * stride + size - n, 0)
        widths += [needed // 2, needed - needed // 2]
    return functional.pad(image, widths)


def keras_twin(path: Path, image: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Compute YAMNet from ``yamnet.h5`` as Google's source has it, a layer after the other."""
    with h5py.File(path) as file:

        def weights(layer: str, name: str) -> torch.Tensor:
            return torch.from_numpy(np.asarray(file[f"{layer}/{layer}/{name}:0"])).double()

        found = image.double().unsqueeze(1)
        for layer in keras_layers():
            number, kind = int(layer.split("/")[0][5:]), layer.split("/")[1]
            stride = 1 if kind == "pointwise_conv" else STRIDES.get(number, 1)
            if kind == "depthwise_conv":
                kernel = weights(layer, "depthwise_kernel").permute(2, 3, 0, 1)
            else:
                kernel = weights(layer, "kernel").permute(3, 2, 0, 1)
            groups = len(kernel) if kind == "depthwise_conv" else 1
            padded = same(found, stride, kernel.shape[2])
            found = functional.conv2d(padded, kernel, stride=stride, groups=groups)
            beta, mean, variance = (
                weights(f"{layer}/bn", name)[:, None, None]
                for name in ("beta", "moving_mean", "moving_variance")
            )
            found = torch.relu((found - mean) / torch.sqrt(variance + EPSILON) + beta)
        embedding = found.mean(dim=(2, 3))
        logits = embedding @ weights("dense", "kernel") + weights("dense", "bias")
    return embedding.numpy(), logits.numpy()


def tflite_twin(network: Network, image: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Compute the int8 network with its numbers multiplied out one by one, saturating at 6."""
    layers, head, bias = quantised(network)
    found = image.double().unsqueeze(1)
    for layer in layers:
        kernel = torch.from_numpy(layer.kernel.values)
        kernel = kernel.permute(3, 0, 1, 2) if layer.is_depthwise else kernel.permute(0, 3, 1, 2)
        shift = torch.from_numpy(layer.bias.values)
        padded = same(found, layer.stride, kernel.shape[2])
        groups = len(kernel) if layer.is_depthwise else 1
        found = functional.conv2d(padded, kernel, shift, layer.stride, groups=groups).clamp(0, 6)
    embedding = found.mean(dim=(2, 3)).numpy()
    return embedding, embedding @ head.values.T + bias.values


def said(network: Network, image: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    with torch.inference_mode():
        return network.embed(image).numpy(), network(image).numpy()


def assert_close(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    for one, twin in zip(found, expected, strict=True):
        assert twin.std() > 0.1, "sound gets through"
        np.testing.assert_allclose(one, twin, atol=2e-4 * np.abs(twin).max())


def test_keras_weights_are_the_network_of_googles_source(
    yamnet_files: Path, image: torch.Tensor
) -> None:
    found = read_yamnet(yamnet_files / "yamnet.h5")
    assert not found.training
    assert not any(isinstance(one, nn.Hardtanh) for one in found.body)
    assert_close(said(found, image), keras_twin(yamnet_files / "yamnet.h5", image))


def test_tflite_weights_are_dequantised_and_saturate(
    yamnet_files: Path, network: Network, image: torch.Tensor
) -> None:
    found = read_yamnet(yamnet_files / "yamnet.tflite")
    assert sum(isinstance(one, nn.Hardtanh) for one in found.body) == 27
    twin = tflite_twin(network, image)
    assert_close(said(found, image), twin)
    unlimited = keras_twin(yamnet_files / "yamnet.h5", image)
    assert np.abs(unlimited[0] - twin[0]).max() > 0.5, "6 is reached"


def test_a_file_of_something_else_is_refused_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "yamnet.h5"
    for content in (b"<html><body>404", b"", b"TFL3"):
        path.write_bytes(content)
        with pytest.raises(EarmarkError, match=r"yamnet\.h5: expected YAMNet's weights .*begins"):
            read_yamnet(path)
    with pytest.raises(EarmarkError, match=r"gone\.h5: no such file"):
        read_yamnet(tmp_path / "gone.h5")


@pytest.mark.parametrize(("name", "kind"), [("yamnet.h5", "HDF5"), ("yamnet.tflite", "TFLite")])
@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_a_file_that_is_cut_off_is_refused(
    yamnet_files: Path, tmp_path: Path, name: str, kind: str, share: float
) -> None:
    content = (yamnet_files / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(EarmarkError, match=rf"{name}: .*({kind}|not YAMNet)"):
        read_yamnet(path)


def damaged_keras(path: Path, network: Network, place: str, values: np.ndarray | None) -> Path:
    """Write a file with other values, or none, in one place."""
    write_keras(path, network)
    layer = place.rsplit("/", 1)[0]
    with h5py.File(path, "a") as file:
        del file[f"{layer}/{place}:0"]
        if values is not None:
            file[f"{layer}/{place}:0"] = values
    return path


@pytest.mark.parametrize(
    ("place", "values", "told"),
    [
        ("layer3/depthwise_conv/bn/beta", None, "expected weights 'layer3/depthwise_conv/bn/beta'"),
        ("dense/bias", None, "expected one dense layer with a bias"),
        ("dense/kernel", np.zeros((1_024, 10), "f4"), r"the last layer of \[521, 1024\].*\[10, 10"),
        ("layer1/conv/kernel", np.zeros((5, 5, 1, 32), "f4"), r"layer 1 of 27 of \[32, 1, 3, 3\]"),
        ("layer2/pointwise_conv/bn/beta", np.full(64, np.nan, "f4"), "layer 3 of 27 holds NaN"),
    ],
)
def test_what_does_not_fit_is_named(
    network: Network, tmp_path: Path, place: str, values: np.ndarray | None, told: str
) -> None:
    with pytest.raises(EarmarkError, match=told):
        read_yamnet(damaged_keras(tmp_path / "yamnet.h5", network, place, values))


def test_an_array_that_claims_more_than_weights_have_is_refused(
    network: Network, tmp_path: Path
) -> None:
    path = write_keras(tmp_path / "yamnet.h5", network)
    with h5py.File(path, "a") as file:  # a few bytes on the disk
        file.create_dataset("more", (2**27,), "f4", chunks=(2**20,))
    with pytest.raises(EarmarkError, match="more claims 536,870,912 bytes"):
        read_yamnet(path)


def test_tflite_files_of_other_networks_are_refused(tmp_path: Path, network: Network) -> None:
    for path, told in (
        (dense_network(tmp_path / "dense.tflite"), r"dense\.tflite: "),
        (logistic(tmp_path / "none.tflite"), r"not YAMNet: expected a last layer of 521"),
        (narrow(tmp_path / "narrow.tflite"), r"not YAMNet: expected layer 1 of 27 of"),
    ):
        with pytest.raises(EarmarkError, match=told):
            read_yamnet(path)


def logistic(path: Path) -> Path:
    tensors = [Tensor("given", (1, 4)), Tensor("found", (1, 4))]
    operators = [Operator("LOGISTIC", ["given"], ["found"])]
    return write_tflite(path, tensors, operators, ["given"], ["found"])


def narrow(path: Path) -> Path:
    network = build_model(ModelParams(width=0.25), 521).eval()
    return write_tflite_yamnet(path, network)


def test_a_layout_without_doubled_names_is_read_as_well(
    tmp_path: Path, network: Network, image: torch.Tensor
) -> None:
    path = tmp_path / "yamnet.h5"
    with h5py.File(path, "w") as file:
        for weights in keras_weights(network).values():
            for name, values in weights.items():
                file[name] = values
    assert_close(said(read_yamnet(path), image), said(network, image))
