"""AudioSet's official VGGish embeddings: TFRecords into the frame store, without TensorFlow.

Every frame of 0.96 s becomes one patch of the store, in bytes as published (PCA-whitened, clipped
to -2..2, quantised to 0..255).
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import write_store
from earmark.datasets.audio_files import TAR_SUFFIXES, DamagedArchive, read_tar, walk_files
from earmark.datasets.audioset.embedding import Embedding, parse_embedding
from earmark.datasets.audioset.lists import (
    Listing,
    find_official,
    ontology_notes,
    read_listing,
    take_tune,
)
from earmark.datasets.audioset.tfrecord import Damage, Record, is_intact, read_records
from earmark.datasets.importer import ImportSummary
from earmark.datasets.quarantine import QUARANTINE_SCHEMA, write_quarantine
from earmark.datasets.workspace import Split, Workspace, write_dataset
from earmark.errors import EarmarkError, reader
from earmark.labels import TUNE_SHARE, LabelSet, read_classes, read_ontology
from earmark.runs import SILENT, Meter, Progress, writes

_RECORDS_AT_ONCE = 2_048
"""Records whose checksums are computed together: many at once is what makes numpy fast."""

_FOLDER_SPLITS: dict[str, Split] = {"bal_train": "train", "unbal_train": "train", "eval": "eval"}
"""The release's folders; a record elsewhere takes its split from the segments, or else train."""

_CLIP_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "clip_id": pl.String,
    "start_seconds": pl.Float64,
    "end_seconds": pl.Float64,
    "split": pl.String,
    "source": pl.String,
    "class_indices": pl.List(pl.Int64),
}


@dataclass
class _Seen:
    """What was met on the way to the store."""

    tables: list[pl.DataFrame] = field(default_factory=list)
    clip_ids: set[str] = field(default_factory=set)
    damages: list[Damage] = field(default_factory=list)
    n_repeated: int = 0

    @property
    def clips(self) -> pl.DataFrame:
        """The clips of the store, in its order, with the class indices of their records."""
        return pl.concat(self.tables)

    def notes(self) -> list[str]:
        notes = [str(damage) for damage in self.damages[:3]]
        if len(self.damages) > len(notes):
            n_more = len(self.damages) - len(notes)
            notes.append(f"{n_more:,} more damaged places are named in quarantine.parquet")
        if self.n_repeated:
            notes.append(f"{self.n_repeated:,} records repeat a clip: the first counts")
        return notes


