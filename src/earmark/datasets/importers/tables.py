"""Import a dataset from tables: CSV, TSV, Parquet, or Label Studio's JSON.

There is one table of labels, or a table of clips beside it, in any of the forms of
:mod:`earmark.labels.label_tables`. The summary says how each column was read. A 0 in a multi-hot
table is implicit unless ``zeros="absent"``, because it usually means that nobody was asked.

Embeddings computed elsewhere may come with it: a folder with one ``CLIPID.npy`` per clip, [frame,
dim] or [dim], or one ``.npy`` for all clips in their order, [clip, dim] or [clip, frame, dim].
Clips without embeddings are quarantined.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import FrameStore, UnreadableAudio, write_store
from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import (
    ambiguous_note,
    find_recordings,
    match_recordings,
    walk_files,
)
from earmark.datasets.extraction import write_quarantine
from earmark.datasets.importers.class_lists import choose_classes
from earmark.datasets.importers.own_labels import read_clips, read_own_labels
from earmark.datasets.workspace import CLIP_SCHEMA, ImportSummary, Workspace, write_dataset
from earmark.errors import EarmarkError, counted, first_few, reader, told_briefly
from earmark.labels import (
    CLIP_ROLES,
    NO_COLUMN,
    Reading,
    Zeros,
    column_notes,
    complete_splits,
    guess_columns,
)
from earmark.memory import is_memory_error
from earmark.options import Argument, Option
from earmark.storage import (
    AUDIO_SUFFIXES,
    LINE,
    AudioAccess,
    SourceTable,
    read_source,
    refuse_long_header,
    writes,
)


def write_embeddings(
    workspace: Workspace, embeddings: Path, progress: Progress = SILENT
) -> FrameStore:
    """Write a workspace's frames from a folder of arrays or from one array of all clips.

    A patch is one frame. float64 is stored as float32, any other type of numbers as it is. Clips
    whose array is missing, damaged, not finite or of another width go to the quarantine.
    """
    clips = workspace.clips
    reasons: dict[str, str] = {}
    meter = progress.job("embeddings", len(clips), "clips")
    access = AudioAccess(embeddings, workspace.audio_access.folders)

    def usable_frames() -> Iterator[tuple[str, NDArray[Any]]]:
        first: NDArray[Any] | None = None
        for clip_id, read in _embedding_readers(access, clips["clip_id"].to_list()):
            meter.advance(1)
            try:
                frames = _as_frames(read(), first)
            except UnreadableAudio as error:
                reasons[clip_id] = error.reason
            else:
                first = frames if first is None else first
                yield clip_id, frames

    try:
        store = write_store(workspace.frames_folder, usable_frames())
    except EarmarkError:
        if not reasons:
            raise
        clip_id, reason = next(iter(reasons.items()))
        raise EarmarkError(
            f"{embeddings}: not one of the {len(reasons):,} clips has a usable embedding; the "
            f"first is {clip_id!r}: {reason}"
        ) from None
    said = pl.col("clip_id").replace_strict(reasons, default=None, return_dtype=pl.String)
    write_quarantine(workspace, clips.with_columns(reason=said).drop_nulls("reason"))
    return store


def _embedding_readers(
    access: AudioAccess, clip_ids: Sequence[str]
) -> Iterator[tuple[str, Callable[[], NDArray[Any]]]]:
    """Yield each clip and what reads its array: CLIPID.npy, or a row of the array of all clips.

    A clip called ``a.wav`` may also have its embedding in ``a.npy``. A clip's name may come from a
    stranger: one that leads out of the folder is not followed.
    """
    embeddings = access.base
    if not embeddings.exists():
        raise EarmarkError(f"{embeddings}: no such file or folder of embeddings")
    if embeddings.is_dir():
        for clip_id in clip_ids:
            path = embeddings / f"{clip_id}.npy"
            if not path.exists() and _is_sound_file(clip_id):
                path = (embeddings / clip_id).with_suffix(".npy")
            yield clip_id, partial(_read_array, access, path)
        return
    array = _read_array(access, embeddings)
    if len(array) != len(clip_ids):
        raise EarmarkError(
            f"{embeddings} has embeddings of {len(array):,} clips, the dataset {len(clip_ids):,}; "
            "expected [clip, dim] or [clip, frame, dim] in the order of the clips"
        )
    for row, clip_id in enumerate(clip_ids):
        yield clip_id, partial(array.__getitem__, row)


def _read_array(access: AudioAccess, path: Path) -> NDArray[Any]:
    """Read an array without ever unpickling; UnreadableAudio where that cannot be."""
    try:
        place = Path(access.place(str(path.absolute())))
        refuse_long_header(place)
        array = np.load(place, mmap_mode="r", allow_pickle=False)
    except (UnreadableAudio, FileNotFoundError) as error:
        reason = getattr(error, "reason", f"no embedding file {path.name}")
        raise UnreadableAudio(path, reason) from None
    except Exception as error:  # numpy's reader of headers raises all kinds
        if is_memory_error(error):
            raise
        reason = f"not an .npy file of numbers ({told_briefly(error)})"
        raise UnreadableAudio(path, reason) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or array.ndim == 0:
        raise UnreadableAudio(path, "not an .npy file of numbers")
    return array


def _as_frames(array: NDArray[Any], first: NDArray[Any] | None) -> NDArray[Any]:
    """Return [frame, dim] of [dim], and float32 of float64; refuse what differs from the first."""
    frames = np.asarray(array[None] if array.ndim == 1 else array)
    frames = frames.astype(np.float32) if frames.dtype == np.float64 else frames
    reason = ""
    if frames.ndim != 2 or frames.size == 0:
        reason = f"expected an array [frame, dim], got {list(frames.shape)}"
    elif first is not None and (frames.shape[1], frames.dtype) != (first.shape[1], first.dtype):
        reason = (
            f"{frames.dtype} [frame, {frames.shape[1]}] where the first clip has "
            f"{first.dtype} [frame, {first.shape[1]}]"
        )
    elif frames.dtype.kind == "f" and not np.isfinite(frames).all():
        reason = "the embedding holds NaN or infinity"
    if reason:
        raise UnreadableAudio("", reason)
    return frames


@writes("import", makes=True)
@reader("a table of labels", at=1)
def import_table(
    clips: Annotated[
        Path | None,
        Option("Table of clips, where labels do not say it all.", default=None),
    ],
    labels: Annotated[Path, Argument("CSV, Parquet or Label Studio JSON.")],
    work: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    audio: Annotated[Path | None, Option("Folder that audio paths start at.")] = None,
    allow: Sequence[Path] = (),
    remote: bool = False,
    embeddings: Annotated[
        Path | None, Option("Folder of CLIP.npy, or one .npy: frames from elsewhere.")
    ] = None,
    require_sound: bool = False,
    deal_splits: Annotated[bool, Option("Into train, tune and eval, 80 : 10 : 10.")] = False,
    seed: int = 0,
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from a table of labels and, unless that one names them too, one of clips.

    ``columns`` names columns that are not guessed rightly, from our name to the table's, such as
    ``{"class_id": "bird"}``; ``-`` stands for none. ``separator`` cuts a cell into classes. Paths
    of sound files start at ``audio``, by default the folder of the table that names the clips;
    where ``audio`` is given, files are also found by their names, in its folders and archives.
    Paths that lead out of that folder are refused, unless it is into one of ``allow``, and so are
    URLs (``https://``, ``s3://``, ``gs://``), unless ``remote``.
    ``embeddings`` become the frames (see ``write_embeddings``). Without splits all clips are in
    train, unless ``deal_splits`` deals recordings out, drawn from ``seed`` (see
    ``splits.complete_splits``). Clips without a sound file have a null path; with
    ``require_sound`` it is refused that not one of those that are named is found. Another dataset
    in the workspace is refused, unless ``replace`` says so.
    """
    named, clip_tables = columns or {}, [] if clips is None else [read_source(clips)]
    told = read_own_labels(labels, clip_tables, Reading(named, separator, zeros))
    table = clip_tables[0] if clip_tables else told.table
    roles = guess_columns(table, told.columns)
    listed = read_clips(table, roles, may_repeat=clips is None)
    chosen = choose_classes(told.labels.class_ids, told.parents, None)
    label_set, repeated = chosen.label_set(told.labels.long, listed["clip_id"])
    has_order = clips is not None or told.labels.has_row_per_clip
    paired = () if embeddings is None else _pairing_told(embeddings, table, listed, has_order)
    sources, given = listed["source"], listed["split"]
    split = complete_splits(label_set, sources, given, seed, deal=deal_splits)
    listed = listed.with_columns(split)
    if named.get("audio") == NO_COLUMN:
        listed = listed.with_columns(audio=pl.lit(None, pl.String))
    is_folder = audio is not None and audio.is_dir()
    base = (audio if audio is not None and is_folder else table.path.parent).resolve()
    access = AudioAccess(base, (base, *allow), remote)
    listed, audio_notes = _with_audio(listed, table, access, audio, work, progress, require_sound)
    is_long = clips is None and not told.labels.lists_classes
    audio_notes += _unlisted_note(listed, audio, work, table, is_long=is_long)
    workspace = write_dataset(
        work, listed, chosen.ontology, label_set, access=access, replace=replace
    )
    n_found = listed["audio"].count()
    if embeddings is not None:
        n_found = len(write_embeddings(workspace, embeddings, progress).index)
    read_as = (*column_notes(table, roles, CLIP_ROLES), *told.labels.notes, *repeated)
    notes = (*read_as, *paired, *audio_notes)
    return ImportSummary(workspace, len(listed), n_found, len(listed) - n_found, notes)


