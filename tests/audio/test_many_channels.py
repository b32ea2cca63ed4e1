"""Sounds of many channels, read by FFmpeg: eight and more lie in memory in another way than two."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from documents import ROOT
from earmark.audio import read_clip

RATE = 16_000


def write_channels(path: Path, n_channels: int) -> None:
    """Write a tone in each channel, the loudest in the first."""
    tone = np.sin(np.arange(RATE) / 5) / 3
    samples = np.outer(tone, 1 / np.arange(1, n_channels + 1))
    packed = np.round(samples * 32_767).astype(np.int16).reshape(1, -1)
    layout = {1: "mono", 2: "stereo", 8: "7.1", 9: "9 channels"}[n_channels]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=RATE, layout=layout)
        frame = av.AudioFrame.from_ndarray(packed, "s16", layout)
        frame.sample_rate, frame.time_base, frame.pts = RATE, Fraction(1, RATE), 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("n_channels", [1, 2, 8, 9])
def test_channels_are_averaged(tmp_path: Path, n_channels: int) -> None:
    write_channels(tmp_path / "a.mkv", n_channels)
    expected = np.sin(np.arange(RATE) / 5) / 3 * np.mean(1 / np.arange(1, n_channels + 1))
    np.testing.assert_allclose(read_clip(tmp_path / "a.mkv", RATE), expected, atol=1e-4)


def test_a_file_of_many_channels_does_not_end_the_process() -> None:
    """PyAV looks for planes beyond the last where there are eight or more, and falls."""
    path = ROOT / "tests" / "damaged" / "165-channels.ogg"
    code = "import sys; from earmark.audio import read_clip; read_clip(sys.argv[1], 16_000)"
    command = [sys.executable, "-c", code, str(path)]
    for _ in range(3):  # what lies behind the last is chance
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert told.returncode == 1
        assert "165-channels.ogg: the file is damaged" in told.stderr