@writes("import", makes=True)
@reader("AudioSet's features")
def import_audioset_features(
    root: Path,
    work: Path,
    *,
    tune_share: float = TUNE_SHARE,
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace with a finished frame store from the released embeddings.

    ``root`` is the folder with the TFRecords, or ``features.tar.gz`` itself, which is read without
    unpacking it. The label files lie there or beside the archive. Where there are lists of
    segments, their labels count and clips without embeddings are missing; other records list
    themselves. Damaged records are left out, and named in the notes and ``quarantine.parquet``.
    Another dataset in the workspace is refused, unless ``replace`` says so.
    """
    files = find_official(root if root.is_dir() else root.parent, skip=work)
    classes = read_classes(files.classes)
    ontology = read_ontology(classes, files.ontology)
    listing = read_listing(files, ontology)
    seen = _Seen()
    meter = progress.job("embeddings", len(listing.clips), "clips")
    with _incoming_store(work, _clips(root, work, seen, meter)):
        clips, rows, notes = _merge(listing, seen.clips, classes)
        labels = LabelSet.from_rows(rows, clips["clip_id"], ontology.class_ids, str(root))
        clips = take_tune(clips, labels, tune_share).with_columns(audio=pl.lit(None, pl.String))
        workspace = write_dataset(work, clips, ontology, labels, replace=replace)
    n_found = len(seen.clips)
    write_quarantine(workspace, _unread(clips[n_found:], seen.damages))
    notes = [*listing.notes, *ontology_notes(files), *notes, *seen.notes()]
    return ImportSummary(workspace, len(clips), n_found, len(clips) - n_found, tuple(notes))


@contextmanager
def _incoming_store(work: Path, clips: Iterator[tuple[str, NDArray[np.uint8]]]) -> Iterator[None]:
    """Write a store beside the one that is there; it takes its place unless an error comes."""
    frames = Workspace(work).frames_folder
    incoming = frames.with_name("frames-incoming")
    try:
        write_store(incoming, clips)
        yield
        shutil.rmtree(frames, ignore_errors=True)
        incoming.rename(frames)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _clips(
    root: Path, work: Path, seen: _Seen, meter: Meter
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield each clip's name and frames for the store; the rest goes into ``seen``."""
    items = (
        item
        for file, content in _contents(root, work, seen.damages)
        for item in read_records(file, content)
    )
    while batch := list(islice(items, _RECORDS_AT_ONCE)):
        seen.damages += [item for item in batch if isinstance(item, Damage)]
        records = [item for item in batch if isinstance(item, Record)]
        embeddings = list(_embeddings(records, seen))
        seen.tables.append(_clip_table(embeddings))
        for _, embedding in embeddings:
            yield embedding.clip_id, embedding.frames
        meter.advance(len(records))
    if not seen.clip_ids:
        damage = f" ({seen.damages[0]})" if seen.damages else ""
        raise EarmarkError(
            f"{root}: no embeddings could be read{damage}; expected the release's features.tar.gz "
            "or its *.tfrecord files"
        )


def _embeddings(records: Sequence[Record], seen: _Seen) -> Iterator[tuple[str, Embedding]]:
    """Yield the file and embedding of each sound record whose clip was not met before."""
    for record, intact in zip(records, is_intact(records).tolist(), strict=True):
        reason = None if intact else "the record fails its checksum"
        try:
            embedding = parse_embedding(record.content) if intact else None
        except (ValueError, struct.error) as error:
            embedding, reason = None, f"the record is no clip of the release: {error}"
        if embedding is None:
            seen.damages.append(Damage(record.file, record.offset, str(reason)))
        elif embedding.clip_id in seen.clip_ids:
            seen.n_repeated += 1
        else:
            seen.clip_ids.add(embedding.clip_id)
            yield record.file, embedding


def _clip_table(embeddings: Sequence[tuple[str, Embedding]]) -> pl.DataFrame:
    clips = [clip for _, clip in embeddings]
    columns = {
        "clip_id": [clip.clip_id for clip in clips],
        "start_seconds": [clip.start_seconds for clip in clips],
        "end_seconds": [clip.end_seconds for clip in clips],
        "split": [_split_of(file) for file, _ in embeddings],
        "source": [clip.source for clip in clips],
        "class_indices": [list(clip.class_indices) for clip in clips],
    }
    return pl.DataFrame(columns, _CLIP_SCHEMA)


@cache
def _split_of(file: str) -> str | None:
    folders = Path(file).parts[::-1]
    return next((_FOLDER_SPLITS[folder] for folder in folders if folder in _FOLDER_SPLITS), None)


def _contents(root: Path, work: Path, damages: list[Damage]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every TFRecord file; archives count where nothing is unpacked."""
    paths = list(walk_files(root, skip=work))
    plain = [path for path in paths if path.endswith(".tfrecord")]
    for path in plain:
        yield path, Path(path).read_bytes()
    if not plain:
        for path in paths:
            if path.lower().endswith(TAR_SUFFIXES):
                yield from _archived(path, damages)


def _archived(path: str, damages: list[Damage]) -> Iterator[tuple[str, bytes]]:
    try:
        for name, content in read_tar(path, lambda name: name.endswith(".tfrecord")):
            if content is not None:
                yield f"{path}/{name}", content
    except DamagedArchive as error:
        damages.append(Damage(path, error.offset, error.reason))


def _merge(
    listing: Listing, met: pl.DataFrame, classes: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Return clips (those of the store first, in its order), explicit positives, and notes."""
    labelled = met.select("clip_id", index="class_indices").explode("index").drop_nulls()
    labelled = labelled.unique(maintain_order=True).join(
        classes.select(pl.col("index").cast(pl.Int64), class_id="mid"),
        on="index",
        how="left",
        maintain_order="left",
    )
    unknown, named = labelled["class_id"].null_count(), labelled.drop("index").drop_nulls()
    notes = [f"{unknown:,} labels left out: their class indices are not listed"] if unknown else []
    notes += _disagreement(listing, met, named)
    listed = listing.clips.select("clip_id", listed_split="split")
    split = pl.coalesce("listed_split", "split", pl.lit("train"))
    stored = met.join(listed, on="clip_id", how="left", maintain_order="left")
    stored = stored.with_columns(split=split).select(listing.clips.columns)
    missing = listing.clips.join(stored, on="clip_id", how="anti", maintain_order="left")
    unlisted = named.join(listed, on="clip_id", how="anti", maintain_order="left")
    rows = pl.concat([listing.positives, unlisted]).with_columns(present=pl.lit(True))
    return pl.concat([stored, missing]), rows, notes


def _disagreement(listing: Listing, met: pl.DataFrame, named: pl.DataFrame) -> list[str]:
    """Compare the records' labels with the segments', clip by clip."""
    both = met.join(listing.clips, on="clip_id", how="semi").select("clip_id")
    if len(both) == 0:
        return []
    ours, theirs = (
        rows.join(both, on="clip_id", how="semi") for rows in (named, listing.positives)
    )
    keys = ["clip_id", "class_id"]
    odd = pl.concat(
        [ours.join(theirs, on=keys, how="anti"), theirs.join(ours, on=keys, how="anti")]
    )
    n_odd = odd["clip_id"].n_unique()
    notes = [
        f"{len(both) - n_odd:,} of {len(both):,} records have exactly the labels of the segments"
        + (", which count where they differ" if n_odd else "")
    ]
    if len(both) < len(met):
        notes.append(f"{len(met) - len(both):,} records are in no list of segments")
    return notes


def _unread(missing: pl.DataFrame, damages: Sequence[Damage]) -> pl.DataFrame:
    """Name the clips without frames, and the damaged places, whose clips nobody knows."""
    places = pl.DataFrame(
        {
            "clip_id": [None] * len(damages),
            "audio": [damage.file for damage in damages],
            "reason": [f"byte {damage.offset}: {damage.reason}" for damage in damages],
        },
        QUARANTINE_SCHEMA,
    )
    clips = missing.select(
        "clip_id",
        audio=pl.lit(None, pl.String),
        reason=pl.lit("no embedding of this clip is among the records"),
    )
    return pl.concat([places, clips])
