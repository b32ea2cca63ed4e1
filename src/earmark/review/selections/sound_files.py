"""The sound files of a workspace: what other programs call them, and which clips are in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

import polars as pl

from earmark.audio import SoundHeader, UnreadableAudio, local_file, sound_header
from earmark.datasets import Workspace
from earmark.errors import EarmarkError, first_few
from earmark.review.judgement_files import content_id
from earmark.runs import AUDIO_SUFFIXES


class SoundFiles:
    """The sound files of a workspace's clips; a clip without one is taken for a file of its name.

    Files are named as ``clips.parquet`` names them, unless another name is spoken of.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        file = pl.coalesce("audio", "clip_id")
        clips = workspace.clips.select("clip_id", "start_seconds", "end_seconds", file=file)
        self._clips = {row.pop("clip_id"): row for row in clips.to_dicts()}
        self._soundless = set(workspace.clips.filter(pl.col("audio").is_null())["clip_id"])

    def clip(self, name: str | None) -> str | None:
        """Return the clip of a name, or of the id that AOEF knows it by; None if there is none."""
        return name if name in self._clips else self._by_id.get(name or "")

    @cached_property
    def header(self) -> Callable[[str], SoundHeader | None]:
        """Return what a file says of itself; None where it is missing or does not tell."""
        return lru_cache(None)(self._read_header)

    @cached_property
    def names(self) -> dict[str, str]:
        """The shortest end of each file's path that no other file has."""
        return {file: self._shortest(file) for file in self._by_file}

    def file_of(self, clip_id: str) -> str:
        """Return the file of a clip."""
        return str(self._clips[clip_id]["file"])

    def path(self, file: str) -> str:
        """Return the absolute path of a file, or its URL."""
        place = self._workspace.audio_place(file)
        return str(place.absolute()) if isinstance(place, Path) else place

    def bounds(self, clip_id: str) -> tuple[float, float | None]:
        """Return start and end of a clip in its file, in seconds; None where nobody knows."""
        clip = self._clips[clip_id]
        start, end = clip["start_seconds"] or 0.0, clip["end_seconds"]
        if end is None:
            header = self.header(clip["file"])
            end = None if header is None else header.seconds
        return start, end

    def seconds(self, clip_id: str) -> float | None:
        """Return how long a clip is; None where nobody knows."""
        start, end = self.bounds(clip_id)
        return None if end is None else end - start

    def find(self, name: str) -> list[str]:
        """Return the clips of the file that another program calls by a name.

        The name may have folders in front, of this or another machine, and may lack its ending.
        Names that no file has, or more than one, are refused.
        """
        given = PurePosixPath(name.replace("\\", "/"))
        bare = given.stem if given.suffix.lower() in AUDIO_SUFFIXES else given.name
        alike = self._by_name.get(given.name) or self._by_stem.get(bare, [])
        folders = given.parts[:-1]
        found = [f for f in alike if _tail(self._folders(f), len(folders)) == folders] or alike
        if not found:
            has = first_few(self.names.values())
            raise EarmarkError(f"no sound file is called {name!r}; the dataset has {has}")
        if len(found) > 1:
            meant = first_few(self.names[file] for file in found)
            raise EarmarkError(f"{name!r} may be {meant}; write the file's folder with it")
        return self._by_file[found[0]]

    def _read_header(self, file: str) -> SoundHeader | None:
        if file in self._soundless:
            return None
        try:
            with local_file(self._workspace.audio_place(file)) as path:
                return sound_header(path)
        except UnreadableAudio:
            return None

    def _shortest(self, file: str) -> str:
        *folders, name = PurePosixPath(self.path(file)).parts
        rivals = [self._folders(other) for other in self._by_name[name] if other != file]
        n = 0
        while n < len(folders) and any(_tail(rival, n) == _tail(folders, n) for rival in rivals):
            n += 1
        return "/".join((*_tail(folders, n), name))

    def _folders(self, file: str) -> tuple[str, ...]:
        return PurePosixPath(self.path(file)).parts[:-1]

    @cached_property
    def _by_id(self) -> dict[str, str]:
        return {str(content_id("clip", clip_id)): clip_id for clip_id in self._clips}

    @cached_property
    def _by_file(self) -> dict[str, list[str]]:
        return _grouped((clip["file"], clip_id) for clip_id, clip in self._clips.items())

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        return _grouped((PurePosixPath(file).name, file) for file in self._by_file)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        return _grouped((PurePosixPath(file).stem, file) for file in self._by_file)


def _tail(parts: Sequence[str], n: int) -> tuple[str, ...]:
    return tuple(parts[len(parts) - n :]) if n else ()


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
