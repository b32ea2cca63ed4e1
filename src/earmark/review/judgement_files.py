"""Judgements and queues in other programs' formats: CSV, Parquet and Label Studio's JSON.

A table of judgements has at least clip_id, class_id and answer; whatever else it lacks is filled
in. An answer's id is made from its content where there is none, so reading a file twice stores
nothing twice.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid5

import polars as pl

from earmark.datasets import Workspace, annotations_of, read_tasks
from earmark.errors import EarmarkError, nearest, reader
from earmark.review.judgements import (
    ANSWERS,
    JUDGEMENT_SCHEMA,
    Answer,
    Judgement,
    checked_judgement,
)
from earmark.review.queue_items import QueueSnapshot, item_id
from earmark.storage import LINE, PRESENCE, read_source, write_json, write_table, write_text

_NEEDED = ("clip_id", "class_id", "answer")

NAMESPACE = UUID("7b1f6f0e-6a1c-5d0b-9f3e-2f1d4b6c8a90")
"""Of the ids that are made from the content of answers given elsewhere."""

_WHOLE_CLIP = "whole clip"
"""What an annotator ticks in Label Studio who has heard the whole clip."""

_HEARD_HERE = "heard here"
"""The label of the region that an annotator marks in Label Studio."""


def write_judgements(path: str | Path, judgements: pl.DataFrame) -> None:
    """Write judgements as CSV or Parquet, by the name's ending; retractions too if they are there.

    Give a store's ``rows()`` to keep everything, its ``current()`` for what counts.
    """
    write_table(path, judgements.select(JUDGEMENT_SCHEMA.names()))


@reader("judgements")
def read_judgements(path: str | Path, at: datetime, rater: str = "imported") -> list[Judgement]:
    """Read judgements from CSV or Parquet, by :func:`write_judgements` or by other programs.

    Needs the columns clip_id, class_id and answer (present, not_present, unsure or cannot_play;
    also yes and no, 1 and 0). Where a column or a value is missing, ``rater`` and ``at`` are given
    here, item and id follow from the rest, and the others are as in :class:`Judgement`. A wrong
    value is named with its line.
    """
    source = read_source(Path(path))
    for column in _NEEDED:
        if column not in source.columns:
            hint = nearest(column, source.columns)
            raise EarmarkError(f"{path}: there is no column {column!r}{hint}")
    known = [name for name in JUDGEMENT_SCHEMA if name in source.columns]
    rows = source.rows.select(LINE, *known).iter_rows(named=True)
    return [_judgement(row, source.at(row.pop(LINE)), at, rater) for row in rows]


def _judgement(row: dict[str, Any], where: str, at: datetime, rater: str) -> Judgement:
    """Fill in what a row lacks, and check it."""
    given = {name: value for name, value in row.items() if value is not None}
    for column in ("clip_id", "class_id"):
        if column not in given:
            raise EarmarkError(f"{where}: {column} is empty")
    if "answer" in given:
        given["answer"] = _answer(str(given["answer"]), where)
    item = item_id(str(given["clip_id"]), str(given["class_id"]))
    filled = {"at": at, "rater": rater, "item": item, **given}
    if "id" not in filled:
        # Without a time of its own, the same line is the same answer whenever it is read.
        said = [filled.get(name) for name in ("rater", "item", "answer", "span_start", "span_end")]
        filled["id"] = content_id(*said, given.get("at"))
    return checked_judgement(filled, where)


def _answer(text: str, where: str) -> Answer:
    word = text.strip().lower()
    for answer in ANSWERS:
        if word == answer:
            return answer
    if word in PRESENCE:
        return {True: "present", False: "not_present", None: "unsure"}[PRESENCE[word]]  # type: ignore[return-value]
    raise EarmarkError(f"{where}: the answer is {text!r}{nearest(word, ANSWERS)}")


def content_id(*parts: object) -> UUID:
    """Return the id of an answer that was given elsewhere: the same for the same content."""
    return uuid5(NAMESPACE, "\0".join(map(str, parts)))


def write_label_studio_tasks(
    path: str | Path, queue: QueueSnapshot, workspace: Workspace, document_root: str | Path = "/"
) -> int:
    """Write a queue as tasks for Label Studio, and its labelling interface beside it (``.xml``).

    Sounds are addressed as local files below ``document_root``, Label Studio's
    LOCAL_FILES_DOCUMENT_ROOT. Tasks come in the queue's order and say neither what is a control nor
    what the teacher thinks. Returns the number of tasks; clips without audio have none.
    """
    path = Path(path)
    columns = ("clip_id", "audio", "start_seconds", "end_seconds")
    clips = workspace.clips.select(columns).filter(pl.col("audio").is_not_null())
    items = queue.items.join(clips, on="clip_id", maintain_order="left")
    tasks = [_task(row, workspace, Path(document_root)) for row in items.iter_rows(named=True)]
    write_text(path.with_suffix(".xml"), _labelling_interface())
    write_json(path, tasks)
    return len(tasks)


def _task(row: Mapping[str, Any], workspace: Workspace, root: Path) -> dict[str, Any]:
    ontology = workspace.ontology
    sound = workspace.audio_path(row["audio"]).resolve()
    if not sound.is_relative_to(root.resolve()):
        raise EarmarkError(f"{sound}: not below Label Studio's document root {root}")
    data = {
        "audio": f"/data/local-files/?d={quote(str(sound.relative_to(root.resolve())))}",
        "item": row["item"],
        "clip_id": row["clip_id"],
        "class_id": row["class_id"],
        "question": f"Is this heard: {ontology.name(row['class_id'])}?",
        "definition": ontology.definitions.get(row["class_id"], ""),
    }
    places = {name: row[name] for name in ("start_seconds", "end_seconds") if row[name] is not None}
    return {"data": data | places}


def _labelling_interface() -> str:
    """Return Label Studio's labelling configuration for a review, with the page's keys."""
    view = ET.Element("View")
    ET.SubElement(view, "Header", value="$question")
    ET.SubElement(view, "Text", name="definition", value="$definition")
    ET.SubElement(view, "Audio", name="audio", value="$audio")
    answers = ET.SubElement(view, "Choices", name="answer", toName="audio", required="true")
    for answer, key in zip(ANSWERS, "fjhx", strict=True):
        ET.SubElement(answers, "Choice", value=answer, hotkey=key)
    heard = ET.SubElement(view, "Choices", name="heard", toName="audio", choice="multiple")
    ET.SubElement(heard, "Choice", value=_WHOLE_CLIP, hotkey="g")
    place = ET.SubElement(view, "Labels", name="span", toName="audio")
    ET.SubElement(place, "Label", value=_HEARD_HERE, hotkey="m")
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


@reader("answers of Label Studio")
def read_label_studio_answers(path: str | Path, queue_digest: str = "") -> list[Judgement]:
    """Read the answers in Label Studio's JSON export of the tasks of a queue.

    Every annotation that was not skipped is one judgement, its annotator the rater. Its span is
    the first region that was marked; Label Studio counts seconds from the start of the file.
    """
    judgements = []
    for number, task in enumerate(read_tasks(Path(path)), start=1):
        where = f"{path}, task {number}"
        try:
            found = list(_answers(task))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise EarmarkError(
                f"{where}: not a review's task in Label Studio's JSON export ({error!r}); write "
                "the tasks with `earmark review --label-studio`"
            ) from None
        for values in found:
            values["answer"] = _answer(values["answer"], where)
            judgements.append(checked_judgement({**values, "queue_digest": queue_digest}, where))
    return judgements


def _answers(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values of one judgement for each annotation with an answer."""
    annotations = annotations_of(task)
    about = {name: task["data"][name] for name in ("item", "clip_id", "class_id")}
    for annotation in annotations:
        marked = {part["from_name"]: part["value"] for part in reversed(annotation["result"])}
        ticked = {name: value.get("choices", ()) for name, value in marked.items()}
        if "answer" not in ticked:
            continue
        rater, at = _annotator(annotation["completed_by"]), annotation["created_at"]
        yield {
            **about,
            "id": content_id(rater, at, annotation["id"], *about.values()),
            "at": at,
            "rater": rater,
            "answer": ticked["answer"][0],
            "whole_clip": _WHOLE_CLIP in ticked.get("heard", ()),
            **_region(marked.get("span"), task["data"].get("start_seconds") or 0.0),
        }


def _region(value: Mapping[str, Any] | None, clip_start: float) -> dict[str, float]:
    """Return a region's span from the clip's start; a region that begins before it is cut."""
    if value is None:
        return {}
    start, end = (round(float(value[name]) - clip_start, 3) for name in ("start", "end"))
    return {"span_start": max(start, 0.0), "span_end": end}


def _annotator(given: object) -> str:
    """Return the annotator's address or number, whichever the export holds."""
    if isinstance(given, Mapping):
        return str(given.get("email") or given.get("username") or given["id"])
    return str(given)
