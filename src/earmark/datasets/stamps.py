"""What a dataset was when something was made of it, so that what has become stale is named.

Scores, flags, queues, results and pages carry a *stamp* in a file of JSON (their seal, where they
have one): digests of the clips, their splits, the classes and the labels as given. Whoever opens
one compares: what no longer holds is refused, what is merely older is said aloud.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from earmark.audio import FrameStore, part_path, read_part, source_of, suspect_files
from earmark.datasets.label_versions import corrected_names
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, EarmarkWarning, counted, first_few, quoted
from earmark.scores import Origin
from earmark.storage import (
    digest,
    is_finished,
    is_url,
    read_noted,
    read_seal,
    read_table,
    seal_path,
    write_json,
)

STAMP, FRONT_END, FRAMES_FOLDER, VERSION = "dataset", "front_end", "frames_folder", "earmark"
"""The keys, in a file of JSON, of the stamp, of the parameters of the frames that something was
made of, of the name of their store, and of the version that made it."""

VERSION_HERE = str(importlib.import_module("earmark").__version__)
"""This version; by name, because the package's door names every room, and so would be a cycle."""

CLASS_NAMES = "class names"

MOST_READ = 500
"""Suspect sounds that are read by a verb which needs none: a million would take minutes."""

PARTS = ("clips", "splits", "classes", CLASS_NAMES, "labels", "frames")
"""What a stamp has a digest of; of frames where they were used."""


@dataclass(frozen=True)
class Stale:
    """Something that was made of the dataset before it changed, and the command that renews it."""

    path: Path
    changed: tuple[str, ...]
    command: str
    detail: str = ""

    def __str__(self) -> str:
        what = " and ".join(self.changed)
        return f"{self.path}: older than the dataset, whose {what} changed since{self.detail}"


def stamp_of(workspace: Workspace, frames: Path | None = None) -> dict[str, str]:
    """Return the digest of each part of a dataset, as it is now.

    ``frames`` is the store that counts, by default the workspace's frames.
    """
    frames = frames or workspace.frames_folder
    return {
        "clips": workspace.audio_digest,
        "splits": workspace.splits_digest,
        "classes": digest(list(workspace.ontology.class_ids)),
        CLASS_NAMES: digest(workspace.ontology.to_table().write_json()),
        "labels": workspace.labels.digest,
        "frames": read_seal(frames)["digest"] if is_finished(frames) else "",
    }


def stamped(workspace: Workspace) -> dict[str, Any]:
    """Return the stamp of the dataset as it is now, to be part of a seal."""
    stamp = stamp_of(workspace)
    del stamp["frames"]
    return {STAMP: stamp, VERSION: VERSION_HERE}


def write_stamp(workspace: Workspace, file: Path, *, of_frames: Path | None = None) -> None:
    """Note in a file of JSON, new or not, that something holds for the dataset as it is now.

    ``of_frames`` is the store of frames that it was made of, too.
    """
    meta, stamp = read_noted(file) if file.exists() else {}, stamp_of(workspace, of_frames)
    noted: dict[str, Any] = {}
    if of_frames is None:
        del stamp["frames"]
    else:
        noted = {FRONT_END: _front_end(of_frames), FRAMES_FOLDER: of_frames.name}
    if meta.get(STAMP) != stamp:
        write_json(file, {**meta, STAMP: stamp, VERSION: VERSION_HERE, **noted})


def stamp_path(table: Path) -> Path:
    """Return the file that keeps the stamp of a table."""
    return table.with_suffix(".json")


def parts_changed(workspace: Workspace, file: Path) -> tuple[str, ...]:
    """Return what of the dataset changed since a file was stamped; nothing without a stamp.

    What could not be the same is not named: splits, labels and frames of other clips, labels of
    other classes.
    """
    noted = read_noted(file) if file.exists() else {}
    before = noted.get(STAMP, {})
    if not isinstance(before, dict):
        raise EarmarkError(f"{file}: {STAMP!r} in it is no stamp; it is damaged: make it again")
    now = stamp_of(workspace, _frames_of(workspace, noted)) if before else {}
    changed = tuple(part for part in PARTS if part in before and before[part] != now[part])
    implied = {"splits", "labels", "frames"} if "clips" in changed else set()
    implied |= {"labels", CLASS_NAMES} if "classes" in changed else set()
    return tuple(part for part in changed if part not in implied)


def refuse_stale(stale: Stale | None, parts: Collection[str] = PARTS) -> None:
    """Refuse what is older than some parts of the dataset; where all of them hold, do nothing."""
    if stale is not None and not set(parts).isdisjoint(stale.changed):
        raise EarmarkError(f"{stale}; run `{stale.command}` again")


def warn_stale(stale: Stale | None, advice: str) -> None:
    """Say that something is older than the dataset, what that means, and what makes it anew."""
    if stale is not None:
        message = f"{stale}; {advice}; `{stale.command}` makes it anew"
        warnings.warn(message, EarmarkWarning, stacklevel=3)


def find_stale(workspace: Workspace) -> list[Stale]:
    """List all that is older than the dataset, in the order in which it is best renewed."""
    found = [stale_of(workspace, *one) for one in _stamped(workspace)]
    return [one for one in found if one is not None] + _stale_corrections(workspace)


