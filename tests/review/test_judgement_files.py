from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import polars as pl
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.config import ReviewParams
from earmark.datasets import CLIP_SCHEMA, Workspace, write_dataset
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology
from earmark.review import (
    ANSWERS,
    Judgement,
    QueueSnapshot,
    item_id,
    make_queue,
    read_judgements,
    read_label_studio_answers,
    write_judgements,
    write_label_studio_tasks,
)
from reviews import START, judgement, table, uuid

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=20)
NAMES = TEXT.map(str.strip).filter(bool)


@st.composite
def judgements(draw: st.DrawFn) -> list[Judgement]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        is_undo = number > 0 and draw(st.booleans())
        span = draw(st.none() | st.tuples(st.floats(0, 1e4), st.floats(0.001, 1e4)))
        made.append(
            judgement(
                number,
                None if is_undo else draw(st.sampled_from(ANSWERS)),
                retracts=uuid(0) if is_undo else None,
                rater=draw(NAMES),
                clip_id=draw(NAMES),
                class_id=draw(NAMES),
                span_start=None if span is None else span[0],
                span_end=None if span is None else sum(span),
                heard_seconds=draw(st.floats(0, 86_400)),
                whole_clip=draw(st.booleans()),
                shown_score=draw(st.booleans()),
            )
        )
    return made


@settings(deadline=None, max_examples=40)
@given(judgements(), st.sampled_from(["csv", "parquet"]))
def test_a_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, made: list[Judgement], ending: str
) -> None:
    path = tmp_path_factory.mktemp("table") / f"judgements.{ending}"
    write_judgements(path, table(*made))
    again = read_judgements(path, START)
    assert [one.row() for one in again] == [one.row() for one in made]


def test_a_table_of_other_peoples_is_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("class_id;clip_id;answer\nbark;a.wav;Yes\nbark;b.wav;0\nbark;c.wav;?\n")
    read = read_judgements(path, START, rater="eve")
    assert [one.answer for one in read] == ["present", "not_present", "unsure"]
    assert {one.rater for one in read} == {"eve"}
    assert {one.at for one in read} == {START}
    assert read[0].item == item_id("a.wav", "bark")
    later = read_judgements(path, START + timedelta(days=1), "eve")
    assert [one.id for one in read] == [one.id for one in later]
    assert len({one.id for one in read}) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clip,class_id,answer\na,b,yes\n", "no column 'clip_id'; did you mean 'clip'"),
        ("clip_id,class_id,answer\na,b,yes\na,b,presnt\n", "line 3: the answer is 'presnt'"),
        ("clip_id,class_id,answer\n,b,yes\n", "line 2: clip_id is empty"),
        ("clip_id,class_id,answer\na\0,b,yes\n", r"line 2: clip_id: .*control char.*'a\\x00'"),
        ("clip_id,class_id,answer,rater\na,b,yes,\x1b[2J\n", "line 2: rater: .*control char"),
        ("clip_id,class_id,answer\na,b,\n", "line 2: .*either an answer or the id"),
        ("clip_id,class_id,answer,at\na,b,yes,yesterday\n", "line 2: at: .*yesterday"),
        ("clip_id,class_id,answer,id\na,b,yes,7\n", "line 2: id: .*'7'"),
        ("clip_id,class_id,answer,span_start\na,b,yes,1\n", "line 2: .*both a start and an end"),
        ("clip_id,class_id,answer,span_start,span_end\na,b,1,3,2\n", "from 3 s to 2 s"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(EarmarkError, match=told):
        read_judgements(path, START)


@pytest.fixture
def reviewed(tmp_path: Path) -> tuple[Workspace, QueueSnapshot]:
    """A workspace of twelve clips, one of them silent, and its queue."""
    names = [f"clip {i}" for i in range(12)]
    for name in names[1:]:
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(160), 16_000)
    columns = {
        "clip_id": names,
        "audio": [None, *(f"{name}.wav" for name in names[1:])],
        "start_seconds": [None] * 10 + [2.0, 3.0],
        "end_seconds": [None] * 10 + [4.0, 5.0],
        "split": ["train"] * 12,
        "source": names,
    }
    labels = LabelSet.from_dense(np.zeros((12, 1), np.int8), names, ["bark"])
    ontology = Ontology(("bark",), names={"bark": "Bark & howl"}, definitions={"bark": "A dog."})
    clips = pl.DataFrame(columns, schema=CLIP_SCHEMA)
    workspace = write_dataset(tmp_path, clips, ontology, labels)
    scores = np.arange(12, dtype=np.float32)[:, None]
    return workspace, make_queue(labels, scores, ontology, ReviewParams(flags_per_block=12))


