"""Decode a sound file, mix it down to one channel and resample it; or read its header only.

libsndfile (through soundfile) is the fastest reader of wav, flac, ogg and mp3 and identifies a
file by its content, not its name; FFmpeg (through PyAV) reads the rest: m4a, webm, video. Sound is
decoded in blocks, so a clip takes the memory of its result. A file that ends early is decoded as
far as it goes. A file that cannot be decoded raises :class:`UnreadableAudio`, whose reason goes to
the quarantine.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_libraries, load_library
from earmark.memory import is_memory_error
from earmark.storage import UnreadableAudio as UnreadableAudio
from earmark.storage import local_copy


@dataclass(frozen=True)
class SoundHeader:
    """What a sound file says of itself."""

    seconds: float
    rate_hz: int
    n_channels: int


def sound_header(path: Path) -> SoundHeader | None:
    """Return length, rate and channels of a sound file; None where its header does not tell."""
    check_libraries("telling how long a sound file is", "soundfile", "av")
    import av  # optional, like soundfile: labels are of use without audio
    import soundfile

    try:
        told = soundfile.info(path)
        return SoundHeader(float(told.duration), told.samplerate, told.channels)
    except (soundfile.LibsndfileError, TypeError):
        pass
    try:
        with open_container(path) as container:
            if container.duration is None or not container.streams.audio:
                return None
            sound = container.streams.audio[0]
            return SoundHeader(
                container.duration / av.time_base, sound.rate, len(sound.layout.channels)
            )
    except Exception as error:  # a damaged header leads FFmpeg's reader into errors of all kinds
        if is_memory_error(error):
            raise
        return None


def duration_seconds(path: Path) -> float | None:
    """Return the length of a sound file in seconds; None where its header does not tell."""
    header = sound_header(path)
    return None if header is None else header.seconds


BLOCK_SAMPLES = 1 << 19
"""Samples (of all channels together) that are decoded at once."""

LONGEST_SECONDS = 4_000.0
"""An hour and some: what is decoded at once may be no longer. Silence of a day fits into 1 MB."""

LONGEST = "EARMARK_LONGEST_CLIP_SECONDS"
"""The environment's word for another limit."""

_MOST_STRETCHED = 8
"""How many times as many samples a block may become; a file may claim a rate of 1 Hz."""

_LOUDEST_SAMPLE = 100.0
"""Floats may overshoot full scale (1.0), but not by this much: then they are integers."""

_FORMATS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,dts,eac3,flac,flv,gsm,loas,matroska,webm,"
    "mov,mp4,m4a,3gp,3g2,mj2,mp3,mpc,mpc8,mpeg,mpegts,mxf,nut,ogg,rm,shn,tak,tta,voc,w64,wav,wv,"
    "xwma"
)
"""FFmpeg's names of the formats that are read."""

_WARM_UP_SECONDS = 1.0
"""Decoded and dropped before a segment in FFmpeg, whose codecs need some sound to settle."""


@dataclass(frozen=True)
class _Segment:
    """The part of a file that is asked for, in seconds; the end may be infinite."""

    start_seconds: float
    end_seconds: float

    def samples(self, rate_hz: int) -> tuple[int, float]:
        end = self.end_seconds * rate_hz
        return round(self.start_seconds * rate_hz), round(end) if math.isfinite(end) else end

    def __str__(self) -> str:
        end = "on" if math.isinf(self.end_seconds) else f"to {self.end_seconds:g} s"
        return f"from {self.start_seconds:g} s {end}"


def read_clip(
    path: str | Path,
    sample_rate_hz: int,
    start_seconds: float | None = None,
    end_seconds: float | None = None,
) -> NDArray[np.float32]:
    """Read a file, or a segment of it, as one mono waveform [sample] float32.

    Integers are scaled to [-1, 1], channels are averaged, and the rate is converted by soxr (HQ).
    Only the segment is decoded; where the file ends before the segment does, the waveform is
    shorter. A file named by a URL is fetched first. A file that is missing, empty or damaged, or
    that holds NaN, or more than ``LONGEST_SECONDS``, raises :class:`UnreadableAudio`.
    """
    blocks, n_left = [], _longest_seconds() * sample_rate_hz
    for block in stream_clip(path, sample_rate_hz, start_seconds, end_seconds):
        blocks.append(block)
        n_left -= len(block)
        if n_left < 0:
            raise UnreadableAudio(
                path,
                f"longer than {_longest_seconds():,g} s: cut it into clips (start_seconds and "
                f"end_seconds; `earmark import sounds` does), or allow more, which takes memory, "
                f"by {LONGEST}=36000",
            )
    return np.concatenate(blocks)


