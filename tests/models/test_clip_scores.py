from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.config import ModelParams
from earmark.models import (
    ClipExamples,
    Examples,
    Probe,
    best_patches,
    build,
    build_model,
    evidence,
    patch_outputs,
    score_and_locate,
    score_clips,
)
from scenes import band_workspace, event_workspace, open_store


def test_a_clips_score_is_the_logit_of_its_mean_output(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=9, n_frames=240))
    network = build_model(ModelParams(width=0.125), 3).eval()
    rows = np.array([4, 0, 7])
    (logits,), (best,) = score_and_locate(network, Examples(store, rows))
    assert np.array_equal(logits, score_clips(network, Examples(store, rows))[0])
    for place, row in enumerate(rows):
        patches = store.patches(np.full(4, row), np.arange(4))
        with torch.inference_mode():
            outputs = torch.sigmoid(network(torch.from_numpy(patches).float()).double()).numpy()
        mean = outputs.mean(axis=0)
        assert logits[place] == pytest.approx(np.log(mean / (1 - mean)), rel=1e-5)
        assert np.array_equal(best[place], outputs.argmax(axis=0))


def test_tiny_outputs_keep_their_order(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=3))
    network = build_model(ModelParams(width=0.125), 3).eval()
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([-60.0, -61.0, 60.0]))
    (logits,) = score_clips(network, Examples(store, np.array([0])))
    assert logits[0] == pytest.approx([-60.0, -61.0, 60.0])


ARCHITECTURES = ["linear_probe", "mlp_probe", "attention_probe"]


def make_probe(
    architecture: str, n_inputs: int, n_students: int = 1, compression: float | None = None
) -> Probe:
    """Return students with weights of their own."""
    params = ModelParams(architecture=architecture, n_hidden=8, compression=compression)
    probe = build(params, n_inputs, 3, n_students).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in probe.parameters():
            weight += torch.randn(weight.shape, generator=generator)
    assert isinstance(probe, Probe)
    return probe


def asked_again(probe: Probe, frames: np.ndarray, patch_frames: int, hop: int) -> np.ndarray:
    """Return what the logits lose without each patch, by cutting it out: slow and obvious."""

    def logits(kept: np.ndarray) -> np.ndarray:
        values = torch.from_numpy(kept.astype(np.float32)).unsqueeze(0)
        with torch.inference_mode():
            return probe(values, torch.tensor([len(kept)]))[0, 0].numpy()

    firsts = range(0, len(frames) - patch_frames + 1, hop)
    cut = [np.delete(frames, np.s_[first : first + patch_frames], axis=0) for first in firsts]
    return np.stack([logits(frames) - logits(without) for without in cut])


@pytest.mark.parametrize("compression", [None, 10.0])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_evidence_is_what_the_logit_loses_without_a_frame(
    tmp_path: Path, architecture: str, compression: float | None
) -> None:
    workspace, _ = event_workspace(tmp_path, n_clips=4)
    store, probe = open_store(workspace), make_probe(architecture, 24, 3, compression)
    found = evidence(probe, store, 2)
    for student in range(3):
        expected = asked_again(probe.student(student), np.array(store.frames(2)), 1, 1)
        np.testing.assert_allclose(found[student], expected, atol=2e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_patches_of_many_frames_are_left_out_whole(tmp_path: Path, architecture: str) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=3, n_frames=300))
    probe = make_probe(architecture, store.n_bands)
    expected = asked_again(probe, np.array(store.frames(1)), 96, 48)
    assert expected.shape == (5, 3)
    np.testing.assert_allclose(evidence(probe, store, 1)[0], expected, atol=2e-3)
    best = best_patches(probe, ClipExamples(store, np.array([2, 1])))
    assert best[0, 1].tolist() == expected.argmax(axis=0).tolist()
    np.testing.assert_array_equal(patch_outputs(probe, store, 1), evidence(probe, store, 1)[0])


def test_a_network_of_patches_says_its_outputs(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=3, n_frames=300))
    network = build_model(ModelParams(width=0.125), 3).eval()
    patches = torch.from_numpy(store.patches(np.full(5, 1), np.arange(5)).astype(np.float32))
    with torch.inference_mode():
        expected = torch.sigmoid(network(patches)).numpy()
    np.testing.assert_allclose(patch_outputs(network, store, 1), expected, atol=1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_clips_asked_about_together_are_as_if_alone(
    tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earmark.models.clip_scores.PATCHES_AT_ONCE", 25)
    workspace, _ = event_workspace(tmp_path, n_clips=9)
    store, probe = open_store(workspace), make_probe(architecture, 24, 2)
    rows = np.array([3, 8, 0, 5, 1])
    alone = np.stack([evidence(probe, store, row) for row in rows], axis=1)  # [s, clip, patch, c]
    found = best_patches(probe, ClipExamples(store, rows))
    chosen = np.take_along_axis(alone, found[:, :, None].astype(int), axis=2)[:, :, 0]
    np.testing.assert_allclose(chosen, alone.max(axis=2), atol=1e-4)
