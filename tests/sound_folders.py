"""Folders of small sound files and their labels, as owners have them."""

from __future__ import annotations

import io
import tarfile
import wave
from pathlib import Path
from typing import Any

from earmark.datasets import ImportSummary, import_sounds
from own_tables import write


def wav(seconds: float) -> bytes:
    """Return a sound file of silence, written by Python alone."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(1_000)
        sound.writeframes(bytes(2 * round(1_000 * seconds)))
    return file.getvalue()


def sounds_in(folder: Path, *names: str, seconds: float = 0.5) -> Path:
    for name in names:
        write(folder, name, wav(seconds))
    return folder


def write_tar(path: Path, members: dict[str, bytes | None], mode: str = "w") -> Path:
    """Write an archive of members with their contents; None is a link to a file elsewhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content or b"")
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info, io.BytesIO(content or b""))
    return path


def heard(folder: Path, labels: str | None, **options: Any) -> ImportSummary:
    """Import ``folder/sounds`` with labels given as the text of a CSV."""
    path = None if labels is None else write(folder, "labels.csv", labels)
    return import_sounds(folder / "sounds", path, folder / "w", **{"replace": True, **options})


def clip_ids(summary: ImportSummary) -> list[str]:
    return summary.workspace.clips["clip_id"].to_list()


def note(summary: ImportSummary, words: str) -> str:
    found = [text for text in summary.notes if words in text]
    assert len(found) == 1, summary.notes
    return found[0]


def files_of(summary: ImportSummary) -> list[str | None]:
    return [path and Path(path).name for path in summary.workspace.clips["audio"].to_list()]


def present_in(summary: ImportSummary) -> dict[str, set[str]]:
    """Return the classes that are present in each clip."""
    rows = summary.workspace.labels.rows().filter("present")
    present: dict[str, set[str]] = {name: set() for name in clip_ids(summary)}
    for clip_id, class_id in rows.select("clip_id", "class_id").iter_rows():
        present[clip_id].add(class_id)
    return present
