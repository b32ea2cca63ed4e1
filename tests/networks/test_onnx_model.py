from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from earmark.errors import EarmarkError
from earmark.networks.onnx_export import open_session
from earmark.networks.onnx_model import ForeignModel
from made_up_onnx import Axes, loudness, mean_of_patches, write_model
from sounds import sound


def identity(path: Path, given: Axes, kind: int = TensorProto.FLOAT, **metadata: str) -> Path:
    nodes = [helper.make_node("Identity", ["given"], ["found"])]
    return write_model(path, nodes, given, given, kind=kind, metadata=metadata)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (("samples",), "waveforms"),
        (("n", "samples"), "waveforms"),
        ((1, 15_600), "waveforms"),
        (("n", 1, "samples"), "waveforms"),
        (("n", 96, 64), "patches"),
        (("n", "frames", "bands"), "patches"),
        (("n", 1, 96, 64), "patches"),
    ],
)
def test_the_input_is_told_from_its_axes(tmp_path: Path, given: Axes, kind: str) -> None:
    model = ForeignModel.open(identity(tmp_path / "m.onnx", given))
    assert model.kind == kind
    assert model.description.startswith(f"{kind} [")


@pytest.mark.parametrize("given", [(), ("n", 3, 96, 64), ("a", "b", "c", "d", "e")])
def test_other_axes_are_refused(tmp_path: Path, given: Axes) -> None:
    with pytest.raises(EarmarkError, match=rf"m.onnx: its input has {len(given)} axes"):
        ForeignModel.open(identity(tmp_path / "m.onnx", given))


def test_the_user_may_say_what_goes_in_if_it_fits(tmp_path: Path) -> None:
    path = identity(tmp_path / "m.onnx", ("n", "c", "samples"))
    assert ForeignModel.open(path, "waveforms").kind == "waveforms"
    with pytest.raises(EarmarkError, match="patches were asked for"):
        ForeignModel.open(identity(tmp_path / "w.onnx", ("n", "samples")), "patches")


def test_models_of_other_inputs_or_outputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"expected one input of floats.*int64"):
        ForeignModel.open(identity(tmp_path / "i.onnx", ("n",), TensorProto.INT64))
    with pytest.raises(EarmarkError, match=r"no output 'scores'; the choices are found"):
        ForeignModel.open(identity(tmp_path / "o.onnx", ("n",)), output_name="scores")
    with pytest.raises(EarmarkError, match=r"gone.onnx: no such file"):
        ForeignModel.open(tmp_path / "gone.onnx")


def test_a_waveform_is_cut_to_the_length_that_the_model_wants(tmp_path: Path) -> None:
    model = ForeignModel.open(loudness(tmp_path / "m.onnx", (1, 10_000)))
    waveform = sound(0)  # 24,000 samples
    found = model.outputs(open_session(model.path), waveform[None])
    padded = np.pad(waveform, (0, 6_000)).reshape(3, 10_000)
    expected = np.log(np.sqrt((padded**2).mean(axis=1)))
    assert found == pytest.approx(np.stack([expected, expected - np.log(2)], axis=1), abs=1e-5)


@pytest.mark.parametrize("given", [("n", 96, 64), ("n", 1, 96, 64), (4, 96, 64), (1, 1, 96, 64)])
def test_batches_are_of_the_size_that_the_model_wants(tmp_path: Path, given: Axes) -> None:
    model = ForeignModel.open(mean_of_patches(tmp_path / "m.onnx", given, given[0]))
    patches = np.random.default_rng(0).normal(size=(6, 96, 64)).astype(np.float32)
    found = model.outputs(open_session(model.path), patches)
    assert found == pytest.approx(patches.mean(axis=(1, 2))[:, None] * [1, 2, -1], abs=1e-5)


def test_an_output_that_is_not_one_row_a_patch_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceMean", ["given"], ["found"], axes=[0, 1], keepdims=1)]
    path = write_model(tmp_path / "m.onnx", nodes, ("n", 96, 64), (1, 1, 64))
    model = ForeignModel.open(path)
    with pytest.raises(EarmarkError, match=r"6 patches gave 1 rows.*--output"):
        model.outputs(open_session(path), np.zeros((6, 96, 64), np.float32))


def test_a_model_that_fails_says_on_what(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["given", "shape"], ["found"])]
    shape = {"shape": np.array([-1, 7])}
    model = ForeignModel.open(write_model(tmp_path / "m.onnx", nodes, ("s",), ("n", 7), shape))
    with pytest.raises(EarmarkError, match=r"m.onnx: fails on waveforms \[16\].*--input"):
        model.outputs(open_session(model.path), np.zeros((1, 16), np.float32))


@pytest.mark.parametrize(
    ("metadata", "class_ids", "rate"),
    [
        ({}, (), 16_000),
        ({"class_ids": '["a", "b"]', "sample_rate_hz": "32000"}, ("a", "b"), 32_000),
        ({"class_ids": "a, b", "sample_rate_hz": "high"}, (), 16_000),
        ({"class_ids": '{"a": 1}', "sample_rate_hz": "0"}, (), 16_000),
    ],
)
def test_what_the_file_says_of_itself_is_used_where_it_is_understood(
    tmp_path: Path, metadata: dict[str, str], class_ids: tuple[str, ...], rate: int
) -> None:
    path = identity(tmp_path / "m.onnx", ("samples",), **metadata)
    model = ForeignModel.open(path)
    assert (model.class_ids, model.sample_rate_hz) == (class_ids, rate)
    assert ForeignModel.open(path, sample_rate_hz=8_000).sample_rate_hz == 8_000
