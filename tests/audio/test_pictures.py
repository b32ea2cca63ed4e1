from __future__ import annotations

import io

import numpy as np
from PIL import Image

from earmark.audio import log_mel_png

SKY_BLUE = (86, 180, 233)


def pixels_of(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_log_mel_picture_has_low_bands_at_the_bottom_and_fixed_colours():
    frames = np.full((50, 64), -6.9)
    frames[:, 0] = 3.0
    picture = pixels_of(log_mel_png(frames))
    assert picture.shape == (100, 320, 3)
    assert picture[-1].min() > 150
    assert picture[0].max() < 10
    louder = frames.copy()
    louder[0, 30] = 10.0
    np.testing.assert_array_equal(picture[-1], pixels_of(log_mel_png(louder))[-1])


def test_log_mel_picture_frames_the_best_patch():
    frames = np.full((100, 64), -6.9)
    picture = pixels_of(log_mel_png(frames, best_patch=(25, 75)))
    is_blue = (picture == SKY_BLUE).all(axis=2)
    columns = np.flatnonzero(is_blue.any(axis=0))
    assert (columns[0], columns[-1]) == (80, 239)
    assert not is_blue[50, 100:200].any()
    beyond = pixels_of(log_mel_png(frames, best_patch=(80, 176)))
    assert (beyond[50, -1] == SKY_BLUE).all()


def test_log_mel_picture_of_nothing_is_silence():
    picture = pixels_of(log_mel_png(np.empty((0, 64)), best_patch=(0, 96)))
    assert picture.shape == (100, 320, 3)
    assert picture.max() < 10
