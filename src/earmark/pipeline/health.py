"""A workspace looked over: what is damaged, changed, unfinished, locked or in the way, and why.

Nothing is written, and nothing is mended: every finding says what to run. A check that a damaged
file ends is a finding of its own, so that the others still speak.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from earmark.audio import FrameStore
from earmark.datasets import (
    VERSION_HERE,
    Workspace,
    corrected_names,
    find_stale,
    find_versions,
    read_labels,
    read_quarantine,
    replaced_sounds,
    unusable_sounds,
)
from earmark.errors import EarmarkError, counted, first_few, quoted, short_repr
from earmark.pipeline.opening import WorkLike, open_workspace
from earmark.review import JudgementStore, read_queue
from earmark.scores import ScoreFolder
from earmark.storage import (
    file_sha256,
    find_leftovers,
    holder_of,
    inside,
    is_finished,
    read_json,
    read_seal,
    seal_path,
)

LEAST_FREE_BYTES = 1_000_000_000
"""Below this a stage may not find the room that it needs."""

_GIGA = 1_000_000_000


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, and the command that mends it, if one does."""

    what: str
    told: str
    command: str = ""

    __repr__ = short_repr

    def __str__(self) -> str:
        return f"{self.what}: {self.told}" + (f"; run `{self.command}`" if self.command else "")


@dataclass(frozen=True)
class Health:
    """What was found in a workspace, and what was looked at."""

    root: Path
    findings: tuple[Finding, ...]
    checked: dict[str, int]
    """How many there are of all that was looked at."""
    free_bytes: int
    holder: str | None
    """Who writes in it now, in words."""

    __repr__ = short_repr

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def facts(self) -> dict[str, Any]:
        """Return everything as plain values, for programs."""
        return {
            "healthy": self.is_healthy,
            "findings": [vars(one) for one in self.findings],
            "checked": self.checked,
            "free_bytes": self.free_bytes,
            "writes_now": self.holder,
            "earmark": VERSION_HERE,
        }

    def told(self) -> str:
        """Say in a sentence what was looked at, and whether all of it holds."""
        looked = ", ".join(f"{n:,} {what}" for what, n in self.checked.items() if n)
        found = "all as it should be"
        if self.findings:
            found = counted(len(self.findings), "finding")
        return f"{found}: {looked}; {self.free_bytes / _GIGA:.1f} GB free."


def examine(work: WorkLike, *, quick: bool = False) -> Health:
    """Look over a workspace: files and their digests, counts, age, versions, locks, room.

    Sounds are compared with those that frames were made of by their sizes and ends. Frames are read
    whole, and compared with their digests, unless it has to be ``quick``.
    """
    workspace = open_workspace(work)
    holder = holder_of(workspace.root)
    checks = [check for check in _CHECKS if not (quick and check is _shards)]
    found = [one for check in checks for one in _guarded(check, workspace)]
    return Health(
        workspace.root,
        tuple(found),
        _counts(workspace),
        shutil.disk_usage(workspace.root).free,
        None if holder is None else holder.told,
    )


_Check = Callable[[Workspace], Iterable[Finding]]


def _guarded(check: _Check, workspace: Workspace) -> list[Finding]:
    """Return what a check finds; what ends it is found, too."""
    what = check.__name__.removeprefix("_")
    found: list[Finding] = []
    try:
        found.extend(check(workspace))
    except EarmarkError as error:
        found.append(Finding(what, str(error)))
    except OSError as error:
        found.append(Finding(what, f"{error.filename or workspace.root}: {error.strerror}"))
    return found


def _verb(workspace: Workspace, verb: str) -> str:
    return f"earmark {verb} {quoted(workspace.root)}"


def _dataset(workspace: Workspace) -> Iterator[Finding]:
    """Read clips, classes and every label set, each of which refuses what does not fit."""
    n_clips, n_twice = len(workspace.clips), workspace.clips["clip_id"].is_duplicated().sum()
    if n_twice:
        told = f"{workspace.clips_path}: {n_twice:,} of {n_clips:,} rows share a name"
        yield Finding("dataset", told)
    _ = workspace.labels, workspace.truth
    for name in corrected_names(workspace):
        read_labels(workspace, name)


def _digests(workspace: Workspace) -> Iterator[Finding]:
    """Compare files with the digests that their seals have of them."""
    seals = (one for part in _SEALED for one in workspace.root.glob(f"{part}/**/*.json"))
    for seal in sorted(seals):
        for name, expected in _sealed_files(seal).items():
            path = seal.with_name(name)
            if not path.exists():
                yield Finding("digests", f"{path}: missing, and {seal.name} says it is there")
            elif file_sha256(path) != expected:
                told = f"{path}: {_CHANGED}; delete {seal} and make it anew"
                yield Finding("digests", told, _maker(workspace, path))


