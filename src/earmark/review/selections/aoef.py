"""Selections in the Acoustic Objects Exchange Format: JSON that whombat reads, by ``soundevent``.

A label with a span is a sound event, a label of a whole clip a tag of the clip. whombat knows
recordings by the ids in a dataset's file, so that file is written beside the annotations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from earmark.errors import EarmarkError, check_libraries, reading
from earmark.review.judgement_files import content_id
from earmark.review.selections.heard import Selection
from earmark.review.selections.sound_files import SoundFiles
from earmark.runs import write_text

if TYPE_CHECKING:
    from soundevent import data

_EVENT = "event"
"""The key of the tags that name classes."""

_SPAN_BY = "span_by"
"""The key of the tag of a sound event whose span no rater set."""


def dataset_path(path: Path) -> Path:
    """Return where the recordings of an AOEF file are listed."""
    return path.with_suffix(".dataset.json")


def write_aoef(
    path: Path,
    selections: pl.DataFrame,
    files: SoundFiles,
    label: Callable[[str], str],
    name: str,
) -> int:
    """Write an annotation project, and its recordings beside it; return how many are in it.

    Selections of sound files whose rate and channels cannot be read are left out.
    """
    check_libraries("AOEF", "soundevent")
    from soundevent import data

    recordings = _recordings(files, selections["file"].unique(maintain_order=True))
    written = selections.filter(pl.col("file").is_in(list(recordings)))
    annotations = [
        _clip_annotation(recordings[file], *files.bounds(clip_id), rows, label)
        for (file, clip_id), rows in written.group_by("file", "clip_id", maintain_order=True)
    ]
    told = {"name": name, "description": "Labels that raters heard, written by earmark."}
    done = data.StatusBadge(state=data.AnnotationState.completed)
    project = data.AnnotationProject(
        uuid=content_id("project", path.absolute()),
        clip_annotations=annotations,
        tasks=[
            data.AnnotationTask(
                uuid=content_id("task", one.uuid), clip=one.clip, status_badges=[done]
            )
            for one in annotations
        ],
        annotation_tags=[_tag(label(c)) for c in written["class_id"].unique().sort()],
        **told,
    )
    listed = data.Dataset(
        uuid=content_id("dataset", path.absolute()), recordings=list(recordings.values()), **told
    )
    _write(dataset_path(path), listed)
    _write(path, project)
    return len(written)


def _recordings(files: SoundFiles, names: Iterable[str]) -> dict[str, data.Recording]:
    """Return the recordings of the files that can be read."""
    from soundevent import data

    headers = {file: header for file in names if (header := files.header(file)) is not None}
    return {
        file: data.Recording(
            # The same id for the same thing, so that a file that is written again is no other.
            uuid=content_id("recording", files.path(file)),
            path=Path(files.path(file)),
            duration=header.seconds,
            channels=header.n_channels,
            samplerate=header.rate_hz,
        )
        for file, header in headers.items()
    }


def read_aoef(path: Path) -> Iterator[Selection]:
    """Read sound events and the tags of clips, of an annotation set or project."""
    check_libraries("AOEF", "soundevent")
    from soundevent import data
    from soundevent.io import load

    with reading(path, "AOEF"):
        loaded: Any = load(path)
    if not isinstance(loaded, data.AnnotationSet):
        raise EarmarkError(
            f"{path}: an AOEF file of the kind {type(loaded).__name__}; expected annotations: "
            "export an annotation project or an annotation set"
        )
    for annotated in loaded.clip_annotations:
        clip, file = annotated.clip, str(annotated.clip.recording.path)
        for tag in annotated.tags:
            where = f"{path}, tag {tag.value!r} of clip {clip.uuid}"
            yield Selection(
                where,
                file,
                tag.value,
                clip.start_time,
                clip.end_time,
                clip=str(clip.uuid),
                is_set=False,
            )
        for event in annotated.sound_events:
            yield from _events(path, clip, event)


def _events(path: Path, clip: data.Clip, event: data.SoundEventAnnotation) -> Iterator[Selection]:
    """Yield a sound event, once for each class among its tags."""
    from soundevent import data

    where = f"{path}, sound event {event.uuid}"
    if event.sound_event.geometry is None:
        raise EarmarkError(f"{where}: it has no geometry, so nobody knows when it is heard")
    times = _times(event.sound_event.geometry)
    tags = [(data.key_from_term(tag.term), tag.value) for tag in event.tags]
    named = [value for key, value in tags if key == _EVENT]
    named = named or [value for key, value in tags if key != _SPAN_BY]
    if not named:
        raise EarmarkError(f"{where}: it has no tag, so nobody knows which class is heard")
    user = event.created_by
    rater = user and (user.username or user.name)
    for name in named:
        yield Selection(
            where,
            str(clip.recording.path),
            name,
            min(times),
            max(times),
            clip=str(clip.uuid),
            is_set=_SPAN_BY not in dict(tags),
            raters=(rater,) if rater else (),
        )


def _times(geometry: data.Geometry) -> list[float]:
    """Return the times of a geometry's corners: of intervals and boxes, points and lines."""
    coordinates: Any = geometry.coordinates
    if geometry.type == "TimeStamp":
        return [coordinates]
    if geometry.type == "TimeInterval":
        return list(coordinates)
    if geometry.type == "BoundingBox":
        return [coordinates[0], coordinates[2]]
    while isinstance(coordinates[0][0] if isinstance(coordinates[0], list) else None, list):
        coordinates = [corner for line in coordinates for corner in line]
    corners = coordinates if isinstance(coordinates[0], list) else [coordinates]
    return [corner[0] for corner in corners]


