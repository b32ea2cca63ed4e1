"""Networks begin with YAMNet's body, and keep its statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from earmark.errors import EarmarkError
from earmark.models import Network, build
from earmark.models.pretrained import begin, begun_model, keep_statistics, read_yamnet
from made_up_yamnet import install

FILES = ["yamnet.h5", "yamnet.tflite"]


@pytest.fixture
def cache(yamnet_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(monkeypatch, tmp_path, yamnet_files / "yamnet.h5")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_network_hears_as_yamnet_does_and_has_a_head_of_its_own(
    yamnet_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    install(monkeypatch, tmp_path, yamnet_files / name)
    params = begun_model("yamnet")
    network = build(params, 64, 3, seed=4)
    drawn = build(params, 64, 3, seed=4)
    begin(network, params)
    assert isinstance(network, Network)
    assert isinstance(drawn, Network)
    assert torch.equal(network.head.weight, drawn.head.weight)
    image = torch.randn(2, 96, 64, generator=torch.Generator().manual_seed(0)) - 3
    with torch.inference_mode():
        expected = read_yamnet(yamnet_files / name).embed(image)
        assert torch.equal(network.eval().embed(image), expected)
        assert not torch.allclose(drawn.eval().embed(image), expected)


def test_weights_that_are_gone_are_named_with_how_to_fetch_them(cache: Path) -> None:
    params = begun_model("yamnet")
    next(cache.glob("*.h5")).unlink()
    with pytest.raises(EarmarkError, match=r"yamnet-\w+\.h5: a network begins .*teachers get yamn"):
        begin(build(params, 64, 3), params)


def test_a_name_with_folders_stays_in_the_cache(cache: Path) -> None:
    params = begun_model("yamnet")
    sly = params.model_copy(update={"begins_with": f"../../{params.begins_with}"})
    begin(build(params, 64, 3), sly)  # the file in the cache, not one two folders up


def test_statistics_stay_as_they_came_in_training(cache: Path) -> None:
    params = begun_model("yamnet")
    network = build(params, 64, 3)
    begin(network, params)
    assert isinstance(network, Network)
    norms = [one for one in network.body if isinstance(one, nn.BatchNorm2d)]
    before = [norm.running_mean.clone() for norm in norms]
    weights = network.body[0].weight.detach().clone()
    network.train()
    keep_statistics(network, params)
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-2)
    image = torch.from_numpy(np.random.default_rng(0).normal(-3, 1, (4, 96, 64))).float()
    network(image).square().sum().backward()
    optimiser.step()
    for norm, mean in zip(norms, before, strict=True):
        assert torch.equal(norm.running_mean, mean)
    assert not torch.equal(network.body[0].weight, weights), "the weights learn"
