from __future__ import annotations

import numpy as np

from earmark.audio import log_mel, pooled


def test_it_is_what_numpy_says_of_every_band() -> None:
    frames = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    found = pooled(frames).reshape(4, 8)
    for band in range(8):
        own = frames[:, band].astype(np.float64)
        change = own[1:] - own[:-1]
        np.testing.assert_allclose(
            found[:, band], [own.mean(), own.std(), own.max(), change.std()], rtol=1e-5, atol=1e-6
        )


def test_clicks_hiss_and_tones_differ_where_they_should() -> None:
    time = np.arange(16_000) / 16_000
    tone = (0.3 * np.sin(2 * np.pi * 1_000 * time)).astype(np.float32)
    clicks = np.zeros(16_000, np.float32)
    clicks[::2_000] = 1.0
    steady, beating = (pooled(log_mel(sound)[:96]).reshape(4, 64) for sound in (tone, clicks))
    band = int(steady[0].argmax())
    assert steady[3, band] < 0.1 < beating[3, band]


def test_one_frame_has_no_change() -> None:
    assert pooled(np.ones((1, 2))).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
