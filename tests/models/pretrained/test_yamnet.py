"""YAMNet hears: its graph on a CPU says what the network of torch says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.audio import log_mel, patches
from earmark.config import PretrainedParams
from earmark.errors import EarmarkError
from earmark.models.pretrained import (
    PretrainedNetwork,
    open_network,
    open_yamnet,
    read_yamnet,
    yamnet,
)
from made_up_yamnet import install
from sounds import sound

KINDS = ["yamnet.h5", "yamnet.tflite"]


@pytest.fixture(scope="module")
def keras(yamnet_files: Path) -> PretrainedNetwork:
    return opened(yamnet_files / "yamnet.h5")


def opened(path: Path) -> PretrainedNetwork:
    return open_yamnet(PretrainedParams(network=str(path)))


def by_torch(path: Path, waveform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    network = read_yamnet(path)
    image = torch.from_numpy(patches(log_mel(waveform)).copy())
    with torch.inference_mode():
        return network.embed(image).numpy(), network(image).numpy()


@pytest.mark.parametrize("name", KINDS)
def test_embeddings_and_logits_are_those_of_the_network(yamnet_files: Path, name: str) -> None:
    path = yamnet_files / name
    (heard,) = opened(path).infer([sound(0)])
    for found, expected in zip(
        (heard.embeddings, heard.logits), by_torch(path, sound(0)), strict=True
    ):
        assert found is not None
        assert found.dtype == np.float32
        assert expected.std() > 0.1
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_torch_hears_the_same_as_the_graph(yamnet_files: Path) -> None:
    network = opened(yamnet_files / "yamnet.tflite")
    with_session = network.infer([sound(1)])[0]
    network._run = yamnet.run_in_torch(read_yamnet(yamnet_files / "yamnet.tflite"))  # as on a GPU
    without = network.infer([sound(1)])[0]
    np.testing.assert_allclose(without.embeddings, with_session.embeddings, atol=1e-4)
    np.testing.assert_allclose(without.logits, with_session.logits, atol=1e-3)


def test_a_long_clip_is_heard_in_parts_as_if_at_once(
    keras: PretrainedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = keras.infer([sound(2, 5.0)])[0]
    monkeypatch.setattr(keras, "_n_at_once", 4)
    parts = keras.infer([sound(2, 5.0)])[0]
    assert whole.embeddings is not None
    assert len(whole.embeddings) == 10
    np.testing.assert_allclose(parts.embeddings, whole.embeddings, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(parts.logits, whole.logits, rtol=1e-4, atol=1e-3)


def test_every_clip_has_a_frame_and_its_own_alone(keras: PretrainedNetwork) -> None:
    clips = [np.zeros(0, np.float32), np.zeros(16_000, np.float32), sound(3, 0.2), sound(3)]
    heard = keras.infer(clips)
    assert [len(one.logits) for one in heard] == [1, 2, 1, 3]  # type: ignore[arg-type]
    for one, clip in zip(heard, clips, strict=True):
        assert np.isfinite(one.embeddings).all()
        np.testing.assert_array_equal(one.logits, keras.infer([clip])[0].logits)
    assert keras.infer([]) == []


def test_it_is_opened_by_name_from_the_cache_and_by_file(
    yamnet_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keras: PretrainedNetwork
) -> None:
    with pytest.raises(EarmarkError, match="not on this machine"):
        open_network(PretrainedParams(network="yamnet"))
    by_file = open_network(PretrainedParams(network=str(yamnet_files / "yamnet.h5")))
    install(monkeypatch, tmp_path, yamnet_files / "yamnet.h5")
    assert open_network(PretrainedParams(network="yamnet")).facts == keras.facts == by_file.facts


@pytest.mark.parametrize(
    "said",
    [{"sample_rate_hz": 8_000}, {"hop_seconds": 0.1}, {"embedding": "e"}, {"scale": "logits"}],
)
def test_what_cannot_be_said_of_it_is_refused(yamnet_files: Path, said: dict[str, object]) -> None:
    params = PretrainedParams(network=str(yamnet_files / "yamnet.h5"), **said)
    with pytest.raises(EarmarkError, match=rf"is known; leave {next(iter(said))} out"):
        open_network(params)
