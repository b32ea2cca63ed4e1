from __future__ import annotations

import pytest
import torch

from earmark.config import TrainParams
from earmark.errors import EarmarkError
from earmark.training import NumberTypes

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def types_of(number_type: str, device: torch.device) -> NumberTypes:
    return NumberTypes.of(TrainParams(number_type=number_type), device)


def test_a_cpu_computes_in_float32_unless_told() -> None:
    for number_type in ("float32", "auto"):
        assert types_of(number_type, CPU) == NumberTypes(torch.float32)
    assert types_of("float64", CPU) == NumberTypes(torch.float64)


@pytest.mark.parametrize(("can", "chosen"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_mixes_in_what_it_has(
    monkeypatch: pytest.MonkeyPatch, can: bool, chosen: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: can)
    assert types_of("auto", GPU) == NumberTypes(torch.float32, chosen)
    assert types_of("float16", GPU) == NumberTypes(torch.float32, torch.float16)
    assert types_of("float32", GPU) == NumberTypes(torch.float32)


@pytest.mark.parametrize("number_type", ["bfloat16", "float16"])
def test_shorter_types_on_a_cpu_are_refused(number_type: str) -> None:
    with pytest.raises(EarmarkError, match=f'"{number_type}" needs a GPU'):
        types_of(number_type, CPU)


def test_the_forward_pass_is_mixed_only_where_types_differ() -> None:
    a = torch.ones(2, 2)
    with NumberTypes(torch.float32).mixed(CPU):
        assert not torch.is_autocast_enabled("cpu")
        assert (a @ a).dtype == torch.float32
    with NumberTypes(torch.float32, torch.bfloat16).mixed(CPU):
        assert torch.is_autocast_enabled("cpu")
