"""Label Studio's JSON export: what annotators ticked about each sound.

Choices and labelled regions name classes; a taxonomy names a class with its parents. A question
whose answer is yes, no or unsure (present, not present) asks about the class that the question is
named after, and is the one source of explicit negatives: a choice that was not ticked is implicit.

A class is present where more than half of a task's annotators say so, not present where more than
half say that, and implicit otherwise. Skipped annotations and a model's predictions do not count.
"""

from __future__ import annotations

import itertools
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
    """Tell whether a file may be an export of Label Studio's: all other labels are tables."""
    return path.suffix.lower() == ".json"


@reader("tasks of Label Studio")
def read_tasks(path: Path) -> list[dict[str, Any]]:
    """Read the tasks of a JSON export, as they are."""
    tasks = read_json(path)
    if not isinstance(tasks, list) or not tasks:
        kind = "an empty list" if tasks == [] else f"a {type(tasks).__name__}"
        raise EarmarkError(f"{path}: expected a list of Label Studio's tasks, got {kind}")
    return tasks


def annotations_of(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a task's annotations, skipped ones left out; ValueError if it cannot have any."""
    if "annotations" not in task and "completions" not in task:
        raise ValueError("no annotations: exported as JSON-MIN? export as JSON")
    annotations = task.get("annotations", task.get("completions")) or []
    return [annotation for annotation in annotations if not annotation.get("was_cancelled")]


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
