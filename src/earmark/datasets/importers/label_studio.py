"""Label Studio's JSON export, or a folder of its tasks: what annotators ticked about each sound.

Choices and labelled regions name classes; a taxonomy names a class with its parents. A question
whose answer is yes, no or unsure (present, not present) asks about the class that the question is
named after, and is the one source of explicit negatives: a choice that was not ticked is implicit.

A class is present where more than half of a task's annotators say so, not present where more than
half say that, and implicit otherwise. Skipped annotations and a model's predictions do not count.

A folder holds what Label Studio's storages hold: files of tasks, or of annotations with their task.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import polars as pl

from earmark.errors import EarmarkError, reader
from earmark.storage import AUDIO_SUFFIXES, LINE, PRESENCE, read_json

_UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
"""Label Studio puts eight digits before the name of an uploaded file."""


@dataclass(frozen=True)
class LabelStudioExport:
    """The tasks of an export: ``clips`` clip_id, audio; ``labels`` clip_id, class_id, present.

    Both have the task's number, from 1, in the column LINE. ``parents`` come from taxonomies.
    """

    clips: pl.DataFrame
    labels: pl.DataFrame
    parents: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]


@reader("an export of Label Studio")
def read_label_studio(path: Path) -> LabelStudioExport:
    """Read a JSON export (not JSON-MIN, which does not say who answered what)."""
    tasks = read_tasks(path)
    clips, labels, parents, n_split = [], [], dict[str, set[str]](), 0
    for number, task in enumerate(tasks, start=1):
        try:
            verdicts, n_undecided = _verdicts(task, parents)
            clip_id, audio = _sound(task)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise EarmarkError(
                f"{path}, task {number}: not a task of Label Studio's JSON export ({error}); "
                "expected data with a sound file, and annotations"
            ) from None
        clips.append((clip_id, audio, number))
        labels += [(clip_id, name, present, number) for name, present in verdicts.items()]
        n_split += n_undecided
    notes = [f"{len(tasks):,} tasks of Label Studio read"]
    if n_split:
        notes.append(f"{n_split:,} answers without a majority of the annotators are implicit")
    return LabelStudioExport(
        pl.DataFrame(
            clips, {"clip_id": pl.String, "audio": pl.String, LINE: pl.Int64}, orient="row"
        ),
        pl.DataFrame(
            labels,
            {"clip_id": pl.String, "class_id": pl.String, "present": pl.Boolean, LINE: pl.Int64},
            orient="row",
        ),
        {name: tuple(sorted(above)) for name, above in parents.items()},
        tuple(notes),
    )


def is_label_studio(path: Path) -> bool:
    """Tell whether a path may be Label Studio's: a JSON file, or a folder with files of tasks."""
    return path.suffix.lower() == ".json" if not path.is_dir() else bool(_task_files(path))


@reader("tasks of Label Studio")
def read_tasks(path: Path) -> list[dict[str, Any]]:
    """Read the tasks of a JSON export, as they are, or those of a folder."""
    if not path.exists():
        raise EarmarkError(f"{path}: no such file")
    if path.is_dir():
        return _read_folder(path)
    tasks = read_json(path)
    if not isinstance(tasks, list) or not tasks:
        raise EarmarkError(f"{path}: expected a list of Label Studio's tasks, got {_kind(tasks)}")
    return tasks


def _task_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may hold tasks; storages call annotations by a number."""
    files = (path for path in folder.iterdir() if path.is_file())
    return sorted(path for path in files if path.suffix.lower() == ".json" or path.name.isdigit())


def _read_folder(folder: Path) -> list[dict[str, Any]]:
    """Read all tasks of a folder, each with all of its annotations."""
    tasks: dict[str, dict[str, Any]] = {}
    for path in _task_files(folder):
        held = read_json(path)
        for one in held if isinstance(held, list) else [held]:
            task, annotations = _task_and_annotations(one, path)
            name = json.dumps(task["data"], sort_keys=True)
            known = tasks.setdefault(name, task | {"annotations": []})
            known["annotations"] += annotations
    if not tasks:
        raise EarmarkError(f"{folder}: no file of Label Studio's tasks (.json) in this folder")
    return list(tasks.values())


def _task_and_annotations(held: Any, path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a task and what was said of it; a target storage's files hold one annotation each."""
    is_annotation = isinstance(held, dict) and "result" in held
    task = held.get("task") if is_annotation else held
    if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
        raise EarmarkError(
            f"{path}: expected a task of Label Studio with its data, or an annotation with its "
            f"task, got {_kind(held)}; keep other files in a folder of their own"
        )
    return task, [held] if is_annotation else list(_given(task))


def annotations_of(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a task's annotations, skipped ones left out; ValueError if it cannot have any."""
    if "annotations" not in task and "completions" not in task:
        raise ValueError("no annotations: exported as JSON-MIN? export as JSON")
    return [one for one in _given(task) if not one.get("was_cancelled")]


def _given(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    return task.get("annotations", task.get("completions")) or []


def _sound(task: Mapping[str, Any]) -> tuple[str, str]:
    """Return the clip's name, and its file's as far as it can be found on a disk."""
    texts = [text for text in task["data"].values() if isinstance(text, str)]
    for text in texts:
        audio = _file_name(text)
        if Path(audio).suffix.lower() in AUDIO_SUFFIXES:
            return str(task["data"].get("clip_id", Path(audio).stem)), audio
    raise ValueError(f"no sound file among {texts}")


def _file_name(address: str) -> str:
    """Turn an address of Label Studio's into a file's name: local files keep their folders."""
    parts = urlsplit(address)
    if "d" in parse_qs(parts.query):
        return parse_qs(parts.query)["d"][0]
    if parts.scheme or address.startswith("/data/upload/"):
        return _UPLOAD_PREFIX.sub("", unquote(parts.path).rsplit("/", 1)[-1])
    return address


def _verdicts(task: Mapping[str, Any], parents: dict[str, set[str]]) -> tuple[dict[str, bool], int]:
    """Return what most annotators say of each class, and how many classes they are split on."""
    annotations = [one["result"] for one in annotations_of(task)]
    votes: Counter[tuple[str, bool]] = Counter()
    for result in annotations:
        votes.update(set(_answers(result, parents)))
    verdicts = {name: present for (name, present), n in votes.items() if 2 * n > len(annotations)}
    return verdicts, len({name for name, _ in votes} - verdicts.keys())


def _answers(
    result: Iterable[Mapping[str, Any]], parents: dict[str, set[str]]
) -> Iterator[tuple[str, bool]]:
    """Yield the classes that one annotator spoke about, and whether they are present."""
    for region in result:
        value = region.get("value", {})
        for path in value.get("taxonomy", ()):
            for above, name in itertools.pairwise(path):
                parents.setdefault(name, set()).add(above)
            yield from ((name, True) for name in path)
        for kind in ("choices", "labels"):
            for choice in value.get(kind, ()):
                if choice.lower() not in PRESENCE:
                    yield choice, True
                elif (present := PRESENCE[choice.lower()]) is not None:
                    yield region["from_name"], present


def _kind(value: object) -> str:
    return "an empty list" if value == [] else f"a {type(value).__name__}"
