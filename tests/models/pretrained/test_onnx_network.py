"""ONNX files of any make by the one interface, held against sums by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model

from earmark.audio import log_mel, patches
from earmark.config import PretrainedParams
from earmark.errors import EarmarkError
from earmark.models.pretrained import PretrainedNetwork, open_network
from made_up_onnx import Axes, loudness, mean_of_patches, write_model
from sounds import sound


def opened(path: Path, **said: object) -> PretrainedNetwork:
    network = open_network(PretrainedParams(network=str(path), **said))
    assert isinstance(network, PretrainedNetwork)
    return network


def identity(path: Path, given: Axes, kind: int = TensorProto.FLOAT, **metadata: str) -> Path:
    nodes = [helper.make_node("Identity", ["given"], ["found"])]
    return write_model(path, nodes, given, given, kind=kind, metadata=metadata)


def two_outputs(
    path: Path, last: str = "Sigmoid", given: Axes = ("n", 100), apart: bool = False
) -> Path:
    """Write a model of the mean and the loudness (``embedding``), and classes of the mean.

    ``apart`` keeps the weights in a file of their own.
    """
    n = given[0]
    nodes = [
        helper.make_node("ReduceMean", ["given"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("ReduceL2", ["given"], ["norm"], axes=[1], keepdims=1),
        helper.make_node("Concat", ["mean", "norm"], ["embedding"], axis=1),
        helper.make_node("MatMul", ["mean", "factors"], ["inner"]),
        helper.make_node(last, ["inner"], ["shaped"]),
        helper.make_node("Identity", ["shaped"], ["classes"]),
    ]
    factors = np.resize(np.array([[1, 2, -1]], np.float32), (1, 3))
    graph = helper.make_graph(
        nodes,
        "made up",
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, given)],
        [
            helper.make_tensor_value_info("classes", TensorProto.FLOAT, (n, 3)),
            helper.make_tensor_value_info("embedding", TensorProto.FLOAT, (n, 2)),
        ],
        [numpy_helper.from_array(factors, "factors")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"class_names": json.dumps(["Dog", "Cat", "Æ"])})
    save_model(model, str(path), save_as_external_data=apart, location="weights", size_threshold=0)
    return path


def ramp(n_samples: int) -> np.ndarray:
    return np.linspace(-0.5, 1, n_samples, dtype=np.float32)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (("samples",), None),
        (("n", "samples"), None),
        ((1, 15_600), 0.975),
        (("n", 1, "samples"), None),
        (("n", 96, 64), 0.96),
        (("n", "frames", "bands"), 0.96),
        (("n", 1, 96, 64), 0.96),
    ],
)
def test_the_input_is_told_from_its_axes(
    tmp_path: Path, given: Axes, seconds: float | None
) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["given"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "factors"], ["found"]),
    ]
    factors = {"factors": np.ones((1, 2), np.float32)}
    path = write_model(tmp_path / "m.onnx", nodes, given, (1, 2), factors)
    facts = opened(path).facts
    assert (facts.name, facts.sample_rate_hz, facts.n_outputs) == ("m", 16_000, 2)
    assert facts.frame_seconds == (None if seconds is None else pytest.approx(seconds))
    assert facts.n_features is None


@pytest.mark.parametrize("given", [(), ("n", 3, 96, 64), ("a", "b", "c", "d", "e")])
def test_other_axes_are_refused(tmp_path: Path, given: Axes) -> None:
    with pytest.raises(EarmarkError, match=rf"m.onnx: its input has {len(given)} axes"):
        opened(identity(tmp_path / "m.onnx", given))


def test_the_user_may_say_what_goes_in_if_it_fits(tmp_path: Path) -> None:
    path = loudness(tmp_path / "m.onnx", ("n", "c", "samples"))
    assert opened(path, input_kind="waveforms").facts.frame_seconds is None
    assert opened(path).facts.frame_seconds == pytest.approx(0.96)
    with pytest.raises(EarmarkError, match="patches were asked for"):
        opened(identity(tmp_path / "w.onnx", ("n", "samples")), input_kind="patches")


def test_files_that_are_no_model_of_sounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"expected one input of floats.*int64"):
        opened(identity(tmp_path / "i.onnx", ("n",), TensorProto.INT64))
    with pytest.raises(EarmarkError, match=r"gone.onnx: no such file"):
        opened(tmp_path / "gone.onnx")
    whole = loudness(tmp_path / "whole.onnx").read_bytes()
    for name, content in (("half", whole[: len(whole) // 2]), ("page", b"<html>"), ("empty", b"")):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(EarmarkError, match=rf"{name}.onnx: .*not an ONNX model"):
            opened(path)


@pytest.mark.parametrize("option", ["output", "embedding"])
def test_an_output_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, option: str
) -> None:
    path = two_outputs(tmp_path / "m.onnx")
    with pytest.raises(EarmarkError, match=r"no output 'scores'; .* classes, embedding"):
        opened(path, **{option: "scores"})
    with pytest.raises(EarmarkError, match=r"no output 'clases'; did you mean 'classes'"):
        opened(path, **{option: "clases"})


@pytest.mark.parametrize(
    ("n_samples", "hop_seconds", "n_frames"),
    [(0, None, 1), (60, None, 1), (100, None, 1), (101, None, 2), (250, None, 3), (250, 0.05, 4)],
)
def test_a_clip_is_heard_in_windows(
    tmp_path: Path, n_samples: int, hop_seconds: float | None, n_frames: int
) -> None:
    path = two_outputs(tmp_path / "m.onnx")
    network = opened(path, sample_rate_hz=1_000, hop_seconds=hop_seconds)
    assert network.facts.frame_seconds == pytest.approx(0.1)
    assert network.facts.hop_seconds == pytest.approx(hop_seconds or 0.1)
    waveform = ramp(n_samples)
    heard = network.infer([waveform, waveform])[1]
    hop = round((hop_seconds or 0.1) * 1_000)
    padded = np.pad(waveform, (0, 200))
    windows = np.stack([padded[hop * i : hop * i + 100] for i in range(n_frames)])
    means, norms = windows.mean(axis=1), np.sqrt((windows**2).sum(axis=1))
    assert heard.embeddings == pytest.approx(np.stack([means, norms], axis=1), abs=1e-5)
    assert heard.logits == pytest.approx(means[:, None] * [1, 2, -1], abs=1e-5)


def test_outputs_are_embeddings_or_classes_as_said(tmp_path: Path) -> None:
    path = two_outputs(tmp_path / "m.onnx")
    both = opened(path).facts
    assert (both.n_features, both.n_outputs) == (2, 3)
    assert both.output_names == ("Dog", "Cat", "Æ")
    assert both.output_ids == ()
    turned = opened(path, embedding="classes").facts
    assert (turned.n_features, turned.n_outputs) == (3, 2)
    assert turned.output_names == (), "three names are not those of two outputs"
    alone = opened(path, embedding="embedding", output="embedding")
    assert (alone.facts.n_features, alone.facts.n_outputs) == (2, 0)
    assert alone.infer([ramp(100)])[0].logits is None
    only = opened(loudness(tmp_path / "l.onnx"), embedding="found")
    assert (only.facts.n_features, only.facts.n_outputs) == (2, 0)
    digests = {both.digest, turned.digest, alone.facts.digest, only.facts.digest}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("last", "scale"),
    [("Sigmoid", "probabilities"), ("Softmax", "probabilities"), ("Identity", "logits")],
)
def test_probabilities_are_told_from_the_graph(tmp_path: Path, last: str, scale: str) -> None:
    assert opened(two_outputs(tmp_path / "m.onnx", last)).scale == scale


def test_probabilities_are_told_from_what_the_network_says_or_said(tmp_path: Path) -> None:
    path = loudness(tmp_path / "m.onnx", is_probability=True)  # the graph ends in a product
    level = float(np.sqrt((sound(0) ** 2).mean()))
    told, said = opened(path), opened(path, scale="logits")
    assert (told.scale, said.scale) == ("probabilities", "logits")
    assert told.facts.digest != said.facts.digest
    logit = np.log(level / (1 - level))
    assert told.infer([sound(0)])[0].logits[0, 0] == pytest.approx(logit, abs=1e-4)
    assert said.infer([sound(0)])[0].logits[0, 0] == pytest.approx(level, abs=1e-5)
    silent = told.infer([np.zeros(16_000, np.float32)])[0].logits
    assert silent == pytest.approx(np.full((1, 2), -88.03), abs=0.01), "0 is not infinitely far"
    with pytest.raises(EarmarkError, match=r"m.onnx: .* 3, which is no probability.*--scale log"):
        told.infer([np.full(16_000, 3, np.float32)])


@pytest.mark.parametrize("given", [("n", 96, 64), ("n", 1, 96, 64), (4, 96, 64), (1, 1, 96, 64)])
def test_patches_are_made_of_the_waveform_in_batches_that_the_model_wants(
    tmp_path: Path, given: Axes
) -> None:
    network = opened(mean_of_patches(tmp_path / "m.onnx", given, given[0], ("a", "b", "c")))
    seen = patches(log_mel(sound(0, 3.5)))
    assert len(seen) == 7
    (heard,) = network.infer([sound(0, 3.5)])
    means = seen.mean(axis=(1, 2), dtype=np.float64)
    assert heard.logits == pytest.approx(means[:, None] * [1, 2, -1], abs=1e-4)
    assert network.facts.output_ids == network.facts.output_names == ("a", "b", "c")
    assert network.facts.hop_seconds == pytest.approx(0.48)


def test_patches_have_one_rate_and_one_shape(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"made of waveforms at 16,000 Hz, got 8,000"):
        opened(mean_of_patches(tmp_path / "m.onnx"), sample_rate_hz=8_000)
    with pytest.raises(EarmarkError, match=r"\[64, 96\].*makes \[96, 64\]; is it the transpose"):
        opened(mean_of_patches(tmp_path / "t.onnx", ("n", 64, 96)))
    with pytest.raises(
        EarmarkError, match=r"\[96, 128\] \[frame, band\], earmark makes \[96, 64\]$"
    ):
        opened(mean_of_patches(tmp_path / "b.onnx", ("n", 96, 128)))


@pytest.mark.parametrize(
    ("metadata", "said", "rate"),
    [
        ({}, None, 16_000),
        ({"sample_rate_hz": "32000"}, None, 32_000),
        ({"sample_rate_hz": "high"}, None, 16_000),
        ({"sample_rate_hz": "0"}, None, 16_000),
        ({"sample_rate_hz": "32000"}, 8_000, 8_000),
    ],
)
def test_the_rate_is_said_or_the_usual(
    tmp_path: Path, metadata: dict[str, str], said: int | None, rate: int
) -> None:
    network = opened(identity(tmp_path / "m.onnx", ("s",), **metadata), sample_rate_hz=said)
    assert network.facts.sample_rate_hz == rate


def test_a_length_may_tell_the_rate_or_has_to_be_explained(tmp_path: Path) -> None:
    assert opened(loudness(tmp_path / "b.onnx", (1, 144_000))).facts.sample_rate_hz == 48_000
    perch = loudness(tmp_path / "p.onnx", (1, 160_000))
    with pytest.raises(EarmarkError, match=r"10 s at 16,000 Hz or 5 s at 32,000 Hz\?.*--sample-r"):
        opened(perch)
    assert opened(perch, sample_rate_hz=32_000).facts.frame_seconds == 5


def test_rows_that_are_not_those_of_the_windows_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceMean", ["given"], ["found"], axes=[0, 1], keepdims=1)]
    path = write_model(tmp_path / "m.onnx", nodes, ("n", 96, 64), (1, 1, 64))
    network = opened(path)
    with pytest.raises(EarmarkError, match=r"m.onnx: 2 windows gave 1 rows.*--output"):
        network.infer([sound(0, 1.2)])


def test_a_model_that_fails_says_on_what(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["given", "shape"], ["found"])]
    shape = {"shape": np.array([-1, 7])}
    with pytest.raises(EarmarkError, match=r"m.onnx: fails on waveforms \[15600\].*--input"):
        opened(write_model(tmp_path / "m.onnx", nodes, ("s",), ("n", 7), shape))


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    network = opened(loudness(tmp_path / "m.onnx"))
    with pytest.raises(EarmarkError, match=r"m.onnx: a sound of 1 window got NaN or infinite out"):
        network.infer([np.zeros(16_000, np.float32)])
    with pytest.raises(EarmarkError, match=r"expected one waveform .* NaN"):
        network.infer([np.full(16_000, np.nan, np.float32)])
    with pytest.raises(EarmarkError, match=r"expected one waveform .* axes \[2, 10\]"):
        network.infer([np.zeros((2, 10), np.float32)])


def test_weights_in_another_file_are_part_of_what_a_model_is(tmp_path: Path) -> None:
    path = two_outputs(tmp_path / "m.onnx", apart=True)
    before = opened(path).facts.digest
    assert opened(path).facts.digest == before
    (tmp_path / "weights").write_bytes(np.array([3, 2, -1], np.float32).tobytes())
    assert opened(path).facts.digest != before
