"""AudioSet with sound: the official segments, classes and ontology, and files of audio.

The lists of segments name positives only. Their formats are described in
:mod:`earmark.labels.label_files`.

A file belongs to a clip when it is called ``YTID``, ``YTID_START`` or ``YTID_START_END``, with an
optional ``Y`` in front, times in seconds or milliseconds. A name with a start is a cut clip and is
used whole. A bare ``YTID`` may be the cut clip or the whole video: it is the video when it is at
least a second longer than the segment and reaches into it; then only the segment is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import find_recordings, read_lengths, walk_files, without_ending
from earmark.datasets.workspace import CLIP_SCHEMA, ImportSummary, Split, write_dataset
from earmark.errors import EarmarkError, reader
from earmark.labels import (
    CLASSES_FILE,
    NUMBER,
    ONTOLOGY_FILE,
    TUNE_SHARE,
    VIDEO_ID,
    LabelSet,
    Ontology,
    complete_splits,
    read_classes,
    read_ontology,
    read_segments,
)
from earmark.options import Option
from earmark.storage import AudioAccess, writes

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
    if len(unknown):
        names = unknown.value_counts(sort=True)["class_id"]
        notes.append(
            f"{len(unknown):,} labels of the segments left out: {len(names):,} classes are not in "
            f"{CLASSES_FILE} ({', '.join(names[:3])})"
        )
    return Listing(unique.select(_LISTED), positives, tuple(notes))


_CUT_SLACK_SECONDS = 1.0
"""A cut clip may be this much longer than its segment: codecs pad."""

# An id has 11 characters, so a leading Y is never in doubt: no name fits both alternatives.
_NAME = rf"^(?:({VIDEO_ID})|Y({VIDEO_ID}))(?:_({NUMBER}))?(?:_{NUMBER})?$"


@writes("import", makes=True)
@reader("AudioSet")
def import_audioset(
    root: Path,
    work: Path,
    *,
    audio: Annotated[Path | None, Option("Where the audio is, if not in ROOT.")] = None,
    tune_share: float = TUNE_SHARE,
    allow: Sequence[Path] = (),
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from AudioSet's label files under ``root`` and whatever audio is there.

    Sound is looked for under ``audio`` (a folder or an archive; by default ``root``). Clips without
    a file are listed with a null path. ``tune_share`` of the training videos become the tune split.
    Links that lead out of the folder of sound are refused, unless it is into one of ``allow``.
    Another dataset in the workspace is refused, unless ``replace`` says so.
    """
    files = find_official(root, skip=work)
    if not files.segments:
        raise EarmarkError(f"{root}: none of {', '.join(SEGMENT_FILES)} is in it")
    classes = read_classes(files.classes)
    ontology = read_ontology(classes, files.ontology)
    listing = read_listing(files, ontology)
    rows = listing.positives.with_columns(present=pl.lit(True))
    clips, audio_notes = _with_audio(listing.clips, audio or root, allow, work, progress)
    if audio is not None and clips["audio"].is_null().all():
        raise EarmarkError(
            f"{audio}: none of the {len(clips):,} listed clips has a sound file there; expected "
            "names such as YTID.wav, YYTID.wav or YTID_START.flac"
        )
    labels = LabelSet.from_rows(rows, clips["clip_id"], ontology.class_ids, str(root))
    split = complete_splits(labels, clips["source"], clips["split"], tune_share=tune_share)
    clips = clips.with_columns(split)
    notes = (*listing.notes, *ontology_notes(files), *audio_notes)
    access = AudioAccess(root, (audio or root, *allow))
    workspace = write_dataset(work, clips, ontology, labels, access=access, replace=replace)
    n_missing = clips["audio"].null_count()
    return ImportSummary(workspace, len(clips), len(clips) - n_missing, n_missing, notes)


