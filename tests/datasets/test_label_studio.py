from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from earmark.datasets import import_table
from earmark.errors import EarmarkError
from own_tables import states, write


def annotation(*results: dict[str, Any], cancelled: bool = False) -> dict[str, Any]:
    return {"was_cancelled": cancelled, "result": list(results)}


def choices(*names: str, question: str = "sounds") -> dict[str, Any]:
    return {"from_name": question, "type": "choices", "value": {"choices": list(names)}}


TASKS = [
    {
        "data": {"audio": "/data/upload/3/1a2b3c4d-a.wav"},
        "annotations": [
            annotation(choices("dog", "cat")),
            annotation(choices("dog")),
            annotation(choices("owl"), cancelled=True),
        ],
    },
    {
        "data": {"audio": "/data/local-files/?d=deep/b%20b.wav"},
        "annotations": [
            annotation(
                choices("not present", question="dog"),
                choices("yes", question="cat"),
                choices("unsure", question="owl"),
                {"type": "labels", "value": {"start": 0, "end": 1, "labels": ["rain"]}},
            )
        ],
        "predictions": [{"result": [choices("owl")]}],
    },
    {
        "data": {"url": "https://host/x/c.flac?token=1"},
        "completions": [
            annotation({"type": "taxonomy", "value": {"taxonomy": [["animal", "owl"], ["rain"]]}})
        ],
    },
    {"data": {"audio": "d.wav"}, "annotations": []},
]


def test_label_studio(tmp_path: Path) -> None:
    write(tmp_path, "sounds/deep/b b.wav", "sound")
    write(tmp_path, "sounds/a.wav", "sound")
    labels = write(tmp_path, "export.json", json.dumps(TASKS))
    summary = import_table(None, labels, tmp_path / "w", audio=tmp_path / "sounds")
    workspace = summary.workspace
    assert workspace.clips["clip_id"].to_list() == ["a", "b b", "c", "d"]
    assert workspace.labels.class_ids == ("animal", "cat", "dog", "owl", "rain")
    assert states(summary) == [
        [0, 0, 1, 0, 0],  # one of two ticked cat: no majority
        [0, 1, -1, 0, 1],
        [1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0],
    ]
    assert workspace.ontology.ancestors("owl") == {"animal"}
    assert (summary.n_found, summary.n_missing) == (2, 2)
    assert any("1 answers without a majority" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"audio": "a.wav", "choice": "dog"}], r"task 1: .* export as JSON"),
        ([{"data": {"image": "a.png"}, "annotations": []}], r"task 1: .*no sound file"),
        ({"a": 1}, "expected a list of Label Studio's tasks, got a dict"),
        ([], "got an empty list"),
        (
            [{"data": {"audio": f"{name}/a.wav"}, "annotations": []} for name in "xy"],
            r"task 2: clip 'a' is listed before, in task 1",
        ),
    ],
)
def test_other_json_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    labels = write(tmp_path, "export.json", json.dumps(content))
    with pytest.raises(EarmarkError, match=message):
        import_table(None, labels, tmp_path / "w")
