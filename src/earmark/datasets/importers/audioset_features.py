"""AudioSet's released VGGish embeddings, read from TFRecord files without TensorFlow.

A TFRecord file is a sequence of records: length (8 bytes, little endian), its checksum, the
content, its checksum. A record that is no clip is left out and named; the checksums (CRC-32C) are
not compared, for the released archive has checksums of its own, which are.

Each record is a ``tf.train.SequenceExample`` with ``video_id``, ``start_time_seconds``,
``end_time_seconds``, ``labels`` (class indices) and ``audio_embedding``: up to ten frames of 128
bytes, one for each 0.96 s. The message is parsed here because protobuf with TensorFlow's classes
would be a large dependency for five fields. Each frame becomes one patch of the frame store, in
bytes as published (PCA-whitened, clipped to -2..2, quantised to 0..255).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import write_store
from earmark.compute import SILENT, Meter, Progress
from earmark.datasets.audio_files import TAR_SUFFIXES, DamagedArchive, read_tar, walk_files
from earmark.datasets.extraction import write_quarantine
from earmark.datasets.importers.audioset import Listing, find_official, ontology_notes, read_listing
from earmark.datasets.workspace import ImportSummary, Split, Workspace, write_dataset
from earmark.errors import EarmarkError, reader
from earmark.labels import TUNE_SHARE, LabelSet, complete_splits, read_classes, read_ontology
from earmark.storage import break_seal, move_files, scratch_beside, writes

_LARGEST_RECORD_BYTES = 1 << 16
"""A longer record is no clip of embeddings."""


def read_records(file: str, content: bytes) -> Iterator[Embedding | str]:
    """Read the clips of a TFRecord file; a text says where it is damaged, and how.

    Behind a length that cannot be, or where the file ends early, nothing more can be found, and the
    last item is the damage. ``file`` is its name for messages.
    """
    offset = 0
    while offset < len(content):
        start, where = offset + 12, f"{file}, byte {offset:,}"
        n_bytes = int.from_bytes(content[offset : offset + 8], "little")
        end = start + n_bytes
        if start <= len(content) and n_bytes > _LARGEST_RECORD_BYTES:
            yield f"{where}: a record of {n_bytes:,} bytes is no clip; the rest is lost"
            return
        if end + 4 > len(content):
            yield f"{where}: the file ends within a record: was it cut off?"
            return
        try:
            yield parse_embedding(content[start:end])
        except (ValueError, struct.error) as error:
            yield f"{where}: the record is no clip of the release: {error}"
        offset = end + 4


_FRAME_BYTES = 128
_FRAME_HEAD = b"\x0a\x86\x01\x0a\x83\x01\x0a\x80\x01"  # feature { bytes_list { value: 128 bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types


@dataclass(frozen=True)
class Embedding:
    """One clip of the release; ``frames`` is uint8 [frame, 128]."""

    source: str
    start_seconds: float
    end_seconds: float
    class_indices: tuple[int, ...]
    frames: NDArray[np.uint8]

    @property
    def clip_id(self) -> str:
        """The video and the start in milliseconds, as the segments name it."""
        return f"{self.source}_{round(self.start_seconds * 1_000)}"


def parse_embedding(content: bytes) -> Embedding:
    """Read one clip from a serialised SequenceExample; raise ValueError where it is none."""
    context: dict[str, bytes] = {}
    frame_lists: dict[str, bytes] = {}
    try:
        for number, message in _fields(content):
            into = {1: context, 2: frame_lists}.get(number, {})
            for _, entry in _fields(message):
                parts = dict(_fields(entry))
                into[parts[1].decode()] = parts[2]
        (source,) = _values(context["video_id"], 1)
        start, end = (
            struct.unpack("<f", b"".join(_values(context[f"{edge}_time_seconds"], 2)))[0]
            for edge in ("start", "end")
        )
        indices = tuple(_varints(b"".join(_values(context["labels"], 3))))
        frames = _frames(frame_lists["audio_embedding"])
    except KeyError as error:
        raise ValueError(f"the field {error} is not there") from None
    return Embedding(source.decode(), start, end, indices, frames)


def _frames(frame_list: bytes) -> NDArray[np.uint8]:
    """Return the frames [frame, 128] of a FeatureList.

    Around each frame are the same tags and lengths of three messages, so that all of them are cut
    out at once, many times as fast as field by field.
    """
    head = np.frombuffer(_FRAME_HEAD, np.uint8)
    n_each = len(head) + _FRAME_BYTES
    encoded = np.frombuffer(frame_list, np.uint8)
    if len(encoded) == 0 or len(encoded) % n_each:
        raise ValueError(f"the frames do not have {_FRAME_BYTES} bytes each")
    rows = encoded.reshape(-1, n_each)
    if (rows[:, : len(head)] != head).any():
        raise ValueError(f"the frames do not have {_FRAME_BYTES} bytes each")
    return np.ascontiguousarray(rows[:, len(head) :])


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of a protobuf message's fields; varints as their bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _BYTES:
            n_bytes, place = _varint(message, place)
            end = place + n_bytes
        elif kind == _VARINT:
            _, end = _varint(message, place)
        elif kind in (_FIXED32, _FIXED64):
            end = place + (4 if kind == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {kind} is not of protobuf's third version")
        if end > len(message):
            raise ValueError("a field is longer than the message")
        yield tag >> 3, message[place:end]
        place = end


def _values(feature: bytes, kind: int) -> list[bytes]:
    """Return the values of a Feature of one kind (1 bytes, 2 floats, 3 integers)."""
    lists = [each for number, each in _fields(feature) if number == kind]
    return [value for each in lists for _, value in _fields(each)]


def _varints(packed: bytes) -> Iterator[int]:
    place = 0
    while place < len(packed):
        value, place = _varint(packed, place)
        yield value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place and the place behind it."""
    value = shift = 0
    while place < len(message):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("the message ends within a number")