def _match(names: pl.Series, clips: pl.DataFrame) -> pl.DataFrame:
    """Find the clips that names of files stand for: name, clip_id, is_bare, ...

    The columns of ``clips`` follow. A start in the name must be the clip's, in seconds (exact or
    cut to a whole number) or in milliseconds.
    """
    part = pl.col("name").str.extract_groups(_NAME).struct
    parsed = names.alias("name").to_frame().with_row_index("order")
    parsed = parsed.with_columns(
        source=pl.coalesce(part.field("1"), part.field("2")),
        start=part.field("3").cast(pl.Float64),
    )
    start, said = pl.col("start_seconds"), pl.col("start")
    is_said = (said == start) | (said == start.floor()) | (said == (start * 1_000).round())
    return (
        parsed.join(clips, on="source", how="inner")
        .filter(said.is_null() | is_said)
        .with_columns(is_bare=said.is_null())
        .sort("is_bare", "order")
    )


def _with_audio(
    clips: pl.DataFrame, root: Path, allow: Sequence[Path], work: Path, progress: Progress
) -> tuple[pl.DataFrame, list[str]]:
    """Add ``audio`` to the clips, and correct the times of those that are cut already."""
    meter = progress.job("find audio", len(clips), "files")
    found = find_recordings(root, work, _is_listed(clips), meter, allow)
    stems = found.files.select(without_ending("key").str.extract(r"([^/]+)$")).to_series()
    matches = _match(stems, clips)
    matches = matches.with_columns(found.files["audio"].gather(matches["order"]))
    chosen = matches.unique("clip_id", keep="first", maintain_order=True)
    notes = list(found.notes)
    if not len(chosen):
        notes.append(f"no audio found under {root}: clips and labels only")
    n_spare = len(found.files) - chosen["order"].n_unique()
    if n_spare:
        notes.append(f"{n_spare:,} files not used: another file, or another segment, was listed")
    is_whole = _is_whole(chosen, work, progress)  # a cut clip is read from end to end
    chosen = chosen.with_columns(
        pl.when(is_whole).then(name).alias(name) for name in ("start_seconds", "end_seconds")
    )
    without = clips.join(chosen, on="clip_id", how="anti").with_columns(audio=pl.lit(None))
    columns = [*clips.columns, "audio"]
    both = pl.concat([chosen.select(columns), without.select(columns)], how="vertical_relaxed")
    return clips.select("clip_id").join(both, on="clip_id", maintain_order="left"), notes


def _is_listed(clips: pl.DataFrame) -> Callable[[str], bool]:
    """Return the test whether a file's name may belong to a listed clip."""

    @cache
    def sources() -> frozenset[str]:  # millions of them: only made once a file asks
        return frozenset(clips["source"].to_list())

    def is_listed(name: str) -> bool:
        match = re.match(_NAME, name)
        return match is not None and (match[1] or match[2]) in sources()

    return is_listed


def _is_whole(chosen: pl.DataFrame, work: Path, progress: Progress) -> pl.Series:
    """Tell of which files only the segment is wanted: whole videos, and all segments from 0 on.

    A segment from 0 on is the same in the video and in the cut clip, so these are not opened.
    """
    unclear = chosen.filter(pl.col("is_bare") & (pl.col("start_seconds") > 0))
    is_from_0 = chosen["is_bare"] & (chosen["start_seconds"] == 0)
    if unclear.is_empty():
        return is_from_0
    meter = progress.job("tell clips from videos", len(unclear), "files")
    lengths = read_lengths([work / audio for audio in unclear["audio"].to_list()], meter)
    span = pl.col("end_seconds") - pl.col("start_seconds")
    least = pl.max_horizontal(span + _CUT_SLACK_SECONDS, "start_seconds")
    is_video = unclear.with_columns(seconds=lengths)
    videos = is_video.filter(pl.col("seconds") > least)["clip_id"]
    return is_from_0 | chosen["clip_id"].is_in(videos.implode())
