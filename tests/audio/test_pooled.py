from __future__ import annotations

import numpy as np

from earmark.audio import pooled


def test_it_is_what_numpy_says_of_every_band() -> None:
    frames = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    found = pooled(frames).reshape(4, 8)
    for band in range(8):
        own = frames[:, band].astype(np.float64)
        change = own[1:] - own[:-1]
        np.testing.assert_allclose(
            found[:, band], [own.mean(), own.std(), own.max(), change.std()], rtol=1e-5, atol=1e-6
        )


def test_one_frame_has_no_change() -> None:
    assert pooled(np.ones((1, 2))).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
