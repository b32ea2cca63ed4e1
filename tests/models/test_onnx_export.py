from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.audio import YAMNET, log_mel, patches
from earmark.config import FrontEndParams, ModelParams, NetworkParams
from earmark.errors import EarmarkError
from earmark.models import (
    AnyNetwork,
    ModelCard,
    Network,
    Probe,
    SameConv,
    build,
    make_graph,
    onnx_export,
    open_session,
    sum_outputs,
    write_onnx,
)
from sounds import NARROW, sound

RESNET = ModelParams(architecture="resnet50", width=0.125)
PROBES = ("linear_probe", "mlp_probe", "attention_probe")


def make_card(model: ModelParams, n_inputs: int, front_end: FrontEndParams | None) -> ModelCard:
    return ModelCard(
        network=NetworkParams(name="net", model=model),
        class_ids=("a", "b", "c"),
        class_names=("Ah", "Be", "Cé"),
        n_inputs=n_inputs,
        patch_frames=96,
        n_students=1,
        front_end=front_end,
        metrics={},
        versions={},
        digest="run",
    )


def settled(model: ModelParams) -> AnyNetwork:
    """Build a network whose normalisation has seen some input, as if it had been trained."""
    network = build(model, 16 if model.is_probe else 64, 3, seed=1)
    if not isinstance(network, Probe):
        network.train()(torch.randn(4, 96, 64, generator=torch.Generator().manual_seed(0)) - 3)
    return network.eval()


@torch.inference_mode()
def torch_logits(network: AnyNetwork, waveforms: np.ndarray) -> np.ndarray:
    """Do as the CPU front end and torch do: [clip, patch, class]."""
    given = np.stack([patches(log_mel(waveform)) for waveform in waveforms])
    logits = network(torch.from_numpy(given.reshape(-1, 96, 64))).numpy()
    return logits.reshape(*given.shape[:2], -1)


@pytest.mark.parametrize("model", [NARROW, RESNET], ids=lambda model: model.architecture)
def test_waveforms_of_any_length_score_as_in_torch(tmp_path: Path, model: ModelParams) -> None:
    network = settled(model)
    assert isinstance(network, Network)
    with torch.no_grad():
        network.head.bias.copy_(torch.tensor([-200.0, 0.0, 200.0]))  # beyond float32's exponents
    path = tmp_path / "net.onnx"
    assert write_onnx(path, network, make_card(model, 64, YAMNET), with_front_end=True) < 1e-4
    session = open_session(path)
    for n_samples in (1, 15_600, 15_601, 40_000):
        waveforms = np.stack([sound(i, n_samples / 16_000) for i in range(3)])
        logits, clip_logits = session.run(None, {"waveforms": waveforms})
        expected = torch_logits(network, waveforms)
        assert logits == pytest.approx(expected, abs=1e-4)
        present, absent = sum_outputs(expected)
        assert clip_logits == pytest.approx(np.log(present / absent)[:, 0], rel=1e-5, abs=1e-4)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["class_ids"]) == ["a", "b", "c"]
    assert json.loads(metadata["class_names"]) == ["Ah", "Be", "Cé"]
    assert metadata["sample_rate_hz"] == "16000"


def one_layer(seed: int = 0) -> Network:
    """Make a network that exports in no time."""
    torch.manual_seed(seed)
    body = torch.nn.Sequential(SameConv(1, 8, 3, 2), torch.nn.ReLU())
    return Network(body, 8, 3).eval()


@pytest.mark.parametrize("architecture", PROBES)
def test_probes_score_frames_of_any_number_as_in_torch(tmp_path: Path, architecture: str) -> None:
    model = ModelParams.model_validate({"architecture": architecture, "n_hidden": 8})
    probe = settled(model)
    write_onnx(tmp_path / "p.onnx", probe, make_card(model, 16, None), with_front_end=True)
    frames, n_frames = torch.randn(4, 7, 16), torch.tensor([7, 1, 3, 6])
    given = {"frames": frames.numpy(), "n_frames": n_frames.numpy()}
    (logits,) = open_session(tmp_path / "p.onnx").run(None, given)
    with torch.inference_mode():
        assert logits == pytest.approx(probe(frames, n_frames)[0].numpy(), abs=1e-4)


def test_without_the_library_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EarmarkError, match=r"onnxruntime.*pip install 'earmark\[onnx\]'"):
        open_session(b"")


def test_a_graph_that_disagrees_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_graph(one_layer(1), {"patches": torch.zeros(2, 96, 64)})
    monkeypatch.setattr(onnx_export, "make_graph", lambda *given: other)
    card = make_card(NARROW, 64, None)
    with pytest.raises(EarmarkError, match=r"p.onnx: .* from torch's.*not written"):
        write_onnx(tmp_path / "p.onnx", one_layer(0), card, with_front_end=False)
    assert not (tmp_path / "p.onnx").exists()


def test_frames_from_elsewhere_have_no_front_end(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="--no-front-end"):
        write_onnx(
            tmp_path / "n.onnx", one_layer(), make_card(NARROW, 64, None), with_front_end=True
        )