def _pairing_told(
    embeddings: Path, table: SourceTable, listed: pl.DataFrame, has_order: bool
) -> tuple[str, ...]:
    """Say which clips the rows of one array are taken for; refuse it where clips have no order."""
    if not embeddings.is_file():
        return ()
    if not has_order:
        raise EarmarkError(
            f"{embeddings}: the embeddings do not name their clips, and {table.path} has several "
            "rows for a clip, so it cannot say which embedding is which clip's; give a table of "
            "clips in the order of the embeddings (--clips FILE), or a folder of CLIPID.npy"
        )
    first, last = listed["clip_id"][0], listed["clip_id"][-1]
    told = f"The first row of {embeddings.name} is taken for clip {first!r}, the last for {last!r}"
    return (f"{told}, as in {table.path.name}.",)


def _with_audio(
    clips: pl.DataFrame,
    table: SourceTable,
    access: AudioAccess,
    audio: Path | None,
    work: Path,
    progress: Progress,
    require_sound: bool,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Make the paths absolute, null where there is no file; look for files by name in ``audio``."""
    base = access.base
    places = access.find_all(clips["audio"], lambda row: table.at(clips[LINE][row]))
    clips = clips.with_columns(pl.Series("audio", places, pl.String), named=pl.col("audio"))
    notes: tuple[str, ...] = ()
    if audio is not None and clips["audio"].null_count():
        clips, notes = _found_by_name(clips, audio, access, work, progress)
    n_named = clips["named"].count()
    n_missing = clips["audio"].null_count()
    if require_sound and n_missing == len(clips) and (n_named or audio is not None):
        _refuse_silence(clips, base, audio)
    if n_missing and n_named:
        first = clips.filter(pl.col("audio").is_null())["named"].drop_nulls()
        hint = f", such as {base / first[0]}" if len(first) else ""
        notes += (f"{counted(n_missing, 'clip')} without a sound file{hint}",)
    elif n_missing:
        notes += ("no column names sound files: clips and labels only",)
    return clips.select(CLIP_SCHEMA.names()), notes


def _unlisted_note(
    clips: pl.DataFrame, audio: Path | None, work: Path, table: SourceTable, *, is_long: bool
) -> tuple[str, ...]:
    """Count the recordings in a folder that are no clip's, and say how they become clips."""
    if audio is None or not audio.is_dir() or not clips["audio"].count():
        return ()
    taken = set(clips["audio"].drop_nulls())
    sounds = (path for path in walk_files(audio, skip=work) if _is_sound_file(path))
    unlisted = [path for path in sounds if path not in taken]
    if not unlisted:
        return ()
    named = first_few(os.path.relpath(path, audio.resolve()) for path in unlisted)
    row = "task" if table.unit == "task" else "row"
    how = " with an empty label" if is_long and row == "row" else ""
    return (
        f"{len(unlisted):,} more recordings in {audio} are left out, for they have no {row} in "
        f"{table.path.name}: {named}. To have them searched too, give each a {row}{how} there",
    )


def _refuse_silence(clips: pl.DataFrame, base: Path, audio: Path | None) -> None:
    names = clips["named"].drop_nulls()
    wanted = base / (names if len(names) else clips["clip_id"])[0]
    searched = "" if audio is None else f", and for files of these names anywhere in {audio}"
    raise EarmarkError(
        f"not one of {len(clips):,} sound files was found; looked for {wanted}{searched}. Say "
        "where they are with --audio FOLDER, or that there are none with --column audio=-"
    )


def _found_by_name(
    clips: pl.DataFrame, audio: Path, access: AudioAccess, work: Path, progress: Progress
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Fill in null paths by the files that the names of sounds or clips mean."""
    clips = clips.with_columns(name=pl.coalesce("named", "clip_id"))
    names = [PurePath(name.replace("\\", "/")) for name in clips["name"]]
    wanted = {stem for name in names for stem in (name.name, name.stem)}
    meter = progress.job("find audio", len(clips), "files")
    found = find_recordings(audio, work, wanted.__contains__, meter, access.folders)
    matches = match_recordings(clips["name"], found)
    places = matches.join(found.files.rename({"audio": "place"}), on="key", how="left")
    clips = clips.join(places, on="name", how="left", maintain_order="left")
    clips = clips.with_columns(pl.coalesce("audio", "place").alias("audio"))
    unclear = matches.join(clips.filter(pl.col("audio").is_null()), on="name", how="semi")
    return clips, (*found.notes, *ambiguous_note(unclear))


def _is_sound_file(name: str) -> bool:
    return Path(name).suffix.lower() in AUDIO_SUFFIXES
