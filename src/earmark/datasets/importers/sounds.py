"""A folder of sound, and a file of labels of any form: or folders that are named after labels.

Every recording becomes a clip, those that no row names included, for they are where labels may be
missing. A row whose sound is not there is kept, and counted. Long recordings are cut into clips on
request (see :mod:`earmark.datasets.importers.segments`). What was understood is told in notes, what
cannot be is refused with what is needed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import (
    SOUND_ENDING,
    TAR_SUFFIXES,
    Recordings,
    ambiguous_note,
    find_recordings,
    match_recordings,
    walk_files,
    with_plain_paths,
    without_ending,
)
from earmark.datasets.importers.class_lists import choose_classes
from earmark.datasets.importers.label_studio import is_label_studio
from earmark.datasets.importers.own_labels import (
    ClassList,
    OwnLabels,
    form_own_labels,
    read_clips,
    read_own_labels,
)
from earmark.datasets.importers.segments import (
    Gathered,
    advise_cutting,
    cut_recordings,
    lengths_of,
    refuse_other_times,
)
from earmark.datasets.workspace import CLIP_SCHEMA, ImportSummary, write_dataset
from earmark.errors import EarmarkError, check_file, counted, first_few, reader
from earmark.labels import (
    CLIP_ROLES,
    LabelTable,
    Reading,
    Zeros,
    check_given,
    column_notes,
    complete_splits,
    guess_columns,
    is_label_table,
)
from earmark.options import Argument, Option
from earmark.storage import AUDIO_SUFFIXES, LINE, AudioAccess, SourceTable, read_source, writes

_TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".parquet", ".pq")
_SHORTEST_CLIP_SECONDS = 0.5

_N_CELLS = 1_000
"""Cells of a column that are looked at, to tell whether they name recordings."""


@writes("import", makes=True)
@reader("sounds with labels")
def import_sounds(
    sounds: Annotated[Path, Argument("Folder of sound, or one sound file.")],
    labels: Annotated[
        Path | None,
        Argument(
            "CSV, Parquet or Label Studio JSON; without it, the folders' names.", default=None
        ),
    ],
    work: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    classes: ClassList = None,
    clip_seconds: Annotated[
        float | None, Option("Cut longer recordings into clips of so many seconds.")
    ] = None,
    allow: Sequence[Path] = (),
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from a folder of sound (or one file) and labels.

    ``labels`` is a table of any form that ``import_table`` reads, with ``columns``, ``separator``
    and ``zeros`` as there; None takes the innermost folder of each recording for its label.
    ``classes`` is a list of classes (see ``choose_classes``). ``clip_seconds`` cuts every longer
    recording into clips of that length. All clips are in train unless the table has splits.
    Links that lead out of ``sounds`` are refused, unless it is into one of ``allow``. Another
    dataset in the workspace is refused, unless ``replace`` says so.
    """
    _check_places(sounds, labels, work)
    _check_clip_seconds(clip_seconds)
    recordings = find_recordings(sounds, work, allow=allow)
    if recordings.files.is_empty():
        raise EarmarkError(f"{sounds}: there is not one sound file in it{_others(sounds, work)}")
    reading = Reading(columns or {}, separator, zeros)
    own = _by_folders(recordings) if labels is None else _by_table(labels, reading, recordings)
    gathered = _gather(own, recordings)
    _check_times(gathered, clip_seconds)
    refuse_other_times(gathered.clips, own.table, work)
    advice = advise_cutting(gathered.clips, work) if clip_seconds is None else ()
    if clip_seconds is not None:
        lengths = lengths_of(gathered.clips, work, progress)
        gathered = cut_recordings(gathered, lengths, clip_seconds)
    chosen = choose_classes(own.labels.class_ids, own.parents, classes)
    label_set, repeated = chosen.label_set(gathered.labels, gathered.clips["clip_id"])
    listed = gathered.clips
    split = complete_splits(label_set, listed["source"], listed["split"])
    listed = listed.with_columns(split)
    access = AudioAccess(sounds, (sounds, *allow))
    workspace = write_dataset(
        work, listed, chosen.ontology, label_set, access=access, replace=replace
    )
    n_found = listed["audio"].count()
    read_as = (*own.labels.notes, *repeated, *recordings.notes)
    notes = (*read_as, *gathered.notes, *chosen.notes, *advice)
    return ImportSummary(workspace, len(listed), n_found, len(listed) - n_found, notes)


