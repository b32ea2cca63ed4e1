"""A folder that ``datasets.load_dataset(FOLDER)`` reads: Parquet with sound, labels and flags.

``data/train-00000-of-00002.parquet`` and so on hold the rows, ``README.md`` says what the columns
are (the library takes the types from there), ``classes.csv`` what the classes are. Sound files that
decode are embedded as they are; a clip that is a part of a recording is cut out as FLAC. Clips that
are quarantined, or whose file may not be read, have no sound. Rows are written in shards, so that
sound of one shard at a time is in memory. The library itself would write all sound to its cache
first, and labels alone would need it installed.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from earmark.audio import UnreadableAudio, read_clip, sound_header, stream_clip
from earmark.compute import SILENT, Progress
from earmark.datasets.extraction import read_quarantine
from earmark.datasets.importers.hugging_face import CLASSES_FILE, METADATA_KEY
from earmark.datasets.workspace import Workspace
from earmark.errors import check_libraries
from earmark.labels import LabelSet, Ontology
from earmark.memory import is_memory_error
from earmark.storage import (
    check_replaceable,
    local_copy,
    put_in_place,
    scratch_beside,
    write_table,
    write_text,
)

_SHARD_BYTES = 128 * 2**20
_SHARD_ROWS = 50_000
_CHECKED_HZ = 16_000
_GROUP_ROWS = 100
"""Rows that a reader of Parquet takes at once: as many as the library writes of sound."""

_MADE_BY = "export --to hf"
_SPLIT_NAMES = {"train": "train", "tune": "validation", "eval": "test"}
_FLAG_SCHEMA = {
    "clip_id": pl.String,
    "class_id": pl.String,
    "chance": pl.Float32,
    "logit": pl.Float32,
}


@dataclass(frozen=True)
class HubExport:
    """A folder that was written: clips, those with sound, and reasons where it cannot be read."""

    folder: Path
    n_clips: int
    n_sounds: int
    n_flags: int
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubLabels:
    """What is said of the clips: labels as given, corrected ones and flags, where there are any.

    ``flags``: clip_id, class_id, chance, logit.
    """

    given: LabelSet
    corrected: LabelSet | None = None
    flags: pl.DataFrame | None = None


def write_hub_folder(
    workspace: Workspace, folder: Path, labels: HubLabels, progress: Progress = SILENT
) -> HubExport:
    """Write a workspace as a folder of Hugging Face's; it appears whole or not at all.

    A folder that holds something else is refused. Of one that this wrote, the files that it wrote
    are replaced, unless somebody edited one; all others stay.
    """
    check_replaceable(folder, _MADE_BY)
    rows = _rows(workspace, labels)
    columns = [name for name in rows.columns if name in _MEANINGS]
    names = hub_names(workspace.ontology)
    meta = {METADATA_KEY: json.dumps({"info": {"features": _features(columns, names)}})}
    meter = progress.job("write clips", len(rows), "clips")
    unread: list[str] = []
    n_sounds = 0
    with scratch_beside(folder) as scratch:
        made = scratch / "made"
        (made / "data").mkdir(parents=True)
        for split, name in _SPLIT_NAMES.items():
            paths: list[Path] = []
            for shard in _shards(workspace, rows.filter(split=split), unread):
                paths.append(made / "data" / f"part-{len(paths)}.parquet")
                shard.select(columns).write_parquet(
                    paths[-1], row_group_size=_GROUP_ROWS, metadata=meta
                )
                n_sounds += shard["audio"].count()
                meter.advance(len(shard))
            for number, path in enumerate(paths):
                path.rename(path.with_name(f"{name}-{number:05}-of-{len(paths):05}.parquet"))
        _write_descriptions(made, workspace.ontology, columns, names)
        put_in_place(made, folder, _MADE_BY)
    n_flags = 0 if labels.flags is None else len(labels.flags)
    return HubExport(folder, len(rows), n_sounds, n_flags, tuple(unread))


def hub_names(ontology: Ontology) -> list[str]:
    """Return the names that numbers stand for: those people read, where they are of one class."""
    names = [ontology.name(class_id) for class_id in ontology.class_ids]
    n_called = Counter(names)
    return [
        name if n_called[name] == 1 and name not in ontology.index else class_id
        for name, class_id in zip(names, ontology.class_ids, strict=True)
    ]


def _rows(workspace: Workspace, labels: HubLabels) -> pl.DataFrame:
    """Return clips with all that is said of them; ``audio`` and times are where the sound is."""
    columns = ["clip_id", "audio", "start_seconds", "end_seconds", "split", "source"]
    rows = workspace.clips.select(columns)
    parts = {"labels": (labels.given, True), "negatives": (labels.given, False)}
    if labels.corrected is not None:
        parts["corrected_labels"] = (labels.corrected, True)
        parts["corrected_negatives"] = (labels.corrected, False)
    for name, (own, present) in parts.items():
        rows = _with_lists(
            rows, own.rows().filter(present=present), workspace.ontology, {name: None}
        )
    flags = pl.DataFrame(schema=_FLAG_SCHEMA) if labels.flags is None else labels.flags
    lists = {"flags": None, "flag_chances": "chance", "flag_scores": "logit"}
    return _with_lists(rows, flags, workspace.ontology, lists)


def _with_lists(
    rows: pl.DataFrame, said: pl.DataFrame, ontology: Ontology, lists: Mapping[str, str | None]
) -> pl.DataFrame:
    """Add a list for each clip: the numbers of classes, or another column of what is said."""
    number = pl.col("class_id").replace_strict(ontology.index, return_dtype=pl.Int64)
    values = [
        (number if column is None else pl.col(column).cast(pl.Float32)).alias(name)
        for name, column in lists.items()
    ]
    own = said.select("clip_id", *values).group_by("clip_id", maintain_order=True).all()
    joined = rows.join(own, on="clip_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col(name).fill_null([]) for name in lists)


def _shards(workspace: Workspace, rows: pl.DataFrame, unread: list[str]) -> Iterator[pl.DataFrame]:
    """Yield rows with their sound, as many at a time as make up a shard."""
    kind = pl.Struct({"bytes": pl.Binary, "path": pl.String})
    sounds: list[dict[str, Any] | None] = []
    first, n_bytes = 0, 0
    quarantined = dict(read_quarantine(workspace).select("clip_id", "reason").iter_rows())
    places = rows.select("clip_id", "audio", "start_seconds", "end_seconds")
    for n_rows, (clip_id, audio, start, end) in enumerate(places.iter_rows(), start=1):
        try:
            if audio is not None and clip_id in quarantined:
                raise UnreadableAudio(audio, f"quarantined: {quarantined[clip_id]}")
            sounds.append(audio and _embedded(workspace, clip_id, audio, start, end))
        except (UnreadableAudio, OSError) as error:
            if is_memory_error(error):
                raise
            unread.append(f"{clip_id}: {error}")
            sounds.append(None)
        n_bytes += len(sounds[-1]["bytes"]) if sounds[-1] else 0
        if n_rows == len(rows) or n_bytes >= _SHARD_BYTES or len(sounds) >= _SHARD_ROWS:
            yield rows[first:n_rows].with_columns(pl.Series("audio", sounds, kind))
            sounds, first, n_bytes = [], n_rows, 0


def _embedded(
    workspace: Workspace, clip_id: str, audio: str, start: float | None, end: float | None
) -> dict[str, Any]:
    """Return the bytes and the name of a clip's sound; what cannot be decoded is refused."""
    place = workspace.audio_place(audio)
    with local_copy(place) as path:
        any(len(block) for block in stream_clip(path, _CHECKED_HZ, start, end))
        if start is None and end is None:
            return {"bytes": path.read_bytes(), "path": PurePosixPath(str(place)).name}
        name = clip_id.replace("/", "_").replace("\\", "_")
        return {"bytes": _cut(path, start or 0.0, end), "path": f"{name}.flac"}