_CHANGED = "changed or damaged since it was made"

_SEALED = ("scores", "flags", "sweep", "compare", "review", "relabelled")
"""Folders in which seals may have digests of the files beside them."""


def _sealed_files(seal: Path) -> dict[str, str]:
    if any(part.startswith(".") for part in seal.parts[-2:]):
        return {}
    noted = read_json(seal)
    files = noted.get("files", {}) if isinstance(noted, dict) else {}
    return files if isinstance(files, dict) else {}


def _maker(workspace: Workspace, path: Path) -> str:
    """Return the command that makes a file, by the folder that it is in."""
    makers = {"scores": "score", "flags": "flag", "sweep": "sweep", "compare": "compare"}
    verb = makers.get(path.relative_to(workspace.root).parts[0], "")
    return _verb(workspace, verb) if verb else ""


def _stores(workspace: Workspace) -> dict[Path, str]:
    """Return the stores of frames that are there, with the command that makes each."""
    verbs = {
        workspace.frames_folder: "features",
        workspace.embeddings_folder: "score",
        workspace.outputs_folder: "score",
    }
    return {at: _verb(workspace, verb) for at, verb in verbs.items() if at.is_dir()}


def _frames(workspace: Workspace) -> Iterator[Finding]:
    """Open the stores of frames; count their clips, and those that could not be read."""
    for folder, command in _stores(workspace).items():
        if not is_finished(folder):
            yield Finding("frames", f"{folder}: not finished", command)
            continue
        try:
            n_there = len(FrameStore.open(folder).clip_ids)
        except EarmarkError as error:
            yield Finding("frames", str(error), command)
            continue
        n_clips, n_unread = len(workspace.clips), len(read_quarantine(workspace))
        if n_there + n_unread < n_clips:
            told = f"{folder}: of {n_there:,} clips, and the dataset has {n_clips:,}"
            yield Finding("frames", told, command)


def _shards(workspace: Workspace) -> Iterator[Finding]:
    """Compare frames with the digests that were kept when they were written; size is no matter."""
    for folder, command in _stores(workspace).items():
        if not is_finished(folder):
            continue
        noted = read_seal(folder)
        is_made_here = noted.get("front_end") is not None or noted.get("network_facts") is not None
        for name, expected in _sealed_files(seal_path(folder)).items():
            path = inside(folder, name)
            if path.exists() and file_sha256(path) != expected:
                advice = "delete it" if is_made_here else "import its frames again"
                told = f"{path}: {_CHANGED}; {advice}"
                yield Finding("shards", told, command if is_made_here else "")


def _sounds(workspace: Workspace) -> Iterator[Finding]:
    """Compare sound files with those that frames were made of; name missing and empty ones."""
    stores = [folder for folder in _stores(workspace) if is_finished(folder)]
    others: dict[str, bool] = {}
    for folder in stores:
        others |= replaced_sounds(workspace, folder)
    gone, empty = unusable_sounds(workspace)
    changed = [audio for audio, is_there in others.items() if is_there and audio not in empty]
    if changed:
        verb = "features" if workspace.has_frames() else "score"
        told = f"{counted(len(changed), 'file')} changed since frames were made of them"
        yield Finding("sounds", f"{told}: {first_few(changed)}", _verb(workspace, verb))
    if gone:
        told = f"{counted(len(gone), 'file')} not where clips.parquet says: {first_few(gone)}"
        yield Finding("sounds", f"{told}; was the workspace moved without them?")
    if empty:
        told = f"{counted(len(empty), 'file')} of 0 bytes, as after a power cut: {first_few(empty)}"
        yield Finding("sounds", f"{told}; put the sounds back, or import the dataset again")


def _scores(workspace: Workspace) -> Iterator[Finding]:
    """Open every folder of scores."""
    for folder in sorted(workspace.scores_folder("any").parent.glob("*")):
        if folder.is_dir() and not is_finished(folder):
            yield Finding("scores", f"{folder}: not finished", _verb(workspace, "score"))
        elif folder.is_dir():
            _ = ScoreFolder.open(folder)


def _models(workspace: Workspace) -> Iterator[Finding]:
    """Hold the weights of networks to the length that their own head tells."""
    for path in sorted(workspace.models_folder.glob("**/*.safetensors")):
        if trouble := _weights_trouble(path):
            yield Finding("models", f"{path}: {trouble}; delete {path.parent} and train it again")


