"""What a dataset was when something was made of it, so that what has become stale is named.

Scores, flags, queues, results and pages carry a *stamp* in a file of JSON (their seal, where they
have one): digests of the clips, their splits, the classes and the labels as given. Whoever opens
one compares: what no longer holds is refused, what is merely older is said aloud.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.datasets.label_versions import corrected_names
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, EarmarkWarning, quoted
from earmark.runs import digest, is_finished, read_json, read_seal, seal_path, write_json
from earmark.scores import Origin

STAMP = "dataset"
"""The key of the stamp in a file of JSON."""

FRONT_END = "front_end"
"""The key of the parameters of the frames, beside the stamp of what was made of them."""

FRAMES_FOLDER = "frames_folder"
"""The key of the name of the store that something was made of, where it is not ``frames``."""

PARTS = ("clips", "splits", "classes", "labels", "frames")
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
        "labels": workspace.labels.digest,
        "frames": read_seal(frames)["digest"] if is_finished(frames) else "",
    }


def write_stamp(workspace: Workspace, file: Path, *, of_frames: Path | None = None) -> None:
    """Note in a file of JSON, new or not, that something holds for the dataset as it is now.

    ``of_frames`` is the store of frames that it was made of, too.
    """
    meta, stamp = read_json(file) if file.exists() else {}, stamp_of(workspace, of_frames)
    noted: dict[str, Any] = {}
    if of_frames is None:
        del stamp["frames"]
    else:
        noted = {FRONT_END: _front_end(of_frames), FRAMES_FOLDER: of_frames.name}
    if meta.get(STAMP) != stamp:
        write_json(file, {**meta, STAMP: stamp, **noted})


def stamp_path(table: Path) -> Path:
    """Return the file that keeps the stamp of a table."""
    return table.with_suffix(".json")


def parts_changed(workspace: Workspace, file: Path) -> tuple[str, ...]:
    """Return what of the dataset changed since a file was stamped; nothing without a stamp.

    What could not be the same is not named: splits, labels and frames of other clips, labels of
    other classes.
    """
    noted = read_json(file) if file.exists() else {}
    before = noted.get(STAMP, {})
    now = stamp_of(workspace, _frames_of(workspace, noted)) if before else {}
    changed = tuple(part for part in PARTS if part in before and before[part] != now[part])
    implied = {"splits", "labels", "frames"} if "clips" in changed else set()
    implied |= {"labels"} if "classes" in changed else set()
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

    Scores of the owner's own learnt nothing from the labels here, and are given again.
    """
    changed, command = parts_changed(workspace, file), _command(workspace, verb)
    origin = Origin.noted(read_json(file)) if changed and verb == "score" else None
    if origin is not None:
        changed = tuple(part for part in changed if part != "labels")
        command = f"{command} {origin.option}"
    detail = _other_front_end(workspace, file) if "frames" in changed else ""
    return Stale(path, changed, command, detail) if changed else None


def _frames_of(workspace: Workspace, noted: dict[str, Any]) -> Path:
    """Return the store of frames that something stamped was made of."""
    stores = (workspace.embeddings_folder, workspace.outputs_folder)
    own = [folder for folder in stores if folder.name == noted.get(FRAMES_FOLDER)]
    return own[0] if own else workspace.frames_folder


def _front_end(frames: Path) -> dict[str, Any]:
    """Return the parameters by which frames were made; none where another program made them."""
    return (read_seal(frames).get(FRONT_END) if is_finished(frames) else {}) or {}


def _other_front_end(workspace: Workspace, file: Path) -> str:
    """Name the parameters of frames that differ from those of a stamped file, with both values."""
    noted = read_json(file)
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
    yield workspace.queue_path, workspace.queue_seal_path, "queue"
    yield workspace.precision_path, stamp_path(workspace.precision_path), "precision"
    yield workspace.sweep_folder, seal_path(workspace.sweep_folder), "sweep"
    for name, verb in (("choices", "compare"), ("rounds", "iterate")):
        table = workspace.compare_table_path(name)
        yield table, stamp_path(table), verb
    yield workspace.report_page, stamp_path(workspace.report_page), "report"


def _stale_corrections(workspace: Workspace) -> list[Stale]:
    folders = {name: workspace.relabelled_folder(name) for name in corrected_names(workspace)}
    return [
        Stale(folder, ("labels",), f"{_command(workspace, 'relabel')} --out {quoted(name)}")
        for name, folder in folders.items()
        if read_seal(folder)["original_labels"] != workspace.labels.digest
    ]


def _command(workspace: Workspace, verb: str) -> str:
    return f"earmark {quoted(verb)} {quoted(workspace.root)}"
