"""Which file a sound came from: it is known by its size and its two ends, wherever it lies."""

from __future__ import annotations

import os
from pathlib import Path

from earmark.audio.decode import UnreadableAudio, local_file
from earmark.audio.frame_store import FrameStore
from earmark.audio.shards import fingerprint, part_path

_EDGE_BYTES = 1 << 16
"""A file is known by its size and this many of its first and last bytes."""


def source_of(place: str | Path) -> str | None:
    """Identify a file that may not be there; see :func:`file_fingerprint`."""
    try:
        with local_file(place) as path:
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


def is_newer(place: str | Path, time: float) -> bool:
    """Tell whether a file here was put in its place after some time; what is gone was not."""
    try:
        return isinstance(place, Path) and place.stat().st_mtime > time
    except OSError:
        return False


def is_replaced(place: str | Path, store: FrameStore, row: int) -> bool:
    """Tell whether another file is where a clip's sound was, at a row of a store.

    Only a file that came after its frames is read: by the time that it bears, or, where that was
    kept from an older one, by the time that the disk keeps of its own. What is gone, or lies on
    another machine, was not replaced; and of frames from elsewhere nobody knows the files.
    """
    is_made_of_sound = store.meta.front_end is not None or store.meta.heard_by is not None
    source = store.index["source"][row]
    if not is_made_of_sound or source is None or not isinstance(place, Path):
        return False
    try:
        sealed, file = part_path(store.folder, store.index["shard"][row]).stat(), place.stat()
    except OSError:
        return False
    is_late = file.st_mtime > sealed.st_mtime or file.st_ctime > sealed.st_ctime
    return is_late and file_fingerprint(place) not in (None, source)