def _weights_trouble(path: Path) -> str:
    n_bytes = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        n_head = struct.unpack("<Q", head)[0] if len(head) == 8 else n_bytes
        if 8 + n_head > n_bytes:
            return "damaged: its head is longer than the file"
        text = file.read(n_head)
    try:
        tensors = [one for one in json.loads(text).values() if "data_offsets" in one]
        expected = 8 + n_head + max((int(one["data_offsets"][1]) for one in tensors), default=0)
    except (ValueError, TypeError, AttributeError, LookupError):
        return "damaged: its head is not that of weights"
    return "" if n_bytes == expected else f"damaged: {n_bytes:,} bytes, expected {expected:,}"


def _answers(workspace: Workspace) -> Iterator[Finding]:
    """Have SQLite check its files, and read the answers and the queue."""
    paths = [path for path in (workspace.judgements_path, workspace.drawn_path) if path.exists()]
    troubles = {path: _sqlite_trouble(path) for path in paths}
    for path, trouble in troubles.items():
        if trouble:
            told = f"{path}: {trouble}; keep a copy of it before anything else"
            yield Finding("answers", told)
    if troubles.get(workspace.judgements_path) == "":
        with JudgementStore(workspace.judgements_path, must_exist=True) as store:
            store.rows()
    if workspace.queue_seal_path.exists():
        try:
            read_queue(workspace)
        except EarmarkError as error:
            yield Finding("answers", str(error), f"{_verb(workspace, 'review')} --write-only")


def _sqlite_trouble(path: Path) -> str:
    """Return what SQLite finds wrong with a file, which is only read; empty where nothing is."""
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
        ) as db:
            (said,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return "" if said == "ok" else str(said)


def _age(workspace: Workspace) -> Iterator[Finding]:
    """Name all that was made before the dataset changed."""
    for one in find_stale(workspace):
        told = f"{one.path}: older than the dataset, whose {' and '.join(one.changed)} changed"
        yield Finding("age", told + one.detail, one.command)


def _versions(workspace: Workspace) -> Iterator[Finding]:
    """Name what another version made: files keep their meaning while the middle number stays."""
    for path, version, command in find_versions(workspace):
        if version.split(".")[:2] != VERSION_HERE.split(".")[:2]:
            told = f"{path}: made by earmark {version}, and this is {VERSION_HERE}"
            yield Finding("versions", told, command)


def _leftovers(workspace: Workspace) -> Iterator[Finding]:
    """Count what killed processes left half-written; what lives ones write does not count."""
    left = sorted(find_leftovers(workspace.root))
    if left:
        n_files = counted(len(left), "unfinished file")
        told = f"{n_files} of killed processes, such as {left[0].name}; the next verb removes them"
        yield Finding("leftovers", told)


def _room(workspace: Workspace) -> Iterator[Finding]:
    """Say that the disk is nearly full, or that nothing can be written."""
    free = shutil.disk_usage(workspace.root).free
    if free < LEAST_FREE_BYTES:
        yield Finding("room", f"{free / _GIGA:.2f} GB free on the disk of {workspace.root}")
    if not os.access(workspace.root, os.W_OK):
        yield Finding("room", f"{workspace.root}: you may read it, but not write in it")


_CHECKS: tuple[_Check, ...] = (
    _dataset, _answers, _digests, _frames, _shards, _sounds, _scores, _models, _age, _versions,
    _leftovers, _room,
)  # fmt: skip
"""What is lost first comes first."""


def _counts(workspace: Workspace) -> dict[str, int]:
    """Count what there is to look at; of what cannot be read, nothing."""
    counts: dict[str, int] = {}
    sources: dict[str, Callable[[], int]] = {
        "clips": lambda: len(workspace.clips),
        "classes": lambda: len(workspace.ontology.class_ids),
        "labels": lambda: int(workspace.labels.rows().height),
        "unreadable clips": lambda: len(read_quarantine(workspace)),
        "shards of frames": lambda: sum(
            len(_sealed_files(seal_path(folder)))
            for folder in _stores(workspace)
            if is_finished(folder)
        ),
        "score folders": lambda: sum(
            is_finished(one) for one in workspace.scores_folder("any").parent.glob("*")
        ),
        "networks": lambda: len(list(workspace.models_folder.glob("**/*.safetensors"))),
        "answers": lambda: _n_answers(workspace),
    }
    for what, count in sources.items():
        try:
            counts[what] = count()
        except (EarmarkError, sqlite3.Error):
            counts[what] = 0
    return counts


def _n_answers(workspace: Workspace) -> int:
    if not workspace.judgements_path.exists():
        return 0
    with JudgementStore(workspace.judgements_path, must_exist=True) as store:
        return len(store.current())