_FOLDER_SPLITS: dict[str, Split] = {"bal_train": "train", "unbal_train": "train", "eval": "eval"}
"""The release's folders; a record elsewhere takes its split from the segments, or else train."""

_STORED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "clip_id": pl.String,
    "start_seconds": pl.Float64,
    "end_seconds": pl.Float64,
    "split": pl.String,
    "source": pl.String,
    "class_indices": pl.List(pl.Int64),
}


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
    themselves. Damaged records are left out, and named in the notes.
    Another dataset in the workspace is refused, unless ``replace`` says so.
    """
    files = find_official(root if root.is_dir() else root.parent, skip=work)
    classes = read_classes(files.classes)
    ontology = read_ontology(classes, files.ontology)
    listing = read_listing(files, ontology)
    meter = progress.job("embeddings", len(listing.clips), "clips")
    stored: dict[str, tuple[Any, ...]] = {}
    damages: list[str] = []
    frames = Workspace(work).frames_folder
    with scratch_beside(frames) as incoming:
        write_store(incoming, _frames_of_clips(root, work, stored, damages, meter))
        rows = [(clip_id, *facts) for clip_id, facts in stored.items()]
        met = pl.DataFrame(rows, _STORED_SCHEMA, orient="row")
        clips, positives, notes = _merge(listing, met, classes)
        labels = LabelSet.from_rows(positives, clips["clip_id"], ontology.class_ids, str(root))
        split = complete_splits(labels, clips["source"], clips["split"], tune_share=tune_share)
        clips = clips.with_columns(split, audio=pl.lit(None, pl.String))
        workspace = write_dataset(work, clips, ontology, labels, replace=replace)
        break_seal(frames)
        move_files(incoming, frames)
    n_found = len(stored)
    reason = pl.lit("no embedding of this clip is among the records")
    write_quarantine(workspace, clips[n_found:].with_columns(reason=reason))
    more = (f"{len(damages) - 3:,} more damaged places",) if len(damages) > 3 else ()
    told = (*listing.notes, *ontology_notes(files), *notes, *damages[:3], *more)
    return ImportSummary(workspace, len(clips), n_found, len(clips) - n_found, told)


def _frames_of_clips(
    root: Path, work: Path, stored: dict[str, tuple[Any, ...]], damages: list[str], meter: Meter
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield each clip's name and frames for the store, and note what else is said of it.

    Of records that repeat a clip the first counts.
    """
    for file, content in _contents(root, work, damages):
        folders = Path(file).parts[::-1]
        split = next((_FOLDER_SPLITS[name] for name in folders if name in _FOLDER_SPLITS), None)
        for clip in read_records(file, content):
            meter.advance(1)
            if isinstance(clip, str):
                damages.append(clip)
            elif clip.clip_id not in stored:
                times = (clip.start_seconds, clip.end_seconds)
                stored[clip.clip_id] = (*times, split, clip.source, list(clip.class_indices))
                yield clip.clip_id, clip.frames
    if not stored:
        damage = f" ({damages[0]})" if damages else ""
        raise EarmarkError(
            f"{root}: no embeddings could be read{damage}; expected the release's features.tar.gz "
            "or its *.tfrecord files"
        )


def _contents(root: Path, work: Path, damages: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every TFRecord file; archives count where nothing is unpacked."""
    paths = list(walk_files(root, skip=work))
    plain = [path for path in paths if path.endswith(".tfrecord")]
    for path in plain:
        yield path, Path(path).read_bytes()
    for path in paths:
        if not plain and path.lower().endswith(TAR_SUFFIXES):
            try:
                for name, content in read_tar(path, lambda name: name.endswith(".tfrecord")):
                    if content is not None:
                        yield f"{path}/{name}", content
            except DamagedArchive as error:
                damages.append(str(error))


def _merge(
    listing: Listing, met: pl.DataFrame, classes: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Return clips (those of the store first, in its order), explicit positives, and notes.

    Labels of the segments count where a clip is in both.
    """
    labelled = met.select("clip_id", index="class_indices").explode("index").drop_nulls()
    labelled = labelled.unique(maintain_order=True).join(
        classes.select(pl.col("index").cast(pl.Int64), class_id="mid"),
        on="index",
        how="left",
        maintain_order="left",
    )
    unknown, named = labelled["class_id"].null_count(), labelled.drop("index").drop_nulls()
    notes = [f"{unknown:,} labels left out: their class indices are not listed"] if unknown else []
    listed = listing.clips.select("clip_id", listed_split="split")
    split = pl.coalesce("listed_split", "split", pl.lit("train"))
    stored = met.join(listed, on="clip_id", how="left", maintain_order="left")
    n_unlisted = stored["listed_split"].null_count()
    if 0 < n_unlisted < len(stored):
        notes.append(f"{n_unlisted:,} records are in no list of segments")
    stored = stored.with_columns(split=split).select(listing.clips.columns)
    missing = listing.clips.join(stored, on="clip_id", how="anti", maintain_order="left")
    unlisted = named.join(listed, on="clip_id", how="anti", maintain_order="left")
    rows = pl.concat([listing.positives, unlisted]).with_columns(present=pl.lit(True))
    return pl.concat([stored, missing]), rows, notes
