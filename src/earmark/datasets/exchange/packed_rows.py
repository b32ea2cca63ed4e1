"""Rows that come from many files, and what the files' names say of splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from earmark.runs import SourceTable

_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "tune"), "tune"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "eval"),
}
"""What Hugging Face and WebDataset call splits; with both, ``dev`` is for tuning."""


@dataclass(frozen=True)
class Part:
    """One file of rows: where it is, how many it has, and the split that its name tells of."""

    path: Path
    n_rows: int
    split: str | None = None


@dataclass(frozen=True)
class PackedTable(SourceTable):
    """Rows of several files, one after another; LINE counts through all of them, from 1."""

    parts: tuple[Part, ...] = ()

    def at(self, line: int) -> str:
        """Return the place of a row: its own file, and the row in it."""
        for part in self.parts:
            if line <= part.n_rows:
                return f"{part.path}, {self.unit} {line}"
            line -= part.n_rows
        return super().at(line)


def split_named(name: str) -> str | None:
    """Return the split that a path tells of, by its file before its folders; None where none.

    >>> split_named("data/train-00000-of-00004.parquet"), split_named("dev/00.tar")
    ('train', 'tune')
    >>> split_named("trains.parquet") is None
    True
    """
    for part in reversed(PurePosixPath(name).parts):
        words = [word for word in re.split(r"[^a-z]+", part.lower()) if word in _SPLIT_WORDS]
        if words:
            return _SPLIT_WORDS[words[0]]
    return None


def unknown_splits(names: Sequence[str]) -> list[str]:
    """Return the names of splits that are none of ours, where others are."""
    unknown = [name for name in names if split_named(name) is None]
    return unknown if len(unknown) < len(names) else []