def _check_places(sounds: Path, labels: Path | None, work: Path) -> None:
    """Refuse what cannot be a folder of sound and a file of labels, such as the two swapped."""
    is_table = sounds.is_file() and sounds.suffix.lower() in _TABLE_SUFFIXES
    if labels is not None and is_table and (labels.is_dir() or _is_sound(labels)):
        raise EarmarkError(
            f"{sounds} is a file of labels and {labels} holds sound: give them the other way "
            "round, the sounds first"
        )
    if not sounds.exists():
        raise EarmarkError(f"{sounds}: no such folder of sound")
    is_archive = sounds.name.lower().endswith(TAR_SUFFIXES)
    if sounds.is_file() and not (_is_sound(sounds) or is_archive):
        raise EarmarkError(
            f"{sounds}: expected a folder of sound, a sound file or a .tar with sound files in it"
        )
    if labels is not None and _is_sound(labels):
        raise EarmarkError(f"{labels}: a sound file, where the file of labels is expected")
    if labels is not None:
        check_file(labels)
    if work.is_dir() and sounds.is_dir() and work.samefile(sounds):
        raise EarmarkError(
            f"{work}: the workspace cannot be the folder of sound itself; give it one of its own"
        )


def _check_clip_seconds(clip_seconds: float | None) -> None:
    if clip_seconds is None:
        return
    if not (math.isfinite(clip_seconds) and clip_seconds >= _SHORTEST_CLIP_SECONDS):
        raise EarmarkError(
            f"clips are cut {_SHORTEST_CLIP_SECONDS:g} s long or longer, got {clip_seconds:g} s"
        )


def _by_folders(recordings: Recordings) -> OwnLabels:
    """Take each recording's innermost folder for its label; at the top it has none."""
    keys = recordings.files["key"]
    rows = pl.DataFrame({"audio": keys, "class_id": _folders_of(keys)}).with_row_index(LINE, 1)
    names = rows["class_id"].drop_nulls().unique(maintain_order=True)
    if len(names) < 2:
        where = f"in one folder only ({names[0]!r})" if len(names) else "in no folders"
        raise EarmarkError(
            f"{recordings.root}: without a file of labels the folders are the labels, such as "
            f"dog/1.wav and cat/1.wav, but its {counted(len(keys), 'recording')} lie {where}. Give "
            "a file of labels, such as a CSV with the columns filename and label"
        )
    said = rows.drop_nulls("class_id").with_columns(present=pl.lit(True), clip_id="audio")
    table = SourceTable(recordings.root, rows, "recording")
    n_bare = rows["class_id"].null_count()
    without = f"{counted(n_bare, 'recording')} in no folder: all their labels count as unknown"
    notes = (
        f"folders are taken for labels, the innermost one of each recording: {first_few(names)}",
        *((without,) if n_bare else ()),
    )
    long = replace(table, rows=said.select(LINE, "clip_id", "class_id", "present"))
    labels = LabelTable(long, keys, tuple(names.to_list()), True, False, notes)
    return OwnLabels(table, labels, {"class_id": "class_id"})


