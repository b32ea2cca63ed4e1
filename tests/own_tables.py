"""Small tables of clips and labels, as their owners write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from earmark.datasets import ImportSummary, import_table

CLIPS = "clip_id,audio,split,source\na,a.wav,train,one\nb,b.wav,tune,two\nc,c.wav,eval,three\n"
LONG = "clip_id,class_id,present\na,dog,1\na,cat,0\nb,cat,true\nc,dog,not_present\n"
STATES = [[-1, 1], [1, 0], [0, -1]]  # cat, dog


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def imported(
    folder: Path, labels: str | bytes, clips: str | bytes | None = CLIPS, **options: Any
) -> ImportSummary:
    clips_path = None if clips is None else write(folder, "clips.csv", clips)
    labels_path = write(folder, "labels.csv", labels)
    return import_table(clips_path, labels_path, folder / "w", **{"replace": True, **options})


def states(summary: ImportSummary) -> list[list[int]]:
    return summary.workspace.labels.states().tolist()  # type: ignore[no-any-return]
