"""TFLite files of any make by the one interface, held against sums by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from earmark.config import PretrainedParams
from earmark.errors import EarmarkError
from earmark.models.pretrained import PretrainedNetwork, open_network
from made_up_tflite import Operator, Tensor, dense_network, write_tflite

pytest.importorskip("ai_edge_litert")


def opened(path: Path, **said: object) -> PretrainedNetwork:
    network = open_network(PretrainedParams(network=str(path), **said))
    assert isinstance(network, PretrainedNetwork)
    return network


def ramp(n_samples: int) -> np.ndarray:
    return np.linspace(-0.5, 1, n_samples, dtype=np.float32)


@pytest.mark.parametrize("shape", [(-1,), (1, -1), (1, 1)])
def test_a_clip_is_heard_whole_where_any_length_is_taken(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    if shape == (1, 1):  # how old files say any length
        path = dense_network(tmp_path / "m.tflite", (1, -1))
        path = write_old(path)
    else:
        path = dense_network(tmp_path / "m.tflite", shape)
    network = opened(path, sample_rate_hz=1_000, embedding="embedding")
    assert (network.facts.frame_seconds, network.facts.hop_seconds) == (None, None)
    waveforms = [ramp(5_000), ramp(1_200), np.full(500, 0.5, np.float32), np.zeros(0, np.float32)]
    expected = [ramp(5_000).mean(), ramp(1_200).mean(), 0.5 * 500 / 975, 0]
    for heard, mean in zip(network.infer(waveforms), expected, strict=True):
        assert heard.embeddings == pytest.approx(np.full((1, 2), mean), abs=1e-5)
        assert heard.logits == pytest.approx(np.array([[0, mean, 2 * mean]]), abs=1e-5)


def write_old(path: Path) -> Path:
    """Write the network of any length as if it took one sample."""
    tensors = [
        Tensor("waveform", (1, 1)),
        Tensor("axis", (1,), np.array([1], np.int32)),
        Tensor("mean", (1, 1)),
        Tensor("weights", (2, 1), np.ones((2, 1), np.float32)),
        Tensor("factors", (3, 2), np.array([[0, 0], [1, 0], [2, 0]], np.float32)),
        Tensor("embedding", (1, 2)),
        Tensor("logits", (1, 3)),
    ]
    operators = [
        Operator("MEAN", ["waveform", "axis"], ["mean"]),
        Operator("FULLY_CONNECTED", ["mean", "weights"], ["embedding"]),
        Operator("FULLY_CONNECTED", ["embedding", "factors"], ["logits"]),
    ]
    return write_tflite(path, tensors, operators, ["waveform"], ["logits"])


def test_classes_may_be_any_tensor_inside(tmp_path: Path) -> None:
    path = dense_network(tmp_path / "m.tflite", n_outputs=4)
    said = {"sample_rate_hz": 1_000}
    plain, inside = opened(path, **said), opened(path, output="logits", **said)
    assert (plain.scale, inside.scale) == ("probabilities", "logits")
    assert plain.facts.n_features is None
    assert plain.facts.digest != inside.facts.digest
    one, other = plain.infer([ramp(100)])[0], inside.infer([ramp(100)])[0]
    assert one.embeddings is None
    assert one.logits == pytest.approx(other.logits, abs=1e-5)
    only = opened(path, embedding="scores", **said)
    assert (only.facts.n_features, only.facts.n_outputs) == (4, 0)
    assert only.infer([ramp(100)])[0].logits is None


def test_the_scale_is_told_from_the_graph_and_may_be_said(tmp_path: Path) -> None:
    path = dense_network(tmp_path / "m.tflite", is_probability=False)
    assert opened(path, sample_rate_hz=1_000).scale == "logits"
    said = opened(path, sample_rate_hz=1_000, scale="probabilities")
    assert said.infer([np.full(100, 0.25, np.float32)])[0].logits[0, 2] == pytest.approx(
        0, abs=1e-5
    )
    with pytest.raises(EarmarkError, match=r"m.tflite: .* 1.8, which is no probability"):
        said.infer([np.full(100, 0.9, np.float32)])


def test_quantised_probabilities_are_as_sure_as_their_steps(tmp_path: Path) -> None:
    path = dense_network(tmp_path / "m.tflite", is_quantised=True)
    network = opened(path, sample_rate_hz=1_000, embedding="coarse")
    heard = network.infer([np.full(100, -9, np.float32), np.full(100, 9, np.float32)])
    steps = np.array([128, 0, 0]) / 256
    assert heard[0].embeddings == pytest.approx(steps[None], abs=1e-6)
    half_step = np.log(1 / 512) - np.log(511 / 512)
    assert heard[0].logits == pytest.approx(np.array([[0, half_step, half_step]]), abs=1e-4)
    highest = np.log(255 / 256) - np.log(1 / 256)
    assert heard[1].logits == pytest.approx(np.array([[0, highest, highest]]), abs=1e-4)


def test_the_rate_is_said_or_asked_for(tmp_path: Path) -> None:
    path = dense_network(tmp_path / "m.tflite", (1, 15_600))
    assert opened(path, sample_rate_hz=8_000).facts.sample_rate_hz == 8_000
    with pytest.raises(EarmarkError, match=r"n.tflite: it takes 100 samples .*--sample-rate"):
        opened(dense_network(tmp_path / "n.tflite"))
    with pytest.raises(EarmarkError, match=r"a.tflite: it takes any number .*--sample-rate"):
        opened(dense_network(tmp_path / "a.tflite", (-1,)))


def test_class_names_are_those_that_the_file_carries(tmp_path: Path) -> None:
    named = dense_network(tmp_path / "m.tflite", labels=["Dog", "Cat", "Bœuf"])
    assert opened(named, sample_rate_hz=1_000).facts.output_names == ("Dog", "Cat", "Bœuf")
    fewer = dense_network(tmp_path / "f.tflite", labels=["Dog", "Cat"])
    assert opened(fewer, sample_rate_hz=1_000).facts.output_names == ()


def test_a_file_that_is_damaged_or_something_else_is_refused(tmp_path: Path) -> None:
    whole = dense_network(tmp_path / "m.tflite").read_bytes()
    broken = {
        "empty": b"",
        "page": b"<!doctype html><title>404</title>" * 9,
        "half": whole[: len(whole) // 2],
        "short": whole[:-40],
    }
    for name, content in broken.items():
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(content)
        with pytest.raises(EarmarkError, match=rf"{name}.tflite: cannot be opened as TFLite"):
            opened(path, sample_rate_hz=1_000)
    with pytest.raises(EarmarkError, match=r"gone.tflite: no such file"):
        opened(tmp_path / "gone.tflite")


@pytest.mark.parametrize("option", ["output", "embedding"])
def test_a_tensor_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, option: str
) -> None:
    path = dense_network(tmp_path / "m.tflite")
    with pytest.raises(EarmarkError, match=r"no tensor 'embeding' \(did you mean 'embedding'\?\)"):
        opened(path, **{option: "embeding"})
    with pytest.raises(
        EarmarkError, match=r"no tensor 'x'; .* 'logits' \[1, 3\], 'scores' \[1, 3\]"
    ):
        opened(path, **{option: "x"})
    with pytest.raises(EarmarkError, match=r"no tensor 'weights'"):  # a constant
        opened(path, **{option: "weights"})


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    tensors = [Tensor("picture", (1, 96, 64)), Tensor("found", (1, 96, 64))]
    operators = [Operator("LOGISTIC", ["picture"], ["found"])]
    path = write_tflite(tmp_path / "m.tflite", tensors, operators, ["picture"], ["found"])
    with pytest.raises(
        EarmarkError, match=r"expected one input .* got picture float32 \[1, 96, 64"
    ):
        opened(path)


def test_nothing_is_told_to_the_terminal(tmp_path: Path) -> None:
    """In a process of its own: the library tells what it chose when it is first used."""
    path = dense_network(tmp_path / "m.tflite")
    lines = [
        "from earmark.models.pretrained import open_network",
        "from earmark.config import PretrainedParams",
        f"open_network(PretrainedParams(network={str(path)!r}, sample_rate_hz=1000))",
    ]
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("", "")