def _by_table(path: Path, reading: Reading, recordings: Recordings) -> OwnLabels:
    """Read a file of labels; say how its columns were taken."""
    if is_label_studio(path):
        return read_own_labels(path, (), reading)
    if path.suffix.lower() == ".csv" and not is_label_table(path):
        raise EarmarkError(
            f"{path}: begins as AudioSet's lists of segments do, which `earmark import audioset` "
            "reads; a table of labels begins with a line of names, such as filename,label"
        )
    table = read_source(path)
    check_given(reading.columns, table)
    table, columns = _name_column(table, reading.columns, recordings)
    own = form_own_labels(table, replace(reading, columns=columns))
    roles = guess_columns(own.table, own.columns)
    notes = [*column_notes(own.table, roles, CLIP_ROLES), *own.labels.notes]
    passed_over = [name for name in table.columns if name not in roles.values()]
    if passed_over and not own.labels.lists_classes and "class_id" not in reading.columns:
        notes.append(
            f"columns passed over: {', '.join(passed_over)}. Should another one hold the classes, "
            "say so with --column class_id=NAME"
        )
    return replace(own, labels=replace(own.labels, notes=tuple(notes)))


def _gather(own: OwnLabels, recordings: Recordings) -> Gathered:
    """Find each clip's recording, and add the recordings that no clip has."""
    roles = guess_columns(own.table, own.columns)
    listed = read_clips(own.table, roles, may_repeat=True)
    listed = listed.with_columns(named=pl.coalesce("audio", "clip_id")).drop("audio")
    met = match_recordings(listed["named"], recordings)
    met = met.join(recordings.files, on="key", how="left")
    listed = listed.join(met, left_on="named", right_on="name", how="left", maintain_order="left")
    if not listed["key"].count():
        raise EarmarkError(
            f"not one row of {own.table.path} names a recording in {recordings.root}: the rows "
            f"name {first_few(listed['named'].unique(maintain_order=True))}, the recordings are "
            f"{first_few(recordings.files['key'])}. Say which column names them with --column "
            "audio=NAME"
        )
    unlisted = _unlisted(listed, recordings)
    order = [LINE, *CLIP_SCHEMA.names(), "recording", "named"]
    clips = pl.concat([listed.rename({"key": "recording"}).select(order), unlisted.select(order)])
    notes = _matching_notes(own.table, listed, len(unlisted), recordings)
    return Gathered(clips, own.labels.long, notes)


def _unlisted(listed: pl.DataFrame, recordings: Recordings) -> pl.DataFrame:
    """Return clips of the recordings without a row; they are train where others have splits."""
    files = recordings.files.join(listed, on="key", how="anti", maintain_order="left")
    has_times = listed["start_seconds"].count() > 0  # then clips are called x.wav@10
    names = _names_in_style(files["key"], listed["named" if has_times else "clip_id"])
    split = pl.lit("train" if listed["split"].count() else None, pl.String)
    nothing = pl.lit(None, pl.Float64)
    return files.with_columns(names.alias("clip_id")).with_columns(
        pl.lit(0, pl.Int64).alias(LINE),
        start_seconds=nothing,
        end_seconds=nothing,
        split=split,
        source="key",
        recording="key",
        named="clip_id",
    )


def _matching_notes(
    table: SourceTable, listed: pl.DataFrame, n_unlisted: int, recordings: Recordings
) -> tuple[str, ...]:
    notes = []
    row = "task" if table.unit == "task" else "row"
    if n_unlisted:
        have = "recording has" if n_unlisted == 1 else "recordings have"
        notes.append(
            f"{n_unlisted:,} {have} no {row} in {table.path.name}: all their labels count as "
            "unknown"
        )
    missing = listed.filter(pl.col("key").is_null())
    notes += ambiguous_note(missing.rename({"named": "name"}))
    gone = missing.filter(~pl.col("is_ambiguous"))
    if len(gone):
        notes.append(
            f"{counted(len(gone), 'clip')} without sound, for no such recording is in "
            f"{recordings.root}: {first_few(gone['named'])}"
        )
    return tuple(notes)