def test_label_studio_gets_blind_tasks_with_sounds(
    tmp_path: Path, reviewed: tuple[Workspace, QueueSnapshot]
) -> None:
    workspace, queue = reviewed
    n_tasks = write_label_studio_tasks(tmp_path / "tasks.json", queue, workspace, tmp_path)
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    audible = queue.items.filter(pl.col("clip_id") != "clip 0")
    assert n_tasks == len(tasks) == len(audible)
    assert [task["data"]["item"] for task in tasks] == audible["item"].to_list()
    for task in tasks:
        data = task["data"]
        sound = parse_qs(urlsplit(data["audio"]).query)["d"][0]
        assert (tmp_path / sound).exists()
        assert data["question"] == "Is this heard: Bark & howl?"
        assert not {"kind", "logit", "rank", "repeats"} & data.keys()
        assert ("start_seconds" in data) == (data["clip_id"] in ("clip 10", "clip 11"))
    choices = ET.parse(tmp_path / "tasks.xml").findall(".//Choices[@name='answer']/Choice")
    assert [choice.get("value") for choice in choices] == list(ANSWERS)
    assert ET.parse(tmp_path / "tasks.xml").find(".//Labels[@toName='audio']/Label") is not None


def test_sounds_outside_label_studios_root_are_refused(
    tmp_path: Path, reviewed: tuple[Workspace, QueueSnapshot]
) -> None:
    workspace, queue = reviewed
    with pytest.raises(EarmarkError, match="not below Label Studio's document root"):
        write_label_studio_tasks(tmp_path / "tasks.json", queue, workspace, tmp_path / "other")


def _annotation(number: int, answer: str, heard: bool = False, **changes: object) -> dict:
    result = [{"from_name": "answer", "to_name": "audio", "value": {"choices": [answer]}}]
    if heard:
        result.append({"from_name": "heard", "value": {"choices": ["whole clip"]}})
    return {
        "id": number, "completed_by": {"id": 1, "email": "ann@x.org"}, "was_cancelled": False,
        "created_at": "2026-03-01T12:00:00.5Z", "result": result, **changes,
    }  # fmt: skip


def test_label_studios_annotations_become_judgements(
    tmp_path: Path, reviewed: tuple[Workspace, QueueSnapshot]
) -> None:
    workspace, queue = reviewed
    path = tmp_path / "tasks.json"
    write_label_studio_tasks(path, queue, workspace, tmp_path)
    tasks = json.loads(path.read_text())[:3]
    tasks[0]["annotations"] = [
        _annotation(1, "present"), _annotation(2, "not_present", heard=True, completed_by=7),
    ]  # fmt: skip
    tasks[1]["annotations"] = [_annotation(3, "unsure", was_cancelled=True)]
    tasks[2]["annotations"] = [_annotation(4, "unsure"), _annotation(5, "x", result=[])]
    path.write_text(json.dumps(tasks))
    read = read_label_studio_answers(path, "digest")
    assert [(one.rater, one.answer, one.whole_clip) for one in read] == [
        ("ann@x.org", "present", False), ("7", "not_present", True), ("ann@x.org", "unsure", False),
    ]  # fmt: skip
    assert [one.item for one in read] == queue.items["item"].gather([0, 0, 2]).to_list()
    assert read[0].at.isoformat() == "2026-03-01T12:00:00.500000+00:00"
    assert {one.queue_digest for one in read} == {"digest"}
    assert [one.id for one in read] == [one.id for one in read_label_studio_answers(path)]


def test_a_region_in_label_studio_is_a_span_of_the_clip(tmp_path: Path) -> None:
    """Label Studio plays the whole file, of which the clip begins at 2 s."""
    regions = [
        {"from_name": "span", "type": "labels", "value": {"start": start, "end": start + 1}}
        for start in (3.5, 7.0)
    ]
    annotation = _annotation(1, "present")
    data = {"item": "i", "clip_id": "c", "class_id": "k", "start_seconds": 2.0}
    task = {"data": data, "annotations": [annotation | {"result": annotation["result"] + regions}]}
    (tmp_path / "export.json").write_text(json.dumps([task]))
    (read,) = read_label_studio_answers(tmp_path / "export.json")
    assert (read.span_start, read.span_end) == (1.5, 2.5)


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ({}, "expected a list"),
        ([{"data": {"audio": "a.wav"}, "annotations": []}], "task 1: not a review's task"),
        ([{"data": {"item": "i", "clip_id": "c", "class_id": "k"}}], "JSON-MIN"),
        (
            [
                {
                    "data": {"item": "i", "clip_id": "c", "class_id": "k"},
                    "annotations": [_annotation(1, "perhaps not")],
                }
            ],
            "task 1: the answer is 'perhaps not'",
        ),
    ],
)
def test_other_exports_of_label_studio_are_refused(
    tmp_path: Path, tasks: object, told: str
) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    with pytest.raises(EarmarkError, match=told):
        read_label_studio_answers(path)
