from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earmark.audio import front_end
from earmark.config import FrontEndParams
from earmark.errors import EarmarkError

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "front_end.npz")
LENGTHS = (100, 8000, 15600, 15601, 16000, 23281, 48000)
SILENCE = -6.907755


def slow_log_mel(waveform: np.ndarray) -> np.ndarray:
    """The front end by its definition: one frame, one bin, one band at a time, in float64."""
    hann = [0.5 - 0.5 * np.cos(2 * np.pi * i / 400) for i in range(400)]
    to_mel = lambda hz: 1127 * np.log(1 + hz / 700)  # noqa: E731
    step = (to_mel(7500) - to_mel(125)) / 65
    frames = []
    for start in range(0, len(waveform) - 400 + 1, 160):
        magnitudes = np.abs(np.fft.fft(waveform[start : start + 400] * hann, 512))[:257]
        bands = np.zeros(64)
        for band in range(64):
            centre = to_mel(125) + (band + 1) * step
            for k in range(1, 257):
                distance = abs(to_mel(k * 16000 / 512) - centre) / step
                bands[band] += max(0.0, 1 - distance) * magnitudes[k]
        frames.append(np.log(bands + 0.001))
    return np.array(frames)


def tone(hz: float, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(16_000 * seconds)) / 16_000).astype(np.float32)


@pytest.mark.parametrize("n_samples", LENGTHS)
def test_agrees_with_the_golden_numbers(n_samples):
    waveform, expected = GOLDEN[f"waveform_{n_samples}"], GOLDEN[f"log_mel_{n_samples}"]
    frames = front_end.log_mel(waveform)
    assert frames.dtype == np.float32
    assert frames.shape == expected.shape
    np.testing.assert_allclose(frames, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("n_samples", LENGTHS)
def test_padding_and_patch_counts_are_golden(n_samples):
    waveform, n_patches = GOLDEN[f"waveform_{n_samples}"], GOLDEN[f"n_patches_{n_samples}"]
    padded = front_end.pad(waveform)
    assert len(padded) == GOLDEN[f"padded_samples_{n_samples}"]
    assert np.array_equal(padded[:n_samples], waveform)
    assert not padded[n_samples:].any()
    frames = front_end.log_mel(waveform)
    assert front_end.n_patches(len(frames)) == n_patches
    assert front_end.patches(frames).shape == (n_patches, 96, 64)


def test_mel_matrix_is_golden_and_without_a_constant_bin():
    weights = front_end.mel_matrix()
    np.testing.assert_allclose(weights, GOLDEN["mel_matrix"], atol=1e-4, rtol=0)
    assert not weights[0].any()


def test_agrees_with_the_slow_twin():
    waveform = np.random.default_rng(0).uniform(-1, 1, 15_600).astype(np.float32)
    slow = slow_log_mel(waveform[: 400 + 3 * 160])
    np.testing.assert_allclose(front_end.log_mel(waveform)[:4], slow, atol=1e-4, rtol=0)


@pytest.mark.parametrize("n_samples", LENGTHS)
def test_the_torch_module_agrees_with_the_cpu(n_samples):
    waveform = GOLDEN[f"waveform_{n_samples}"]
    frames = front_end.log_mel_module()(torch.from_numpy(waveform)).numpy()
    np.testing.assert_allclose(frames, front_end.log_mel(waveform), atol=1e-4, rtol=0)


def test_the_torch_module_takes_batches_and_has_no_weights_to_train_or_save():
    module = front_end.log_mel_module()
    waveforms = np.random.default_rng(0).uniform(-1, 1, (2, 16_000)).astype(np.float32)
    frames = module(torch.from_numpy(waveforms))
    assert frames.shape == (2, 144, 64)
    np.testing.assert_allclose(frames[1], front_end.log_mel(waveforms[1]), atol=1e-4, rtol=0)
    assert list(module.parameters()) == []
    assert module.state_dict() == {}


def test_the_torch_module_exports_for_any_batch_and_length():
    module = front_end.log_mel_module()
    dims = {0: torch.export.Dim("clip"), 1: torch.export.Dim("sample", min=401, max=10**6)}
    exported = torch.export.export(
        module, (torch.zeros(2, 20_000),), dynamic_shapes={"waveform": dims}
    )
    waveforms = torch.from_numpy(np.stack([tone(440, 3.0)] * 3))
    assert torch.allclose(exported.module()(waveforms), module(waveforms), atol=1e-5)


@pytest.mark.parametrize("n_samples", [0, 1, 399, 16_000])
def test_silence_is_the_log_of_the_offset(n_samples):
    frames = front_end.log_mel(np.zeros(n_samples, np.float32))
    assert len(frames) == (144 if n_samples == 16_000 else 96)
    np.testing.assert_allclose(frames, SILENCE, atol=1e-6)


@given(n_frames=st.integers(0, 60), patch=st.integers(1, 20), hop=st.integers(1, 20))
def test_patches_are_slices(n_frames, patch, hop):
    params = FrontEndParams(patch_frames=patch, patch_hop_frames=hop)
    frames = np.arange(n_frames * 3).reshape(n_frames, 3)
    slices = [frames[i : i + patch] for i in range(0, n_frames - patch + 1, hop)]
    cut = front_end.patches(frames, params)
    assert len(cut) == len(slices) == front_end.n_patches(n_frames, params)
    assert all(np.array_equal(a, b) for a, b in zip(cut, slices, strict=True))


@given(n_samples=st.integers(0, 10**7))
def test_padding_is_the_least_that_covers_all_samples_with_patches(n_samples):
    padded = front_end.padded_samples(n_samples)
    assert padded >= max(n_samples, 15_600)
    assert (padded - 15_600) % 7_680 == 0
    assert padded == 15_600 or padded - 7_680 < n_samples
    assert front_end.padded_samples(padded) == padded


@pytest.mark.parametrize(
    "waveform", [np.zeros((2, 16_000), np.float32), np.zeros(16_000, np.int16)]
)
def test_refuses_what_is_not_a_mono_float_waveform(waveform):
    with pytest.raises(EarmarkError, match="mono waveform"):
        front_end.log_mel(waveform)


@pytest.mark.parametrize(
    ("rate_hz", "digest"), [(16_000, "665f0072b29f7298"), (44_100, "13fb4c18bac11209")]
)
def test_frames_are_these_bytes_on_every_machine(rate_hz: int, digest: str) -> None:
    noise = np.random.default_rng(0).uniform(-1, 1, 48_000).astype(np.float32)
    fading = noise * np.linspace(0, 1, len(noise), dtype=np.float32)
    frames = front_end.log_mel(fading, FrontEndParams(sample_rate_hz=rate_hz))
    assert hashlib.sha256(frames.astype("<f4").tobytes()).hexdigest()[:16] == digest


def test_a_frame_does_not_depend_on_those_beside_it() -> None:
    noise = np.random.default_rng(0).uniform(-1, 1, 48_000).astype(np.float32)
    whole = front_end.log_mel(noise)
    for first in (1, 7, 8, 63, 64):
        part = front_end.log_mel(noise[160 * first :])
        assert np.array_equal(part[:100], whole[first : first + 100])