def stale_of(workspace: Workspace, path: Path, file: Path, verb: str) -> Stale | None:
    """Return what is wrong with something whose stamp is in a file; None where it still holds.

    Scores of the owner's own learnt nothing from the labels here, and are given again. By other
    names or parents of classes, labels are implied and shown: flags and pages alone go by them.
    """
    changed, command = parts_changed(workspace, file), _command(workspace, verb)
    if verb not in ("flag", "report"):
        changed = tuple(part for part in changed if part != CLASS_NAMES)
    origin = Origin.noted(read_noted(file)) if changed and verb == "score" else None
    if origin is not None:
        changed = tuple(part for part in changed if part != "labels")
        command = f"{command} {origin.option}"
    detail = _other_front_end(workspace, file) if "frames" in changed else ""
    return Stale(path, changed, command, detail) if changed else None


def replaced_sounds(workspace: Workspace, folder: Path) -> dict[str, bool]:
    """Return the sound files that are not those which a store was made of; whether each is there.

    Every file is looked at, whatever its time, but for those of other machines. Of frames from
    elsewhere nobody knows the files.
    """
    noted = read_seal(folder)
    if noted.get("front_end") is None and noted.get("network_facts") is None:
        return {}
    own = workspace.clips.select("clip_id", "audio").drop_nulls()
    known = read_table(folder / "index.parquet").drop_nulls("source").join(own, on="clip_id")
    known = known.unique("audio", maintain_order=True)
    rows = known.select("audio", "source").iter_rows()
    access = workspace.audio_access
    sources = {
        audio: (source_of(access, audio), source) for audio, source in rows if not is_url(audio)
    }
    return {audio: now is not None for audio, (now, before) in sources.items() if now != before}


def unusable_sounds(workspace: Workspace) -> tuple[list[str], list[str]]:
    """Return the sound files of this machine that are not there, and those that have 0 bytes."""
    missing, empty = [], []
    for audio in workspace.clips["audio"].unique(maintain_order=True).drop_nulls():
        if not is_url(audio):
            try:
                if workspace.audio_path(audio).stat().st_size == 0:
                    empty.append(audio)
            except (OSError, ValueError):  # a NUL in the name
                missing.append(audio)
    return missing, empty


def tell_replaced(workspace: Workspace, store: FrameStore | None) -> None:
    """Say that sounds are not those which frames were made of, for a verb that uses the frames.

    Every file's size and times are looked at; of those that are suspect, as all are in a workspace
    that was just moved, some hundreds are read.
    """
    if store is None or (store.meta.front_end is None and store.meta.network_facts is None):
        return
    parts = [
        read_part(store.folder, number)
        for number in store.index["shard"].unique(maintain_order=True)
        if part_path(store.folder, number).exists()
    ]
    suspects = suspect_files(workspace.root, pl.concat(parts), workspace.clips) if parts else []
    step = max(len(suspects) // MOST_READ, 1)
    others = [one.audio for one in suspects[::step] if one.is_other()]
    if others:
        verb = "features" if store.folder == workspace.frames_folder else "score"
        told = (
            f"{counted(len(others), 'sound file')} changed since frames were made of them: "
            f"{first_few(others)}; what follows is of the older sound until you run "
            f"`{_command(workspace, verb)}`"
        )
        warnings.warn(told, EarmarkWarning, stacklevel=3)


def _frames_of(workspace: Workspace, noted: dict[str, Any]) -> Path:
    """Return the store of frames that something stamped was made of."""
    for folder in (workspace.embeddings_folder, workspace.outputs_folder):
        if folder.name == noted.get(FRAMES_FOLDER):
            return folder
    return workspace.frames_folder


def _front_end(frames: Path) -> dict[str, Any]:
    """Return the parameters by which frames were made; none where another program made them."""
    return (is_finished(frames) and read_seal(frames).get(FRONT_END)) or {}


def _other_front_end(workspace: Workspace, file: Path) -> str:
    """Name the parameters of frames that differ from those of a stamped file, with both values."""
    noted = read_noted(file)
    before, now = noted.get(FRONT_END, {}), _front_end(_frames_of(workspace, noted))
    other = [
        f"{name} ({value}, here {now[name]})"
        for name, value in before.items()
        if name in now and now[name] != value
    ]
    return f" with other {', '.join(other)}" if other else ""


def _stamped(workspace: Workspace) -> Iterator[tuple[Path, Path, str]]:
    """Yield all that may carry a stamp, the file of the stamp, and the verb that makes it."""
    for folder in sorted(workspace.scores_folder("any").parent.glob("*")):
        if not folder.name.endswith(("-held-out", "-single", "-whole")):  # renewed with it
            yield folder, seal_path(folder), "score"
    yield workspace.flags_path, seal_path(workspace.flags_folder), "flag"
    yield workspace.queue_path, workspace.queue_seal_path, "review"
    yield workspace.precision_path, stamp_path(workspace.precision_path), "answers"
    yield workspace.sweep_folder, seal_path(workspace.sweep_folder), "sweep"
    choices = workspace.compare_table_path("choices")
    yield choices, stamp_path(choices), "compare"
    yield workspace.report_page, stamp_path(workspace.report_page), "report"


def _stale_corrections(workspace: Workspace) -> list[Stale]:
    folders = {name: workspace.relabelled_folder(name) for name in corrected_names(workspace)}
    return [
        Stale(folder, ("labels",), f"{_command(workspace, 'relabel')} --out {quoted(name)}")
        for name, folder in folders.items()
        if read_seal(folder)["original_labels"] != workspace.labels.digest
    ]


def _command(workspace: Workspace, verb: str) -> str:
    command = f"earmark {quoted(verb)} {quoted(workspace.root)}"
    return f"{command} --write-only" if verb == "review" else command
