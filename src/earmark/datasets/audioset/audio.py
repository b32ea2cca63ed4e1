"""AudioSet: the official segments, classes and ontology, with audio as people really have it.

The lists of segments name positives only; a file of ratings adds what raters did not hear.

A file belongs to a clip when it is called ``YTID``, ``YTID_START`` or ``YTID_START_END``, with a
``Y`` before it or not, times in seconds or milliseconds. A name with a start is a cut clip and is
used whole. A bare ``YTID`` may be the cut clip or the whole video: it is the video when it is at
least a second longer than the segment and reaches into it; then only the segment is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl

from earmark.audio import duration_seconds
from earmark.datasets.audio_files import find_audio
from earmark.datasets.audioset.lists import (
    SEGMENT_FILES,
    Listing,
    find_official,
    left_out,
    ontology_notes,
    read_listing,
    take_tune,
)
from earmark.datasets.importer import ImportSummary
from earmark.datasets.workspace import write_dataset
from earmark.errors import EarmarkError, nearest, reader
from earmark.labels import (
    NUMBER,
    TUNE_SHARE,
    VIDEO_ID,
    LabelSet,
    Ontology,
    read_classes,
    read_ontology,
)
from earmark.runs import LINE, SILENT, Progress, SourceTable, read_source, writes

_RATING_COLUMNS = {
    "clip_id": ("clip_id", "video_id", "segment_id", "ytid", "youtube_id", "id"),
    "class_id": ("class_id", "mid", "class", "label", "label_id"),
    "present": ("present", "rating", "is_present", "value"),
}
"""Names under which the three columns of a file of ratings are found."""

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
    audio: Path | None = None,
    ratings: Path | None = None,
    tune_share: float = TUNE_SHARE,
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from AudioSet's label files under ``root`` and whatever audio is there.

    Sound is looked for under ``audio`` (a folder or an archive; by default ``root``). Clips without
    a file are listed with a null path. ``tune_share`` of the training videos become the tune split.
    ``ratings`` is a table of video or clip, class and present, and outweighs the segments. Another
    dataset in the workspace is refused, unless ``replace`` says so.
    """
    files = find_official(root, skip=work)
    if not files.segments:
        raise EarmarkError(f"{root}: none of {', '.join(SEGMENT_FILES)} is in it")
    classes = read_classes(files.classes)
    ontology = read_ontology(classes, files.ontology)
    listing = read_listing(files, ontology)
    rows, rating_notes = _labels(listing, ratings, ontology)
    clips, audio_notes = _with_audio(listing.clips, audio or root, work, progress)
    if audio is not None and clips["audio"].is_null().all():
        raise EarmarkError(
            f"{audio}: none of the {len(clips):,} listed clips has a sound file there; expected "
            "names such as YTID.wav, YYTID.wav or YTID_START.flac"
        )
    labels = LabelSet.from_rows(rows, clips["clip_id"], ontology.class_ids, str(root))
    clips = take_tune(clips, labels, tune_share)
    notes = (*listing.notes, *ontology_notes(files), *rating_notes, *audio_notes)
    workspace = write_dataset(work, clips, ontology, labels, replace=replace)
    n_missing = clips["audio"].null_count()
    return ImportSummary(workspace, len(clips), len(clips) - n_missing, n_missing, notes)


def _labels(
    listing: Listing, ratings: Path | None, ontology: Ontology
) -> tuple[pl.DataFrame, list[str]]:
    """Return all explicit labels clip_id, class_id, present; ratings outweigh segments."""
    positives = listing.positives.with_columns(present=pl.lit(True))
    if ratings is None:
        return positives, []
    rated, notes = _read_ratings(ratings, listing.clips, ontology)
    keys = ["clip_id", "class_id"]
    n_denied = len(positives.join(rated.filter(~pl.col("present")), on=keys, how="semi"))
    if n_denied:
        notes.append(f"{n_denied:,} positives of the segments are rated not present: so they are")
    return pl.concat([rated, positives.join(rated, on=keys, how="anti")]), notes


