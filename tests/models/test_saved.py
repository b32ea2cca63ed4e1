from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from earmark.audio import FrameStore, write_store
from earmark.config import ModelParams, NetworkParams
from earmark.errors import EarmarkError
from earmark.models import AnyNetwork, build, load_network, write_network

CNN = ModelParams(width=0.125)
PROBE = ModelParams(architecture="mlp_probe", n_hidden=8)


def store_of(folder: Path, n_bands: int = 64) -> FrameStore:
    frames = np.zeros((96, n_bands), np.float16)
    return write_store(folder, [("clip", frames)], patch_frames=96, patch_hop_frames=48)


def written(folder: Path, params: ModelParams, network: AnyNetwork, store: FrameStore) -> Path:
    write_network(folder, NetworkParams(name="x", model=params), network, ["a", "b"], store, "run")
    return folder


@pytest.mark.parametrize(("params", "n"), [(CNN, 1), (PROBE, 1), (PROBE, 3)])
def test_a_loaded_network_is_the_written_one(tmp_path: Path, params: ModelParams, n: int) -> None:
    network = build(params, 64, 2, n, seed=3).eval()
    folder = written(tmp_path / "model", params, network, store_of(tmp_path / "frames"))
    loaded = load_network(folder)
    assert loaded.n_students == n
    inputs = (torch.randn(2, 96, 64), *([torch.tensor([96, 50])] if params.is_probe else []))
    with torch.inference_mode():
        assert torch.equal(network(*inputs), loaded(*inputs))


def test_frames_of_another_kind_are_refused_with_both_digests(tmp_path: Path) -> None:
    store, other = store_of(tmp_path / "frames"), store_of(tmp_path / "other", n_bands=32)
    folder = written(tmp_path / "model", CNN, build(CNN, 64, 2), store)
    load_network(folder, store)
    digests = r"frames \w{16}, but .*other holds frames \w{16} with other n_bands \(64, here 32\)"
    with pytest.raises(EarmarkError, match=rf"{digests}.*earmark features"):
        load_network(folder, other)


def test_other_classes_are_refused_with_both_digests(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", CNN, build(CNN, 64, 2), store_of(tmp_path / "frames"))
    load_network(folder, class_ids=["a", "b"])
    for other in (["b", "a"], ["a", "b", "c"]):
        with pytest.raises(EarmarkError, match=r"2 classes \w{16}, but .*classes \w{16}.*train"):
            load_network(folder, class_ids=other)


def test_a_network_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="earmark train"):
        load_network(tmp_path / "nothing")


@pytest.mark.parametrize("damage", ["empty", "truncated", "cut header", "garbage", "gone"])
def test_damaged_weights_are_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    folder = written(tmp_path / "model", CNN, build(CNN, 64, 2), store_of(tmp_path / "frames"))
    path = folder / "weights.safetensors"
    whole = path.read_bytes()
    bytes_of = {"truncated": whole[:-100], "cut header": whole[:20], "garbage": b"\x05" * 999}
    path.write_bytes(bytes_of.get(damage, b""))
    if damage == "gone":
        path.unlink()
    with pytest.raises(EarmarkError, match=r"weights.safetensors.*delete .*model and run"):
        load_network(folder)


@pytest.mark.parametrize(
    ("n_classes", "told"),
    [(3, r"expected head.bias with shape \[2\], got \[3\]"), (None, "expected .*, got None")],
)
def test_weights_of_another_network_are_named(
    tmp_path: Path, n_classes: int | None, told: str
) -> None:
    folder = written(tmp_path / "model", CNN, build(CNN, 64, 2), store_of(tmp_path / "frames"))
    other = build(CNN, 64, n_classes).state_dict() if n_classes else {}
    save_file(other, folder / "weights.safetensors")
    with pytest.raises(EarmarkError, match=rf"weights.safetensors: not the weights.*{told}"):
        load_network(folder)


@pytest.mark.parametrize("name", ["meta.json", "params.json"])
@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"class_ids": 3, "name": 3}', "\x00\xff"])
def test_a_damaged_description_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = written(tmp_path / "model", CNN, build(CNN, 64, 2), store_of(tmp_path / "frames"))
    (folder / name).write_text(text, encoding="latin-1")
    with pytest.raises(EarmarkError, match=rf"{name}: (not|cannot be read) .*delete .* run"):
        load_network(folder)
