"""The card of a dataset for programs: Croissant, ML Commons' JSON-LD, with its RAI vocabulary.

The tables of clips, classes and labels are named with their SHA-256 and described column by column;
what is missing in each class stands in the file itself. Sentences on how labels came about and what
they lack go into the fields that the vocabulary has for them (``rai:dataLimitations``, ...).
mlcroissant builds the description, and checks it as it does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from earmark.errors import load_library
from earmark.report.missing.card import (
    LABELS_TOLD,
    CardContents,
    correction_told,
    doubts_told,
    headline_told,
)
from earmark.report.missing.evidence import by_told, evidence_told, heard_told
from earmark.runs import file_sha256

CONFORMS_TO = ("http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0")

_COLUMNS = {
    "clips": {
        "clip_id": ("TEXT", "The clip."),
        "audio": ("TEXT", "Its sound file, by path or address; empty where there is none."),
        "start_seconds": ("FLOAT", "Where it begins in the file."),
        "end_seconds": ("FLOAT", "Where it ends."),
        "split": ("TEXT", "train, tune or eval."),
        "source": ("TEXT", "The recording that it is from."),
    },
    "classes": {
        "class_id": ("TEXT", "The class."),
        "name": ("TEXT", "What people call it."),
        "definition": ("TEXT", "What it means."),
    },
    "labels": {
        "clip_id": ("TEXT", "The clip."),
        "class_id": ("TEXT", "The class that somebody was asked about."),
        "present": ("BOOL", "Whether it is there; what has no row is implicit."),
    },
}
"""The tables, their columns that every reader understands, types and meanings."""

_MISSING = {
    "class_id": ("TEXT", "The class."),
    "n_positives": ("INTEGER", "Explicit positives."),
    "n_missing": (
        "FLOAT",
        "Missing labels, as estimated from scores; empty where they do not tell.",
    ),
    "low": ("FLOAT", "Low end of the 90 % interval of the number."),
    "high": ("FLOAT", "High end of that interval."),
    "share": ("FLOAT", "missing / (missing + explicit positives)."),
    "share_low": ("FLOAT", "Low end of the 90 % interval of the share."),
    "share_high": ("FLOAT", "High end of that interval."),
}


def croissant_json(contents: CardContents, folder: Path) -> dict[str, Any]:
    """Return the Croissant description of a dataset, for a file in ``folder``."""
    mlc = load_library("mlcroissant", "a Croissant file", "croissant")
    context = mlc.Context(conforms_to=CONFORMS_TO[0])
    files = [_file(mlc, context, name, path, folder) for name, path in contents.files.items()]
    tables = [_record_set(mlc, context, name) for name in contents.files]
    said = contents.description
    described: dict[str, Any] = mlc.Metadata(
        ctx=context,
        conforms_to=list(CONFORMS_TO),
        name=said.name,
        description=" ".join(evidence_told(contents.evidence)),
        url=said.url or None,
        license=[said.licence] if said.licence else None,
        cite_as=said.citation or None,
        version=said.version or None,
        distribution=files,
        record_sets=[*tables, _missing_set(mlc, context, contents)],
        **_responsible(contents),
    ).to_json()
    return described


def _responsible(contents: CardContents) -> dict[str, Any]:
    """Return the fields of the RAI vocabulary that say how labels came about and what they lack."""
    evidence, heard = contents.evidence, contents.evidence.heard
    origin = evidence.origin
    by_ear = {} if heard is None else {
        "annotations_per_item": (
            f"explicit labels as given; {heard.n_judged:,} flags heard by {heard.n_raters:,} "
            f"raters until {heard.last}"
        ),
        "data_annotation_platform": ["earmark review"],
    }  # fmt: skip
    corrected = [correction_told(one) for one in contents.corrections]
    return {
        "data_annotation_protocol": [LABELS_TOLD.replace("*", ""), *corrected],
        "data_annotation_analysis": [heard_told(evidence)],
        "data_collection_missing_data": headline_told(evidence),
        "data_limitations": doubts_told(evidence),
        "machine_annotation_tools": [f"Earmark {origin['earmark']}", origin["teacher"]],
        **by_ear,
    }


def _file(mlc: Any, context: Any, name: str, path: Path, folder: Path) -> Any:
    return mlc.FileObject(
        ctx=context,
        id=f"{name}.parquet",
        name=f"{name}.parquet",
        content_url=Path(os.path.relpath(path, folder)).as_posix(),
        encoding_formats=["application/x-parquet"],
        sha256=file_sha256(path),
    )


def _record_set(mlc: Any, context: Any, name: str) -> Any:
    fields = [
        mlc.Field(
            ctx=context,
            id=f"{name}/{column}",
            name=column,
            description=meaning,
            data_types=[getattr(mlc.DataType, kind)],
            source=mlc.Source(
                ctx=context,
                file_object=f"{name}.parquet",
                extract=mlc.Extract(ctx=context, column=column),
            ),
        )
        for column, (kind, meaning) in _COLUMNS[name].items()
    ]
    return mlc.RecordSet(ctx=context, id=name, name=name, fields=fields)


def _missing_set(mlc: Any, context: Any, contents: CardContents) -> Any:
    """Return what is missing in each class, as records in the file itself."""
    name = "missing_labels"
    fields = [
        mlc.Field(
            ctx=context,
            id=f"{name}/{column}",
            name=column,
            description=meaning,
            data_types=[getattr(mlc.DataType, kind)],
        )
        for column, (kind, meaning) in _MISSING.items()
    ]
    rows = contents.evidence.classes.select(*_MISSING).to_dicts()
    data = [{f"{name}/{column}": value for column, value in row.items()} for row in rows]
    told = f"What is missing in each class. {by_told(contents.evidence.findings)}."
    return mlc.RecordSet(
        ctx=context, id=name, name=name, description=told, fields=fields, data=data
    )
