"""Any dataset given as tables: CSV, TSV, Parquet, or Label Studio's JSON.

One table of labels, or a table of clips beside it, in any of the forms of
:mod:`earmark.labels.label_tables`. The summary says which column was taken for what. Only
what somebody said becomes explicit: a multi-hot 0 usually means that nobody said anything, so it
is implicit unless ``zeros="absent"``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from earmark.datasets.audio_files import find_audio, walk_files
from earmark.datasets.importer import ImportSummary
from earmark.datasets.own_tables.embeddings import write_embeddings
from earmark.datasets.own_tables.own_labels import label_set_of, read_clips, read_own_labels
from earmark.datasets.workspace import CLIP_SCHEMA, write_dataset
from earmark.errors import EarmarkError, counted, first_few, reader
from earmark.labels import (
    CLIP_ROLES,
    NO_COLUMN,
    Ontology,
    Reading,
    Zeros,
    column_notes,
    complete_splits,
    guess_columns,
)
from earmark.runs import (
    AUDIO_SUFFIXES,
    SILENT,
    Progress,
    SourceTable,
    is_url,
    place_of,
    read_source,
    writes,
)


@writes("import", makes=True)
@reader("a table of labels", at=1)
def import_table(
    clips: Path | None,
    labels: Path,
    work: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    audio: Path | None = None,
    embeddings: Path | None = None,
    require_sound: bool = False,
    deal_splits: bool = False,
    seed: int = 0,
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from a table of labels and, unless that one names them too, one of clips.

    ``columns`` names columns that are not guessed rightly, from our name to the table's, such as
    ``{"class_id": "bird"}``; ``-`` stands for none. ``separator`` cuts a cell into classes. Paths
    of sound files start at ``audio``, by default the folder of the table that names the clips;
    where ``audio`` is given, files are also found by their names, in its folders and archives.
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
    label_set = label_set_of(told, listed["clip_id"])
    has_order = clips is not None or told.labels.has_row_per_clip
    paired = () if embeddings is None else _pairing_told(embeddings, table, listed, has_order)
    given = None if listed["split"].is_null().all() else listed["split"]
    split = complete_splits(label_set, listed["source"], given, seed, deal=deal_splits)
    listed = listed.with_columns(split)
    if named.get("audio") == NO_COLUMN:
        listed = listed.with_columns(audio=pl.lit(None, pl.String))
    place = table.path.parent
    listed, audio_notes = _with_audio(listed, place, audio, work, progress, require_sound)
    is_long = clips is None and not told.labels.lists_classes
    audio_notes += _unlisted_told(listed, audio, work, table, is_long=is_long)
    ontology = Ontology(label_set.class_ids, told.parents)
    workspace = write_dataset(work, listed, ontology, label_set, replace=replace)
    n_found = listed["audio"].count()
    if embeddings is not None:
        n_found = len(write_embeddings(workspace, embeddings, progress).index)
    n_again = told.labels.long.rows["present"].count() - len(label_set.columns)
    again = (f"{n_again:,} labels are said twice, and count once",) if n_again else ()
    read_as = (*column_notes(table, roles, CLIP_ROLES), *told.labels.notes, *again)
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
    folder: Path,
    audio: Path | None,
    work: Path,
    progress: Progress,
    require_sound: bool,
) -> tuple[pl.DataFrame, list[str]]:
    """Make the paths absolute, null where there is no file; look for files by name in ``audio``."""
    base = (audio if audio is not None and audio.is_dir() else folder).resolve()
    places = [name and _place(base, name) for name in clips["audio"].to_list()]
    clips = clips.with_columns(pl.Series("audio", places, pl.String), named=pl.col("audio"))
    notes: list[str] = []
    if audio is not None and clips["audio"].null_count():
        clips, notes = _found_by_name(clips, audio, work, progress)
    n_named = clips["named"].count()
    n_missing = clips["audio"].null_count()
    if require_sound and n_missing == len(clips) and (n_named or audio is not None):
        _refuse_silence(clips, base, audio)
    if n_missing and n_named:
        first = clips.filter(pl.col("audio").is_null())["named"].drop_nulls()
        hint = f", such as {base / first[0]}" if len(first) else ""
        notes.append(f"{counted(n_missing, 'clip')} without a sound file{hint}")
    elif n_missing:
        notes.append("no column names sound files: clips and labels only")
    return clips.select(CLIP_SCHEMA.names()), notes


def _unlisted_told(
    clips: pl.DataFrame, audio: Path | None, work: Path, table: SourceTable, *, is_long: bool
) -> list[str]:
    """Count the recordings in a folder that are no clip's, and say how they become clips."""
    if audio is None or not audio.is_dir() or not clips["audio"].count():
        return []
    taken = set(clips["audio"].drop_nulls())
    sounds = (path for path in walk_files(audio, skip=work) if _is_sound_file(path))
    unlisted = [path for path in sounds if path not in taken]
    if not unlisted:
        return []
    named = first_few(os.path.relpath(path, audio.resolve()) for path in unlisted)
    row = "task" if table.unit == "task" else "row"
    how = " with an empty label" if is_long and row == "row" else ""
    return [
        f"{len(unlisted):,} more recordings in {audio} are left out, for they have no {row} in "
        f"{table.path.name}: {named}. To have them searched too, give each a {row}{how} there"
    ]


def _refuse_silence(clips: pl.DataFrame, base: Path, audio: Path | None) -> None:
    names = clips["named"].drop_nulls()
    wanted = base / (names if len(names) else clips["clip_id"])[0]
    searched = "" if audio is None else f", and for files of these names anywhere in {audio}"
    raise EarmarkError(
        f"not one of {len(clips):,} sound files was found; looked for {wanted}{searched}. Say "
        "where they are with --audio FOLDER, or that there are none with --column audio=-"
    )


def _place(base: Path, name: str) -> str | None:
    """Return a URL as it is, and the absolute path of a file that is there."""
    place = str(place_of(base, name))
    return place if is_url(place) or os.path.isfile(place) else None


def _found_by_name(
    clips: pl.DataFrame, audio: Path, work: Path, progress: Progress
) -> tuple[pl.DataFrame, list[str]]:
    """Fill in null paths by files of the same name, without folder and ending."""
    names = [Path(name).name for name in clips.select(pl.coalesce("named", "clip_id")).to_series()]
    stems = [Path(name).stem if _is_sound_file(name) else name for name in names]
    wanted = frozenset(stems)
    meter = progress.job("find audio", len(clips), "files")
    found = find_audio(audio, work, wanted.__contains__, meter)
    files = found.files.unique("name", keep="first", maintain_order=True)
    by_name = dict(files.select("name", "audio").iter_rows())
    places = pl.Series([by_name.get(stem) for stem in stems], dtype=pl.String)
    return clips.with_columns(pl.col("audio").fill_null(places)), list(found.notes)


def _is_sound_file(name: str) -> bool:
    return Path(name).suffix.lower() in AUDIO_SUFFIXES