def _check_times(gathered: Gathered, clip_seconds: float | None) -> None:
    """Refuse stretches that end before they begin; a moment is one only where clips are cut."""
    start, end = pl.col("start_seconds").fill_null(0), pl.col("end_seconds")
    is_odd = (end < start) | (start < 0)
    if clip_seconds is None:
        is_odd = is_odd | (end == start)
    odd = gathered.clips.filter(is_odd)
    if len(odd):
        begin, finish = odd["start_seconds"][0], odd["end_seconds"][0]
        raise EarmarkError(
            f"{gathered.labels.at(odd[LINE][0])}: from {begin or 0:g} s to {finish:g} s is no "
            "stretch of time"
        )


def _name_column(
    table: SourceTable, columns: Mapping[str, str], recordings: Recordings
) -> tuple[SourceTable, dict[str, str]]:
    """Find the column that names recordings by what is in it, where names of columns mislead.

    Returns the table and the columns as given, with ``audio`` where it was found. Rows of a table
    that names no recordings are about the only one, where there is one.
    """
    roles = guess_columns(table, columns)
    guessed = roles.get("audio", roles.get("clip_id"))
    if {"audio", "clip_id"} & columns.keys() or (
        guessed is not None and _share_known(table, guessed, recordings)
    ):
        return table, dict(columns)
    free = [name for name in table.columns if name not in columns.values()]
    shares = {name: _share_known(table, name, recordings) for name in free}
    best = max(shares, key=lambda name: shares[name], default=None)
    if best is not None and shares[best] > 0.5:
        return table, {**columns, "audio": best}
    if guessed is None and len(recordings.files) == 1 and "recording" not in table.columns:
        rows = table.rows.with_columns(recording=pl.lit(recordings.files["key"][0]))
        return replace(table, rows=rows), {**columns, "audio": "recording"}
    return table, dict(columns)


def _share_known(table: SourceTable, column: str, recordings: Recordings) -> float:
    """Return the share of a column's cells, or of some of them, that are names of recordings."""
    cells = table.rows[column].drop_nulls()
    if cells.dtype.is_nested() or cells.is_empty():
        return 0.0
    some = cells.gather_every(max(1, len(cells) // _N_CELLS)).cast(pl.String)
    stem = r"([^/]+)$"
    names = with_plain_paths(pl.DataFrame({"name": some}), "name")["bare"].str.extract(stem)
    known = with_plain_paths(recordings.files, "key")["bare"].str.extract(stem)
    return len(names.filter(names.is_in(known.implode()))) / len(names)


def _others(root: Path, work: Path) -> str:
    """Say which other files are in a place without sound."""
    names = [os.path.relpath(path, root) for path in itertools.islice(walk_files(root, work), 1000)]
    if not names or not root.is_dir():
        endings = ", ".join(sorted(AUDIO_SUFFIXES))
        return f" (expected files such as {endings}, or .tar with such files in them)"
    return f", but {counted(len(names), 'other file')}: {first_few(names)}"


def _folders_of(keys: pl.Series) -> pl.Series:
    """Return the innermost folder of each recording; null at the top of the folder or archive."""
    folder = keys.str.extract(r"([^/]+)/[^/]+$")
    is_archive = pl.any_horizontal(
        pl.col("key").str.to_lowercase().str.ends_with(suffix) for suffix in TAR_SUFFIXES
    )
    named = pl.DataFrame({"key": folder})
    return named.select(pl.when(~is_archive).then("key").alias("folder")).to_series()


def _names_in_style(keys: pl.Series, used: pl.Series) -> pl.Series:
    """Name recordings as an owner names others: with or without folders, and endings.

    ``used`` are the owner's names. A name that two would share, or that is used, is the key.
    """
    styled = pl.DataFrame({"key": keys}).with_columns(name="key")
    if len(used) and not used.str.contains("/", literal=True).any():
        styled = styled.with_columns(pl.col("name").str.extract(r"([^/]+)$"))
    if len(used) and not used.str.contains(SOUND_ENDING).any():
        styled = styled.with_columns(without_ending("name"))
    is_own = pl.col("name").is_unique() & ~pl.col("name").is_in(used.implode())
    return styled.select(pl.when(is_own).then("name").otherwise("key").alias("name")).to_series()


def _is_sound(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in AUDIO_SUFFIXES