def _read_ratings(
    path: Path, clips: pl.DataFrame, ontology: Ontology
) -> tuple[pl.DataFrame, list[str]]:
    source = read_source(path)
    chosen = {column: _column(source, column) for column in _RATING_COLUMNS}
    rows = source.rows.select(LINE, *(pl.col(name).alias(to) for to, name in chosen.items()))
    table = LabelSet.from_table(replace(source, rows=rows)).rows()  # no contradiction
    matches = _match(table["clip_id"].unique(maintain_order=True), clips)
    placed = table.rename({"clip_id": "name"}).join(
        matches.select("name", "clip_id"), on="name", how="left", maintain_order="left"
    )
    notes = [f"{len(table):,} ratings read from the columns {', '.join(chosen.values())}"]
    n_unlisted = placed["clip_id"].null_count()
    if n_unlisted:
        notes.append(f"{n_unlisted:,} ratings left out: their clips are in no list of segments")
    is_class = pl.col("class_id").is_in(ontology.class_ids)
    placed = placed.drop_nulls("clip_id")
    notes += left_out("ratings", placed.filter(~is_class)["class_id"])
    return placed.filter(is_class).select("clip_id", "class_id", "present"), notes


def _column(table: SourceTable, column: str) -> str:
    for name in table.columns:
        if name.lower() in _RATING_COLUMNS[column]:
            return name
    choices = ", ".join(_RATING_COLUMNS[column])
    hint = nearest(column, table.columns)
    raise EarmarkError(f"{table.path}: no column {column!r} (or {choices}){hint}")


def _match(names: pl.Series, clips: pl.DataFrame) -> pl.DataFrame:
    """Find the clips that names of files or ratings stand for: name, clip_id, is_bare, ...

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
    clips: pl.DataFrame, root: Path, work: Path, progress: Progress
) -> tuple[pl.DataFrame, list[str]]:
    """Add ``audio`` to the clips, and correct the times of those that are cut already."""
    meter = progress.job("find audio", len(clips), "files")
    found = find_audio(root, work, _is_listed(clips), meter)
    matches = _match(found.files["name"], clips)
    matches = matches.with_columns(found.files["audio"].gather(matches["order"]))
    chosen = matches.unique("clip_id", keep="first", maintain_order=True)
    notes = list(found.notes)
    if not len(chosen):
        notes.append(f"no audio found under {root}: clips and labels only")
    n_spare = found.files["name"].len() - chosen["order"].n_unique()
    if n_spare:
        notes.append(f"{n_spare:,} files not used: another file, or another segment, was listed")
    chosen = _with_times(chosen, _is_whole(chosen, work, progress))
    without = clips.join(chosen, on="clip_id", how="anti").with_columns(audio=pl.lit(None))
    columns = [*clips.columns, "audio"]
    both = pl.concat([chosen.select(columns), without.select(columns)], how="vertical_relaxed")
    return clips.select("clip_id").join(both, on="clip_id", maintain_order="left"), notes


def _with_times(chosen: pl.DataFrame, is_whole: pl.Series) -> pl.DataFrame:
    """Keep the times of segments within longer files; a cut clip is read from end to end."""
    return chosen.with_columns(
        pl.when(is_whole).then(pl.col(name)).alias(name)
        for name in ("start_seconds", "end_seconds")
    )


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
    lengths: list[float | None] = []
    with ThreadPoolExecutor(max_workers=8) as pool:  # waits for disks, not for the processor
        paths = [work / audio for audio in unclear["audio"].to_list()]
        for seconds in pool.map(duration_seconds, paths):
            lengths.append(seconds)
            meter.advance(1)
    span = pl.col("end_seconds") - pl.col("start_seconds")
    least = pl.max_horizontal(span + _CUT_SLACK_SECONDS, "start_seconds")
    is_video = unclear.with_columns(seconds=pl.Series(lengths, dtype=pl.Float64))
    videos = is_video.filter(pl.col("seconds") > least)["clip_id"]
    return is_from_0 | chosen["clip_id"].is_in(videos.implode())
