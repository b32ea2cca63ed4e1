"""What is heard of a clip: a WAV or an MP3 at an even loudness, whole or by byte range."""

from __future__ import annotations

import io
import re
import wave

import numpy as np
from numpy.typing import NDArray

from earmark.errors import load_library

PLAYED_HZ = 44_100
"""Sample rate of what is played: all that people hear, whatever the teacher heard."""

_TARGET_RMS = 0.1
"""Loudness that clips are brought to: 20 dB below full scale."""

LOUDEST_PEAK = 0.95
"""No sample exceeds it after the gain, so that nothing clips."""

_MOST_GAIN = 16.0
"""Silence is not amplified by more than this (24 dB)."""


class BadRange(ValueError):  # noqa: N818 - named for what it is, as HTTP does
    """The bytes asked for are not in the clip."""


def loudness_gain(waveform: NDArray[np.float32]) -> float:
    """Return the factor that brings a waveform [sample] to the common loudness.

    Capped by the peak and by ``_MOST_GAIN``; 1 for silence and for an empty waveform.

    >>> loudness_gain(np.full(100, 0.05, np.float32))
    2.0
    """
    peak = float(np.abs(waveform).max(initial=0.0))
    if peak == 0.0:
        return 1.0
    rms = float(np.sqrt(np.mean(np.square(waveform, dtype=np.float64))))
    return round(min(_TARGET_RMS / rms, LOUDEST_PEAK / peak, _MOST_GAIN), 4)


def wav_bytes(waveform: NDArray[np.float32], rate_hz: int = PLAYED_HZ) -> bytes:
    """Return a waveform [sample] as a mono 16-bit WAV file, at the common loudness."""
    return plain_wav(loudness_gain(waveform) * waveform, rate_hz)


def plain_wav(waveform: NDArray[np.float32], rate_hz: int) -> bytes:
    """Return a waveform [sample] in [-1, 1] as a mono 16-bit WAV file, as loud as it is."""
    scaled = np.clip(waveform, -1, 1) * 32_767
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate_hz)
        writer.writeframes(np.rint(scaled).astype("<i2").tobytes())
    return file.getvalue()


def mp3_bytes(waveform: NDArray[np.float32], rate_hz: int) -> bytes:
    """Return a waveform [sample] as a mono MP3 file, at the common loudness: small, for pages."""
    soundfile = load_library("soundfile", "putting sounds into a page", "audio")
    file = io.BytesIO()
    scaled = np.clip(loudness_gain(waveform) * waveform, -1, 1)
    soundfile.write(file, scaled, rate_hz, format="MP3")
    return file.getvalue()


def byte_range(header: str, n_bytes: int) -> tuple[int, int]:
    """Return the first byte, and the one after the last, that a Range header asks for.

    One range of bytes is understood, which is what players send; anything else, and a range that
    starts beyond the end, raises :class:`BadRange`.

    >>> byte_range("bytes=2-", 10), byte_range("bytes=-3", 10), byte_range("bytes=0-99", 10)
    ((2, 10), (7, 10), (0, 10))
    """
    found = re.fullmatch(r"bytes=([0-9]{0,18})-([0-9]{0,18})", header.strip())
    if found is None or found[0].endswith("=-"):
        raise BadRange(header)
    first, last = found[1], found[2]
    if first == "":
        start, end = max(n_bytes - int(last), 0), n_bytes
    else:
        start, end = int(first), min(int(last) + 1, n_bytes) if last else n_bytes
    if start >= end:
        raise BadRange(header)
    return start, end
