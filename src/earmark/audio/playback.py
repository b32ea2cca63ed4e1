"""A clip for people: WAV or MP3 at an even loudness, and a PNG of the teacher's log-mel frames.

The report and the listening page use the same sound and picture. Sound is served whole or by byte
range.
"""

from __future__ import annotations

import io
import re
import wave

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.audio.frame_store import FrameStore
from earmark.audio.front_end import log_mel
from earmark.config import FrontEndParams
from earmark.errors import load_library

PICTURE_HEIGHT = 192
MOST_COLUMNS = 1_200
"""Width in pixels of the picture of a long clip; shorter ones have a pixel for each frame."""


LOG_MEL_RANGE = (-6.9, 3.0)
"""Levels of log-mel pictures, from silence to a loud tone: the same, so they can be compared."""
_MAGMA = bytes.fromhex(
    "0000030101090303110605190a07220e0a2a120d33170f3c1c10462211502811592f1062350f6a3c0f71"
    "430f754a107952127c58157e5e177f651a806b1c80711f817721817e24818426818a2881912a80972c7f"
    "9e2e7ea4307dab337cb1357ab93778c03a75c63c73cd3f70d3426dd9466ade4a67e44e64e85461ed595f"
    "f0605df3675bf66e5bf8755cf97d5dfb8460fc8e63fd9567fd9d6bfda470feac75feb37bfebb80fec286"
    "fec98dfdd193fdd89afddfa1fce6a8fceeb0fcf5b7fbfcbf"
)
"""The shades of matplotlib's colour map magma, from dark to bright: three bytes each."""
_LOG_MEL_COLOURS = len(_MAGMA) // 3  # enough for the eye, and a third of the bytes of full colour
_PATCH_COLOUR = (86, 180, 233)  # sky blue does not occur in the magma colour map


def seen_frames(
    store: FrameStore | None, clip_id: str, waveform: NDArray[np.float32], params: FrontEndParams
) -> NDArray[np.floating]:
    """Return a clip's log-mel frames [frame, band]: the stored ones, or made from its waveform.

    ``waveform`` [sample] is at the front end's rate. A store of embeddings holds nothing to look
    at. Frames that only cover padding are left out, so that the picture is as long as the sound.
    """
    n_heard = max(round(len(waveform) / params.hop_samples), 1)
    rows = [-1] if store is None or store.meta.front_end is None else store.rows_of([clip_id])
    if store is None or rows[0] < 0:
        return log_mel(waveform, params)[:n_heard]
    return np.asarray(store.frames(int(rows[0])))[:n_heard]


def picture_png(frames: NDArray[np.floating]) -> bytes:
    """Draw frames [frame, band] with the colours that all pictures share, low bands below."""
    width = min(max(len(frames), 1), MOST_COLUMNS)
    return log_mel_png(frames, width=width, height=PICTURE_HEIGHT)


def log_mel_png(
    frames: ArrayLike,
    best_patch: tuple[int, int] | None = None,
    width: int = 320,
    height: int = 100,
) -> bytes:
    """Return a small PNG of a clip's log-mel frames [frame, band], low bands at the bottom.

    Colours run from silence to a loud tone, the same in every picture. ``best_patch`` (first
    frame and the one after the last) is framed. No frames give a picture of silence.
    """
    frames = np.asarray(frames, np.float32)
    low, high = LOG_MEL_RANGE
    n_frames = len(frames)
    if n_frames == 0:
        frames = np.full((1, 1), low, np.float32)
    columns = np.arange(width) * len(frames) // width
    bands = np.arange(height)[::-1] * frames.shape[1] // height
    picture = frames[columns[None, :], bands[:, None]]  # [height, width]
    levels = np.clip((picture - low) / (high - low), 0, 1) * (_LOG_MEL_COLOURS - 1)
    pixels = np.rint(np.nan_to_num(levels)).astype(np.uint8)
    if best_patch is not None and n_frames:
        start, end = (round(frame * width / n_frames) for frame in best_patch)
        _frame_pixels(pixels, max(start, 0), min(end, width))
    return _palette_png(pixels)


def _frame_pixels(pixels: NDArray[np.uint8], start: int, end: int) -> None:
    """Draw the outline of the columns ``start:end``, two pixels wide, in place."""
    pixels[:2, start:end] = pixels[-2:, start:end] = _LOG_MEL_COLOURS
    pixels[:, start : start + 2] = pixels[:, max(end - 2, 0) : end] = _LOG_MEL_COLOURS


def _palette_png(pixels: NDArray[np.uint8]) -> bytes:
    pictures = load_library("PIL.Image", "drawing a picture of a clip", "report")
    image = pictures.fromarray(pixels).convert("P")
    image.putpalette([*_MAGMA, *_PATCH_COLOUR])
    png = io.BytesIO()
    image.save(png, format="png", optimize=True)
    return png.getvalue()


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
