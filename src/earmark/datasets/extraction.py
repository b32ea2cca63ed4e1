"""From sound files to frame stores: one task for each shard.

What becomes of a sound is an *ear*'s business: the front end makes log-mel frames of it, a
pretrained network embeddings and outputs, a store each. A shard is written aside, renamed, and
sealed by a table of its own. Whatever ends the work, the same call goes on with the shards that are
missing, and the bytes in the end depend only on the clips and the ear, not on where or how often a
task ran.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import (
    CLIPS_PER_SHARD,
    LAYOUT_VERSION,
    YAMNET,
    FrameFormat,
    FrameStore,
    Row,
    ShardWriter,
    UnreadableAudio,
    content_digest,
    damage,
    file_fingerprint,
    local_file,
    log_mel,
    part_path,
    read_clip,
    read_part,
    read_parts,
    seal_store,
    shard_path,
    size_and_time,
    source_of,
    suspect_files,
)
from earmark.datasets.quarantine import write_quarantine
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, EarmarkWarning, counted, first_few
from earmark.runs import (
    FOUND,
    HERE,
    SILENT,
    AsOneJob,
    Engine,
    FrontEndParams,
    Meter,
    Progress,
    Task,
    break_seal,
    check_unique,
    digest,
    is_current,
    is_finished,
    place_of,
    read_seal,
    read_table,
    write_table,
)

_MIN_SHARDS, _MIN_CLIPS_PER_SHARD = 32, 16
"""Smaller sets get smaller shards, so that all cores have work; never by the number of cores."""


class Ear(Protocol):
    """What turns waveforms into frames; sent to worker processes, so light until it hears."""

    @property
    def digest(self) -> str:
        """Identifies what it makes of a waveform."""

    @property
    def sample_rate_hz(self) -> int:
        """Of the waveforms that it takes."""

    @property
    def formats(self) -> tuple[FrameFormat, ...]:
        """What it makes: a kind of frames for each store."""

    def frames(self, waveform: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
        """Return the frames [frame, band] of a waveform [sample], one array for each format."""


@dataclass(frozen=True)
class FrontEndEar:
    """The log-mel front end."""

    params: FrontEndParams

    @property
    def digest(self) -> str:
        """Identifies the parameters."""
        return self.params.digest()

    @property
    def sample_rate_hz(self) -> int:
        """Of the waveforms that it takes."""
        return self.params.sample_rate_hz

    @property
    def formats(self) -> tuple[FrameFormat, ...]:
        """Log-mel frames as float16."""
        return (
            FrameFormat(
                n_bands=self.params.n_bands,
                dtype="float16",
                patch_frames=self.params.patch_frames,
                patch_hop_frames=self.params.patch_hop_frames,
                front_end=self.params.model_dump(),
            ),
        )

    def frames(self, waveform: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
        """Return log-mel frames."""
        return (log_mel(waveform, self.params).astype(np.float16),)


def extract_frames(
    workspace: Workspace,
    params: FrontEndParams = YAMNET,
    *,
    clips_per_shard: int = CLIPS_PER_SHARD,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> FrameStore:
    """Write the log-mel frames of a workspace's clips, and the quarantine of unreadable ones.

    A store of frames from elsewhere (embeddings that an import brought) is just opened.
    """
    folder = workspace.frames_folder
    if _is_from_elsewhere(folder):
        return FrameStore.open(folder)
    (store,) = write_frames(
        workspace,
        FrontEndEar(params),
        (folder,),
        label="features",
        clips_per_shard=clips_per_shard,
        engine=engine,
        progress=progress,
    )
    return store


def write_frames(
    workspace: Workspace,
    ear: Ear,
    folders: tuple[Path, ...],
    *,
    label: str,
    clips_per_shard: int = CLIPS_PER_SHARD,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> tuple[FrameStore, ...]:
    """Write what an ear makes of a workspace's clips, a store for each of its formats.

    Shards that are there already are kept, unless a file of theirs has changed since; stores that
    are complete are just opened. Clips that cannot be read are quarantined. Raises EarmarkError
    where not one clip can be read.
    """
    shards = _plan(workspace, ear, folders, clips_per_shard)
    is_done = {shard.number: _is_done(shard) for shard in shards}
    pending = [shard for shard in shards if not is_done[shard.number]]
    _note_files([shard for shard in shards if is_done[shard.number]])
    if pending:
        _tell_replaced([at for shard in pending for at in _replaced(shard, folders[0])])
        meter = progress.job(label, len(workspace.clips), "clips")
        meter.advance(len(workspace.clips) - sum(len(shard.clips) for shard in pending), FOUND)
        _extract_shards(label, pending, engine, AsOneJob(meter))
    for folder, frame_format in zip(folders, ear.formats, strict=True):
        parts = read_parts(folder, len(shards))
        store_digest = content_digest(parts, frame_format, workspace.audio_digest)
        if not is_current(folder, store_digest):
            _quarantine(workspace, parts)
            seal_store(folder, parts, frame_format, store_digest)
    return tuple(FrameStore.open(folder) for folder in folders)


def _tell_replaced(places: Sequence[str | Path]) -> None:
    if places:
        n_files = counted(len(places), "sound file")
        message = f"{n_files} changed since frames were made of them, which is done anew"
        warnings.warn(f"{message}: {first_few(map(str, places))}", EarmarkWarning, stacklevel=4)


def _extract_shards(
    label: str, shards: Sequence[_Shard], engine: Engine, progress: Progress
) -> None:
    # An older seal must not stand beside newer frames. It goes here and not in the tasks, so that
    # a task which runs twice takes away nothing that its twin has finished.
    for folder in shards[0].folders:
        break_seal(folder)
        for shard in shards:
            part_path(folder, shard.number).unlink(missing_ok=True)
    engine.map(
        [
            Task(
                f"{label}, shard {shard.number}",
                _extract_shard,
                {"shard": shard},
                len(shard.clips),
                "clips",
                stage="features",
            )
            for shard in shards
        ],
        progress,
    )


def _is_from_elsewhere(folder: Path) -> bool:
    """Tell whether a finished store holds frames that were not made from audio here."""
    return is_finished(folder) and read_seal(folder).get("front_end") is None


@dataclass(frozen=True)
class _Shard:
    """One task of the extraction: the frames of some clips, in each of the stores."""

    folders: tuple[Path, ...]
    number: int
    clips: pl.DataFrame
    root: Path
    ear: Ear

    @cached_property
    def digest(self) -> str:
        """Identifies the ear and the clips of this shard alone."""
        return digest(LAYOUT_VERSION, self.ear.digest, self.clips.write_csv())


def _plan(
    workspace: Workspace, ear: Ear, folders: tuple[Path, ...], clips_per_shard: int
) -> list[_Shard]:
    """Cut the clips into shards; the cut depends on nothing but their number."""
    clips = workspace.clips.select("clip_id", "audio", "start_seconds", "end_seconds")
    if len(clips) == 0:
        raise EarmarkError(f"{workspace.root}: the workspace has no clips to extract frames from")
    check_unique(clips["clip_id"], f"{workspace.root}: clip")
    n_clips = max(-(-len(clips) // _MIN_SHARDS), _MIN_CLIPS_PER_SHARD)
    n_clips = min(n_clips, clips_per_shard)
    return [
        _Shard(folders, number, part, workspace.root, ear)
        for number, part in enumerate(clips.iter_slices(n_clips))
    ]


def _is_done(shard: _Shard) -> bool:
    """Tell whether a shard is there, whole, of these clips, and its unreadable files as they were.

    A drive that was not mounted, or a file that was fetched again, is thus tried once more.
    """
    return all(
        _is_written(shard, folder, frame_format)
        for folder, frame_format in zip(shard.folders, shard.ear.formats, strict=True)
    )


def _is_written(shard: _Shard, folder: Path, frame_format: FrameFormat) -> bool:
    seal_path = part_path(folder, shard.number)
    if not seal_path.exists():
        return False
    part = read_table(seal_path)
    if not (part["digest"] == shard.digest).all():
        return False
    path, n_frames = shard_path(folder, shard.number), int(part["n_frames"].sum())
    if damage(path, n_frames, frame_format):
        return False
    unread = _files(shard, part, ~pl.col("reason").is_null())
    is_same = all(source_of(place) == source for place, source in unread)
    return is_same and not _replaced(shard, folder)


def _files(shard: _Shard, part: pl.DataFrame, wanted: pl.Expr) -> list[tuple[str | Path, str]]:
    """Return the files of some clips of a shard, and what each was when it was read."""
    known = part.with_columns(shard.clips["audio"]).filter(wanted, pl.col("audio").is_not_null())
    rows = known.unique("audio", maintain_order=True).select("audio", "source").iter_rows()
    return [(place_of(shard.root, audio), source) for audio, source in rows]


def _replaced(shard: _Shard, folder: Path) -> list[str | Path]:
    """Return the files of a shard that are not those which it was made of."""
    sealed = part_path(folder, shard.number)
    if not sealed.exists() or not (read_table(sealed)["digest"] == shard.digest).all():
        return []
    suspects = suspect_files(shard.root, folder, [shard.number], shard.clips)
    return [one.place for one in suspects if one.is_other()]


def _note_files(shards: Sequence[_Shard]) -> None:
    """Note sizes and times of files that were moved or copied, so that they are not read again."""
    for shard in shards:
        for folder in shard.folders:
            _note_files_of(shard, folder)


def _note_files_of(shard: _Shard, folder: Path) -> None:
    suspects = suspect_files(shard.root, folder, [shard.number], shard.clips)
    looked_at = [(one, size_and_time(one.place)) for one in suspects]
    same = [(one.audio, *now) for one, now in looked_at if not one.is_other()]
    if same:
        columns = {"audio": pl.String, "n_bytes": pl.Int64, "mtime_ns": pl.Int64}
        part = read_part(folder, shard.number).with_columns(shard.clips["audio"])
        part = part.update(pl.DataFrame(same, columns, orient="row"), on="audio").drop("audio")
        with suppress(OSError):  # where nothing can be written, they are read again
            write_table(part_path(folder, shard.number), part)


def _extract_shard(shard: _Shard, meter: Meter) -> None:
    """Decode and transform the clips of one shard: the task of a worker.

    A shard that is there is left alone: a task is started again when only its answer was lost.
    """
    if _is_done(shard):
        meter.advance(len(shard.clips), FOUND)
        return
    formats = shard.ear.formats
    with ExitStack() as stack:
        writers = [
            stack.enter_context(ShardWriter(folder, shard.number, shard.digest, frame_format))
            for folder, frame_format in zip(shard.folders, formats, strict=True)
        ]
        for rows in _extracted(shard, meter):
            for writer, row in zip(writers, rows, strict=True):
                writer.add(row)


def _extracted(shard: _Shard, meter: Meter) -> Iterator[list[Row]]:
    """Yield the rows of one clip after the other, one for each store."""
    for audio, clips in itertools.groupby(shard.clips.iter_rows(), key=lambda clip: clip[1]):
        for rows in _extract_file(shard, audio, [(name, *span) for name, _, *span in clips], meter):
            yield rows
            meter.advance(1)


def _extract_file(
    shard: _Shard, audio: str | None, clips: Sequence[tuple[Any, ...]], meter: Meter
) -> Iterator[list[Row]]:
    """Extract clips (identifier, start, end) of one file, which is fetched once."""
    n_stores = len(shard.folders)
    if audio is None:
        reason = "no audio file given"
        yield from ([Row(clip_id, None, None, reason)] * n_stores for clip_id, *_ in clips)
        return
    try:
        place = place_of(shard.root, audio)
        file = size_and_time(place)
        with local_file(place) as path:
            source = file_fingerprint(path)
            for clip_id, *span in clips:
                meter.advance(0, f"clip {clip_id}")  # the last word, should it end the process
                rows = _extract(path, source, shard.ear, clip_id, *span)
                yield [replace(row, file=file) for row in rows]
    except UnreadableAudio as error:  # not even the file could be fetched
        yield from ([Row(clip_id, None, None, error.reason)] * n_stores for clip_id, *_ in clips)


def _extract(
    path: Path,
    source: str | None,
    ear: Ear,
    clip_id: str,
    start_seconds: float | None,
    end_seconds: float | None,
) -> list[Row]:
    try:
        waveform = read_clip(path, ear.sample_rate_hz, start_seconds, end_seconds)
    except UnreadableAudio as error:
        return [Row(clip_id, None, source, error.reason)] * len(ear.formats)
    try:
        found = ear.frames(waveform)
    except EarmarkError as error:
        raise EarmarkError(f"clip {clip_id!r}: {error}") from None
    return [Row(clip_id, frames, source) for frames in found]


def _quarantine(workspace: Workspace, parts: pl.DataFrame) -> None:
    """List the clips without frames; refuse to go on where that is all of them."""
    audio = workspace.clips["audio"].cast(pl.String)
    unread = parts.with_columns(audio).filter(pl.col("reason").is_not_null())
    write_quarantine(workspace, unread)
    if len(unread) == len(parts):
        raise EarmarkError(
            f"none of the {len(parts):,} clips of {workspace.root} could be read; the first is "
            f"{unread['audio'][0]}: {unread['reason'][0]}. Is the audio where clips.parquet says? "
            f"All reasons are in {workspace.quarantine_path}"
        )
