"""AudioSet's official lists as the clips, classes and labels of a workspace.

How the files themselves are written is in :mod:`earmark.labels.audioset_format`; here they are
found, joined into one listing of clips with splits, and their classes checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from earmark.datasets.audio_files import walk_files
from earmark.datasets.workspace import CLIP_SCHEMA, Split
from earmark.errors import EarmarkError
from earmark.labels import CLASSES_FILE, ONTOLOGY_FILE, LabelSet, Ontology, assign, read_segments

SEGMENT_FILES: dict[str, Split] = {
    "eval_segments.csv": "eval",
    "balanced_train_segments.csv": "train",
    "unbalanced_train_segments.csv": "train",
}
"""Lists of segments and their splits; the first that lists a clip keeps it, so eval stays clean."""

_LISTED = ("clip_id", "start_seconds", "end_seconds", "split", "source")


@dataclass(frozen=True)
class OfficialFiles:
    """Where AudioSet's label files lie."""

    segments: dict[str, Path]
    classes: Path
    ontology: Path | None


@dataclass(frozen=True)
class Listing:
    """What the lists of segments say.

    ``clips``: clip_id, start_seconds, end_seconds, split, source; ``positives``: clip_id, class_id.
    """

    clips: pl.DataFrame
    positives: pl.DataFrame
    notes: tuple[str, ...]


def find_official(root: Path, skip: Path | None = None) -> OfficialFiles:
    """Find the label files anywhere under a folder; the first in the order of paths counts."""
    if not root.exists():
        raise EarmarkError(f"{root}: no such folder")
    wanted = {*SEGMENT_FILES, CLASSES_FILE, ONTOLOGY_FILE}
    found: dict[str, Path] = {}
    for path in map(Path, walk_files(root, skip)):
        if path.name in wanted:
            found.setdefault(path.name, path)
    if CLASSES_FILE not in found:
        raise EarmarkError(
            f"{root}: {CLASSES_FILE} is not in it; it names AudioSet's classes and comes with the "
            "segments at research.google.com/audioset/download.html"
        )
    segments = {name: found[name] for name in SEGMENT_FILES if name in found}
    return OfficialFiles(segments, found[CLASSES_FILE], found.get(ONTOLOGY_FILE))


def ontology_notes(files: OfficialFiles) -> tuple[str, ...]:
    """Say so where there is no ontology."""
    if files.ontology is not None:
        return ()
    return (f"no {ONTOLOGY_FILE}: the classes have no parents and no definitions",)


def read_listing(files: OfficialFiles, ontology: Ontology) -> Listing:
    """Read all lists of segments; what is listed twice or names no class is left out and noted."""
    if not files.segments:
        clips = pl.DataFrame(schema={name: CLIP_SCHEMA[name] for name in _LISTED})
        return Listing(clips, clips.select("clip_id", class_id="clip_id"), ())
    segments = pl.concat(
        read_segments(path).with_columns(split=pl.lit(SEGMENT_FILES[name]))
        for name, path in files.segments.items()
    )
    unique = segments.unique("clip_id", keep="first", maintain_order=True)
    notes = []
    if len(unique) < len(segments):
        notes.append(f"{len(segments) - len(unique):,} segments are listed twice: the first counts")
    # One clip, one row per class; repetitions within a line are harmless.
    named = unique.select("clip_id", class_id=pl.col("class_ids").list.unique(maintain_order=True))
    named = named.explode("class_id").filter(pl.col("class_id") != "")
    positives = named.filter(pl.col("class_id").is_in(ontology.class_ids))
    unknown = named.filter(~pl.col("class_id").is_in(ontology.class_ids))["class_id"]
    if len(positives) == 0:
        raise EarmarkError(f"not one label in the segments is a class of {files.classes}")
    notes += left_out("labels of the segments", unknown)
    return Listing(unique.select(_LISTED), positives, tuple(notes))


def take_tune(clips: pl.DataFrame, labels: LabelSet, tune_share: float) -> pl.DataFrame:
    """Move a share of the training clips to the tune split, whole videos, classes alike."""
    train = np.flatnonzero((clips["split"] == "train").to_numpy())
    if tune_share == 0 or len(train) == 0:
        return clips
    shares = [1 - tune_share, tune_share]
    part = assign(labels.select(train), clips["source"].gather(train), shares)
    return clips.with_columns(clips["split"].clone().scatter(train[part == 1], "tune"))


def left_out(what: str, unknown: pl.Series) -> list[str]:
    """Return a note that names unknown classes, most frequent first; none where there are none."""
    if len(unknown) == 0:
        return []
    names = unknown.value_counts(sort=True)[unknown.name].to_list()
    return [
        f"{len(unknown):,} {what} left out: {len(names):,} classes are not in {CLASSES_FILE} "
        f"({', '.join(names[:3])})"
    ]
