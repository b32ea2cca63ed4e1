from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earmark.audio import BadRange, byte_range, wav_bytes


def _tone(amplitude: float, n_samples: int = 44_100) -> np.ndarray:
    return (amplitude * np.sin(np.arange(n_samples) * 0.1)).astype(np.float32)


def _decoded(waveform: np.ndarray) -> np.ndarray:
    samples, rate_hz = soundfile.read(io.BytesIO(wav_bytes(waveform)))
    assert rate_hz == 44_100
    return samples


@pytest.mark.parametrize("amplitude", [0.02, 0.1, 0.9])
def test_quiet_and_loud_clips_come_out_equally_loud(amplitude: float) -> None:
    played = _decoded(_tone(amplitude))
    assert np.sqrt(np.mean(played**2)) == pytest.approx(0.1, rel=0.01)


def test_a_click_in_silence_is_amplified_only_as_far_as_it_fits() -> None:
    waveform = np.zeros(44_100, np.float32)
    waveform[100] = 0.5
    played = _decoded(waveform)
    assert played.max() == pytest.approx(0.95, abs=1e-3)


@pytest.mark.parametrize("n_samples", [0, 10])
def test_silence_stays_silent(n_samples: int) -> None:
    assert not _decoded(np.zeros(n_samples, np.float32)).any()


@given(start=st.integers(0, 60), end=st.integers(0, 60), n_bytes=st.integers(1, 50))
def test_a_range_is_what_slicing_gives(start: int, end: int, n_bytes: int) -> None:
    content = bytes(range(n_bytes))
    if start >= n_bytes or end < start:
        with pytest.raises(BadRange):
            byte_range(f"bytes={start}-{end}", n_bytes)
        return
    first, after = byte_range(f"bytes={start}-{end}", n_bytes)
    assert content[first:after] == content[start : end + 1]


@pytest.mark.parametrize(
    "header", ["bytes=-", "bytes=-0", "bytes=0-1,3-4", "chunks=0-1", "bytes=a-b", "bytes=٣-", ""]
)
def test_other_ranges_are_refused(header: str) -> None:
    with pytest.raises(BadRange):
        byte_range(header, 10)