def _longest_seconds() -> float:
    text = os.environ.get(LONGEST, "")
    try:
        return float(text or LONGEST_SECONDS)
    except ValueError:
        raise EarmarkError(
            f"{LONGEST}={text!r}: not a number of seconds; set one such as 36000, or unset it"
        ) from None


def stream_clip(
    path: str | Path,
    sample_rate_hz: int,
    start_seconds: float | None = None,
    end_seconds: float | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Yield the waveform of :func:`read_clip` block by block, for files longer than memory."""
    with local_copy(path) as file:
        try:
            yield from _stream_file(file, sample_rate_hz, start_seconds, end_seconds)
        except UnreadableAudio as error:
            raise UnreadableAudio(path, error.reason) from None  # by the name that was asked for
        except EarmarkError:
            raise
        except Exception as error:  # bytes of others enter here: decoders raise all kinds
            if is_memory_error(error):
                raise
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UnreadableAudio(path, f"the file cannot be decoded ({told})") from None


def _stream_file(
    path: Path, sample_rate_hz: int, start_seconds: float | None, end_seconds: float | None
) -> Iterator[NDArray[np.float32]]:
    segment = _checked_segment(path, start_seconds, end_seconds)
    _check_file(path)
    rate_hz, blocks = _decode(path, segment)
    is_empty = True
    for block in _resample(_checked_blocks(path, blocks), rate_hz, sample_rate_hz):
        is_empty = is_empty and not len(block)
        yield block
    if is_empty:
        raise UnreadableAudio(path, f"there are no samples {segment}")


def _checked_segment(path: Path, start: float | None, end: float | None) -> _Segment:
    segment = _Segment(0.0 if start is None else start, math.inf if end is None else end)
    if not 0 <= segment.start_seconds < segment.end_seconds:
        raise UnreadableAudio(
            path, f"the clip is said to run {segment}, which is no stretch of time"
        )
    return segment


def _check_file(path: Path) -> None:
    """Name the troubles that decoders describe badly."""
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableAudio(path, _reason(error)) from None
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableAudio(path, "not a file but a folder or a device")
    if status.st_size == 0:
        raise UnreadableAudio(path, "the file is empty (0 bytes)")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _decode(path: Path, segment: _Segment) -> tuple[int, Iterator[NDArray[np.float32]]]:
    """Return the sample rate and the mono blocks of a segment."""
    soundfile = _library("soundfile")
    try:
        sound = soundfile.SoundFile(path)
    except (soundfile.LibsndfileError, TypeError):  # TypeError: named .raw, so a rate is expected
        return _decode_by_ffmpeg(path, segment)
    return sound.samplerate, _soundfile_blocks(path, sound, segment)


def _soundfile_blocks(path: Path, sound: Any, segment: _Segment) -> Iterator[NDArray[np.float32]]:
    start, end = segment.samples(sound.samplerate)
    n_block = max(BLOCK_SAMPLES // sound.channels, 1)
    with sound:
        try:
            position = sound.seek(min(start, sound.frames))
            while position < end:
                n_wanted = int(min(n_block, end - position))
                block = sound.read(n_wanted, dtype="float32", always_2d=True)  # [sample, channel]
                if len(block) == 0:
                    return
                position += len(block)
                yield _mix_down(block)
        except _library("soundfile").LibsndfileError as error:
            raise UnreadableAudio(path, f"the file is damaged ({error})") from None


def open_container(path: Path) -> Any:
    """Open a file by FFmpeg as one of the formats that hold sound themselves.

    Playlists (HLS, DASH, concat, SDP) name other files and machines, and are not opened.
    """
    # Without "file:" a colon in a name would be taken for the end of a protocol.
    return _library("av").open(
        f"file:{path}",
        metadata_errors="ignore",
        options={"format_whitelist": _FORMATS, "protocol_whitelist": "file"},
    )


def _decode_by_ffmpeg(path: Path, segment: _Segment) -> tuple[int, Iterator[NDArray[np.float32]]]:
    av = _library("av")
    try:
        container = open_container(path)
    except (av.FFmpegError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableAudio(path, f"not a sound file that can be read ({reason})") from None
    if container.streams.audio and container.streams.audio[0].codec_context is None:
        container.close()
        raise UnreadableAudio(path, "no decoder knows the format of its sound")
    if not container.streams.audio or not container.streams.audio[0].rate:
        container.close()
        raise UnreadableAudio(path, "there is no sound in the file")
    stream = container.streams.audio[0]
    return stream.rate, _ffmpeg_blocks(path, container, stream, segment)


def _ffmpeg_blocks(
    path: Path, container: Any, stream: Any, segment: _Segment
) -> Iterator[NDArray[np.float32]]:
    av = _library("av")
    start, end = segment.samples(stream.rate)
    with container:
        try:
            if segment.start_seconds > _WARM_UP_SECONDS:
                container.seek(int((segment.start_seconds - _WARM_UP_SECONDS) * av.time_base))
            for position, block in _ffmpeg_frames(container, stream):
                if position >= end:
                    return
                skip = max(start - position, 0)
                keep = int(min(end - position, len(block)))
                if skip < keep:
                    yield block[skip:keep]
        except (av.FFmpegError, ValueError) as error:
            if is_memory_error(error):
                raise
            raise UnreadableAudio(path, f"the file is damaged ({error})") from None


def _ffmpeg_frames(container: Any, stream: Any) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield decoded mono blocks, each with the number of its first sample."""
    av = _library("av")
    # Not in planes: where there are eight or more, PyAV looks for others beyond the last.
    to_floats = av.AudioResampler(format="flt", rate=stream.rate)
    # Some containers begin to count time at an arbitrary moment; codecs' priming is before 0.
    origin_seconds = max(float((stream.start_time or 0) * stream.time_base), 0.0)
    position: int | None = None
    for coded in container.decode(stream):
        if position is None:
            position = round(((coded.time or 0.0) - origin_seconds) * stream.rate)
        for frame in to_floats.resample(coded):
            samples = frame.to_ndarray().reshape(-1, frame.layout.nb_channels)
            block = _mix_down(np.asfortranarray(samples))  # [sample, channel] -> [sample]
            yield position, block
            position += len(block)


def _mix_down(block: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average the channels of a block [sample, channel]."""
    n_channels = block.shape[1]
    if n_channels == 1:
        return block[:, 0]
    with np.errstate(all="ignore"):  # NaN and infinity are reported later, with the file's name
        # Many times faster than mean(axis=1), whose inner loop is over two numbers.
        mono: NDArray[np.float32] = block @ np.full(n_channels, 1 / n_channels, np.float32)
    return mono


def _checked_blocks(
    path: Path, blocks: Iterator[NDArray[np.float32]]
) -> Iterator[NDArray[np.float32]]:
    for block in blocks:
        peak = np.abs(block).max(initial=0)
        if not np.isfinite(peak):
            raise UnreadableAudio(path, "the file holds NaN or infinite samples")
        if peak > _LOUDEST_SAMPLE:
            raise UnreadableAudio(
                path, f"samples reach {peak:,.0f} where 1 is full scale: integers stored as floats?"
            )
        yield block


def _resample(
    blocks: Iterator[NDArray[np.float32]], from_hz: int, to_hz: int
) -> Iterator[NDArray[np.float32]]:
    if from_hz == to_hz:
        yield from blocks
        return
    stream = _library("soxr").ResampleStream(from_hz, to_hz, 1, dtype="float32", quality="HQ")
    is_stretched = to_hz > _MOST_STRETCHED * from_hz
    n_most = max(BLOCK_SAMPLES * from_hz // to_hz, 1) if is_stretched else BLOCK_SAMPLES
    for block in blocks:
        for first in range(0, len(block), n_most):
            yield stream.resample_chunk(np.ascontiguousarray(block[first : first + n_most]))
    yield stream.resample_chunk(np.empty(0, np.float32), last=True)


def _library(name: str) -> Any:
    """Import one of the optional audio libraries: labels and scores are of use without them."""
    return load_library(name, "reading audio", "audio")
