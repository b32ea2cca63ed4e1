"""What a sound file says of itself: how long it is, its rate and its channels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from earmark.errors import check_libraries


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
        with av.open(f"file:{path}", metadata_errors="ignore") as container:
            if container.duration is None or not container.streams.audio:
                return None
            sound = container.streams.audio[0]
            return SoundHeader(
                container.duration / av.time_base, sound.rate, len(sound.layout.channels)
            )
    except Exception:  # a damaged header leads FFmpeg's reader into errors of all kinds
        return None


def duration_seconds(path: Path) -> float | None:
    """Return the length of a sound file in seconds; None where its header does not tell."""
    header = sound_header(path)
    return None if header is None else header.seconds
