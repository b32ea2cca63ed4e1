from __future__ import annotations

import hashlib

import torch

from earmark.config import ModelParams
from earmark.models import build_model, build_probe, kept_units, truncated_normal
from earmark.models.architectures import draws


def digest(network: torch.nn.Module) -> str:
    values = b"".join(one.detach().numpy().tobytes() for one in network.parameters())
    return hashlib.sha256(values).hexdigest()[:16]


def test_initial_weights_are_these_bytes_on_every_machine() -> None:
    narrow = ModelParams(width=0.25)
    assert digest(build_model(narrow, 5, seed=3)) == "fc2fbcaef0355cb3"
    attending = ModelParams(architecture="attention_probe", n_hidden=16)
    assert digest(build_probe(attending, 8, 5, n_students=2, seed=3)) == "435d3843cb75b5be"


def test_a_normal_is_cut_at_two_standard_deviations_and_not_heaped_there() -> None:
    values = truncated_normal((200, 500), 0.5, draws(0))
    assert values.dtype == torch.float32
    assert values.abs().max() <= 1
    assert abs(values.mean()) < 0.005
    assert abs(values.std() - 0.5 * 0.8796) < 0.005  # a normal's own, cut at two
    assert ((values.abs() > 0.9).float().mean() - 0.0276).abs() < 0.003


def test_dropout_keeps_its_share_and_follows_the_seed() -> None:
    kept = kept_units((301, 333), 0.7, draws(0))
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    assert abs(kept.mean() - 0.7) < 0.005
    assert torch.equal(kept, kept_units((301, 333), 0.7, draws(0)))
    assert not torch.equal(kept, kept_units((301, 333), 0.7, draws(1)))
    assert kept_units((3, 5), 1.0, draws(0)).all()
