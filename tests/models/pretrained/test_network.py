"""A network is opened by its kind, and only that kind's libraries are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from earmark.config import PretrainedParams
from earmark.errors import EarmarkError
from earmark.models.pretrained import check_here, find_kind, open_network
from made_up_yamnet import install


def test_a_network_of_no_known_kind_is_refused_by_name() -> None:
    with pytest.raises(EarmarkError, match=r"weights\.xyz: no network of a kind"):
        open_network(PretrainedParams(network="weights.xyz"))


@pytest.mark.parametrize(
    ("network", "place"),
    [
        ("yamnet", "yamnet"),
        ("mine.h5", "yamnet"),
        ("a/b.onnx", "onnx_network"),
        ("B.ONNX", "onnx_network"),
        ("birds.tflite", "tflite_network"),
        ("hf:owner/name", "huggingface"),
    ],
)
def test_a_kind_is_told_by_name_or_ending(network: str, place: str) -> None:
    assert find_kind(network).place.startswith(f"{place}:")


def test_a_folder_with_a_config_is_hugging_faces(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="no network of a kind"):
        find_kind(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert "huggingface" in find_kind(str(tmp_path)).place


def test_a_misspelt_name_is_told_the_nearest() -> None:
    with pytest.raises(EarmarkError, match=r"yament: no network .*did you mean 'yamnet'"):
        open_network(PretrainedParams(network="yament"))


def test_a_network_is_looked_for_before_any_work(
    yamnet_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EarmarkError, match="yamnet is not on this machine yet"):
        check_here("yamnet")
    with pytest.raises(EarmarkError, match=r"gone\.onnx: no such file"):
        check_here("gone.onnx")
    with pytest.raises(EarmarkError, match="no network of a kind"):
        check_here("weights.xyz")
    check_here("hf:owner/name")  # the hub is asked when its turn comes
    check_here(str(yamnet_files / "yamnet.h5"))
    install(monkeypatch, tmp_path, yamnet_files / "yamnet.h5")
    check_here("yamnet")