def _clip_annotation(
    recording: data.Recording,
    start: float,
    end: float | None,
    rows: pl.DataFrame,
    label: Callable[[str], str],
) -> data.ClipAnnotation:
    from soundevent import data

    last = recording.duration if end is None else end
    clip = data.Clip(
        uuid=content_id("clip", rows["clip_id"][0]),
        recording=recording,
        start_time=start,
        end_time=last,
    )
    of_clip = rows.filter(span="clip")
    of_span = rows.filter(pl.col("span") != "clip")
    return data.ClipAnnotation(
        uuid=content_id("clip annotation", clip.uuid),
        clip=clip,
        tags=[_tag(label(class_id)) for class_id in of_clip["class_id"]],
        sound_events=[_event(recording, row, label) for row in of_span.iter_rows(named=True)],
        created_on=max(map(datetime.fromisoformat, rows["at"])),
    )


def _event(
    recording: data.Recording, row: dict[str, Any], label: Callable[[str], str]
) -> data.SoundEventAnnotation:
    from soundevent import data

    name = (row["clip_id"], row["class_id"], row["start"], row["end"])
    raters = row["raters"].split(",")
    by_teacher = [_tag("teacher", _SPAN_BY)] if row["span"] == "teacher" else []
    user = data.User(uuid=content_id("rater", raters[0]), username=raters[0])
    at = datetime.fromisoformat(row["at"])
    note = data.Note(
        uuid=content_id("note", *name), message=f"heard by {', '.join(raters)}", created_on=at
    )
    return data.SoundEventAnnotation(
        uuid=content_id("annotation", *name),
        sound_event=data.SoundEvent(
            uuid=content_id("event", *name),
            recording=recording,
            geometry=data.TimeInterval(coordinates=[row["start"], row["end"]]),
        ),
        tags=[_tag(label(row["class_id"])), *by_teacher],
        notes=[note] if len(raters) > 1 else [],
        created_by=user if len(raters) == 1 else None,
        created_on=at,
    )


def _tag(value: str, key: str = _EVENT) -> data.Tag:
    from soundevent import data

    return data.Tag(term=data.term_from_key(key), value=value)


def _write(path: Path, collection: Any) -> None:
    from soundevent.io.aoef import to_aeof

    text = to_aeof(collection).model_dump_json(exclude_none=True, indent=1)
    write_text(path, json.dumps(json.loads(text), ensure_ascii=False, indent=1) + "\n")
