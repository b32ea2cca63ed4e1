from __future__ import annotations

import hashlib

import numpy as np
import pytest

from earmark.audio import front_end
from earmark.audio.spectra import circle, fill_log_mel, logarithm
from earmark.runs.parameters import FrontEndParams

NOISE = np.random.default_rng(0).uniform(-1, 1, 48_000).astype(np.float32)
DIGESTS = {  # of frames, by sample rate: the same on every machine
    16_000: "500e1c3c2f4e29f1",
    44_100: "a0b5588839b70dc4",
}


def arguments(n_samples: int = 64, n_fft: int = 16, n_bands: int = 2) -> list[object]:
    bands = np.full(n_bands, 4, np.int32), np.arange(3, 3 * n_bands + 1, 3, dtype=np.int32)
    return [
        NOISE[:n_samples],
        np.ones(n_fft, np.float32),
        circle(n_fft).astype(np.float32),
        *bands,
        np.ones(3 * n_bands, np.float32),
        np.empty((5, n_bands), np.float32),
        8,
        0.5,
    ]


def digest(frames: np.ndarray) -> str:
    return hashlib.sha256(frames.astype("<f4").tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("rate_hz", DIGESTS)
def test_frames_are_these_bytes_on_every_machine(rate_hz: int) -> None:
    params = FrontEndParams(sample_rate_hz=rate_hz)
    fading = NOISE * np.linspace(0, 1, len(NOISE), dtype=np.float32)
    assert digest(front_end.log_mel(fading, params)) == DIGESTS[rate_hz]


@pytest.mark.parametrize("n_fft", [2, 4, 8, 16, 128, 512, 2048])
def test_bands_of_any_size_of_fft_equal_numpys(n_fft: int) -> None:
    n_bins = n_fft // 2 + 1
    ones, ends = np.ones(n_bins, np.float32), np.arange(1, n_bins + 1, dtype=np.int32)
    found = np.empty((20, n_bins), np.float32)
    turns, hop = circle(n_fft).astype(np.float32), max(n_fft // 3, 1)
    fill_log_mel(
        NOISE, np.ones(n_fft, np.float32), turns, ends - 1, ends, ones / 2, found, hop, 1.0
    )
    frames = [NOISE[first : first + n_fft] for first in range(0, 20 * hop, hop)]
    expected = np.log(np.abs(np.fft.rfft(np.float64(frames))) + 1)
    np.testing.assert_allclose(found, expected, atol=3e-6, rtol=0)


def test_a_number_of_frames_at_once_changes_none_of_them() -> None:
    whole = front_end.log_mel(NOISE)
    for first in (1, 7, 8, 50):
        part = front_end.log_mel(NOISE[160 * first :])
        assert np.array_equal(part[:100], whole[first : first + 100])


def test_the_logarithm_is_rounded_like_a_precise_one() -> None:
    """Frames of one bin without sound are the logarithm of the offset alone."""
    offsets = np.geomspace(1e-30, 1e30, 999).astype(np.float32)
    given = arguments(n_samples=0)
    for offset in offsets:
        given[-1] = float(offset)
        fill_log_mel(*given)
        assert given[6][0, 0] == np.float32(np.log(np.float64(offset)))


def test_curves_equal_numpys() -> None:
    for n in (1, 2, 7, 400, 512):
        steps = 2 * np.pi * np.arange(n) / n
        np.testing.assert_allclose(
            circle(n), np.stack([np.cos(steps), np.sin(steps)], 1), atol=2e-15
        )
    values = np.geomspace(1e-9, 1e9, 999)
    np.testing.assert_allclose(logarithm(values), np.log(values), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (0, np.zeros(4)),
        (1, np.ones(17, np.float32)),
        (2, np.ones((12, 2), np.float32)),
        (2, np.ones((16, 3), np.float32)),
        (3, np.array([-1, 0], np.int32)),
        (3, np.array([4, 7], np.int32)),
        (3, np.array([4, 2**31 - 1], np.int32)),
        (4, np.array([3, 2], np.int32)),
        (4, np.array([3, 7], np.int32)),
        (4, np.array([3], np.int32)),
        (6, np.empty((5, 3), np.float32)),
        (7, 0),
        (7, -8),
    ],
)
def test_what_would_reach_beyond_an_array_is_refused(place: int, wrong: object) -> None:
    given = arguments()
    fill_log_mel(*given)
    given[place] = wrong
    with pytest.raises((TypeError, ValueError)):
        fill_log_mel(*given)


def test_a_wrong_number_of_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match="expected 9 arguments"):
        fill_log_mel(*arguments()[:-1])
