"""Which file a sound came from: it is known by its size and its two ends, wherever it lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from earmark.audio.frame_store import FrameStore, fingerprint
from earmark.storage import AudioAccess, UnreadableAudio, is_url, local_copy

_EDGE_BYTES = 1 << 16
"""A file is known by its size and this many of its first and last bytes."""


def source_of(access: AudioAccess, audio: str) -> str | None:
    """Identify a file that may not be there, or not be read; see :func:`file_fingerprint`."""
    try:
        with local_copy(access.place(audio)) as path:
            return file_fingerprint(path)
    except UnreadableAudio:
        return None


def file_fingerprint(path: Path) -> str | None:
    """Identify a file by its size and its two ends; None where it cannot be read.

    Times are left out, so that a copy is the same file; the middle is left out, so that an hour
    cut into hundreds of clips is not read hundreds of times.
    """
    try:
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            n_bytes = os.fstat(file.fileno()).st_size
            head = file.read(_EDGE_BYTES)
            file.seek(max(n_bytes - _EDGE_BYTES, 0))
            return fingerprint(str(n_bytes).encode(), head, file.read(_EDGE_BYTES))
    except OSError:
        return None


def size_and_time(place: str | Path) -> tuple[int | None, int | None]:
    """Return a file's bytes and the nanosecond of its last change; of one elsewhere nothing."""
    try:
        status = os.stat(place) if isinstance(place, Path) else None
    except (OSError, ValueError):  # a NUL in its name
        status = None
    return (None, None) if status is None else (status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class SuspectFile:
    """A sound file that may not be the one which frames were made of."""

    audio: str
    place: Path
    source: str

    def is_other(self) -> bool:
        """Tell whether it is another, by reading it; what is gone was not replaced."""
        return file_fingerprint(self.place) not in (None, self.source)


def suspect_files(root: Path, parts: pl.DataFrame, clips: pl.DataFrame) -> list[SuspectFile]:
    """Return the files of some shards whose size or time of change is not what was noted.

    None of them is read. ``parts`` are tables of shards (:func:`read_part`), ``clips`` has the
    ``audio`` of clips by ``clip_id``. Remote files are not checked, and neither are clips without
    frames.
    """
    made = parts.filter(pl.col("reason").is_null()).drop_nulls(["source", "mtime_ns"])
    of_clips = made.join(clips.select("clip_id", "audio").drop_nulls(), on="clip_id")
    of_files = of_clips.unique("audio", maintain_order=True)
    suspects = []
    for audio, source, *noted in of_files.select("audio", "source", "n_bytes", "mtime_ns").rows():
        path = root / audio
        if not is_url(audio) and size_and_time(path) not in ((None, None), tuple(noted)):
            suspects.append(SuspectFile(audio, path, source))
    return suspects


def is_replaced(place: str | Path, store: FrameStore, row: int) -> bool:
    """Tell whether another file is where a clip's sound was, at a row of a store.

    For somebody who is about to read the sound: its ends are read, whatever its time. What is
    gone, or lies on another machine, was not replaced; and of frames from elsewhere nobody knows
    the files.
    """
    is_made_of_sound = store.meta.front_end is not None or store.meta.network_facts is not None
    source = store.index["source"][row]
    if not is_made_of_sound or source is None or not isinstance(place, Path):
        return False
    return file_fingerprint(place) not in (None, source)