def _cut(path: Path, start: float, end: float | None) -> bytes:
    """Return a part of a recording as FLAC, at the recording's own rate and with its channels."""
    check_libraries("cutting clips out of recordings", "soundfile", "av", "soxr")
    import soundfile  # optional: labels are exported without it

    file = io.BytesIO()
    try:
        with soundfile.SoundFile(path) as sound:
            rate_hz = sound.samplerate
            first = min(round(start * rate_hz), sound.frames)
            last = sound.frames if end is None else min(round(end * rate_hz), sound.frames)
            sound.seek(first)
            samples = sound.read(last - first, dtype="float32")
    except (soundfile.LibsndfileError, TypeError):  # TypeError: named .raw
        header = sound_header(path)
        rate_hz = 16_000 if header is None else header.rate_hz
        samples = read_clip(path, rate_hz, start, end)
    soundfile.write(file, samples, rate_hz, format="FLAC")
    return file.getvalue()


_FLOATS = ("flag_chances", "flag_scores")
_MEANINGS = {
    "clip_id": "the clip's name",
    "audio": "the sound, embedded",
    "source": "the recording that the clip is from: do not split one between train and test",
    "labels": "classes that somebody said are present",
    "negatives": "classes that somebody said are not present; all others nobody was asked about",
    "corrected_labels": "classes that are present after listening",
    "corrected_negatives": "classes that are not present after listening",
    "flags": "classes that are suspected to be missing, the likeliest first",
    "flag_chances": "how likely each of the flags is right",
    "flag_scores": "the teacher's score (a logit) of each of the flags",
}
"""The columns, and what README.md says of each."""


def _features(columns: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Describe the columns as the library does within a Parquet file."""
    number = {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"}
    classes = {"feature": {"names": list(names), "_type": "ClassLabel"}, "_type": "List"}
    kinds: dict[str, Any] = dict.fromkeys(_FLOATS, number) | {"audio": {"_type": "Audio"}}
    kinds |= {name: {"dtype": "string", "_type": "Value"} for name in ("clip_id", "source")}
    return {name: kinds.get(name, classes) for name in columns}


def _in_readme(column: str, names: Sequence[str]) -> dict[str, Any]:
    """Describe a column as the library does in README.md, where it looks for types."""
    if column in ("clip_id", "source", "audio"):
        return {"name": column, "dtype": "audio" if column == "audio" else "string"}
    if column in _FLOATS:
        return {"name": column, "list": "float32"}
    numbered = {str(number): name for number, name in enumerate(names)}
    return {"name": column, "list": {"class_label": {"names": numbered}}}


def _write_descriptions(
    folder: Path, ontology: Ontology, columns: Sequence[str], names: Sequence[str]
) -> None:
    """Write README.md and classes.csv."""
    info = {"features": [_in_readme(name, names) for name in columns]}
    # JSON is YAML, and quotes whatever stands in a class's name.
    head = f"---\ndataset_info: {json.dumps(info)}\n---\n\n"
    table = "".join(f"| `{name}` | {_MEANINGS[name]} |\n" for name in columns)
    text = f"{head}| column | |\n|---|---|\n{table}\nWritten by `earmark export`.\n"
    write_text(folder / "README.md", text)
    classes = ontology.to_table().with_columns(pl.col("parents").list.join(";"))
    write_table(folder / CLASSES_FILE, classes)
