"""Any dataset given as tables: CSV, TSV, Parquet, or Label Studio's JSON.

One table of labels, or a table of clips beside it, in any of the forms of
:mod:`earmark.labels.label_tables`. The summary says which column was taken for what. Only
what somebody said becomes explicit: a multi-hot 0 usually means that nobody said anything, so it
is implicit unless ``zeros="absent"``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from earmark.datasets.audio_files import find_audio, walk_files
from earmark.datasets.importer import ImportSummary
from earmark.datasets.own_tables.embeddings import write_embeddings
from earmark.datasets.own_tables.label_studio import read_label_studio
from earmark.datasets.workspace import CLIP_SCHEMA, SPLITS, write_dataset
from earmark.errors import EarmarkError, counted, first_few
from earmark.labels import (
    CLIP_ROLES,
    NO_COLUMN,
    LabelSet,
    LabelTable,
    Ontology,
    Reading,
    Zeros,
    check_given,
    column_notes,
    complete_splits,
    form_labels,
    guess_columns,
    row_clips,
)
from earmark.runs import (
    AUDIO_SUFFIXES,
    LINE,
    SILENT,
    Progress,
    SourceTable,
    is_url,
    place_of,
    read_source,
)

_SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("tune", "val", "valid", "validation"), "tune"),
    **dict.fromkeys(("eval", "evaluation", "test", "testing"), "eval"),
}
"""What other datasets call the splits. ``dev`` is train to some and tune to others: refused."""


@dataclass(frozen=True)
class _Told:
    """What the file of labels holds: labels, and a table from which clips can be taken."""

    table: SourceTable
    labels: LabelTable
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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
    told = _read_labels(labels, clip_tables, Reading(named, separator, zeros))
    table = clip_tables[0] if clip_tables else told.table
    roles = guess_columns(table, named)
    listed = _read_clips(table, roles, may_repeat=clips is None)
    label_set = _label_set(told, listed["clip_id"])
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


def _read_labels(path: Path, clip_tables: Sequence[SourceTable], reading: Reading) -> _Told:
    if path.suffix.lower() == ".json":
        export = read_label_studio(path)
        table = SourceTable(path, export.clips, "task")
        check_given(reading.columns, table, *clip_tables)
        names = tuple(dict.fromkeys([*export.labels["class_id"].to_list(), *export.parents]))
        long = SourceTable(path, export.labels, "task")
        clips = export.clips["clip_id"]
        labels = LabelTable(long, clips, names, True, False, export.notes)
        return _Told(table, labels, export.parents)
    table = read_source(path)
    check_given(reading.columns, table, *clip_tables)
    return _Told(table, form_labels(table, reading))


def _read_clips(table: SourceTable, roles: Mapping[str, str], *, may_repeat: bool) -> pl.DataFrame:
    """Return the clips with LINE and all columns of CLIP_SCHEMA, null where the table has none.

    Where clips ``may_repeat`` (a table of labels) their rows must say the same of them.
    """
    rows = pl.DataFrame([row_clips(table, roles), table.rows[LINE].cast(pl.Int64)])
    rows = rows.with_columns(
        pl.lit(None, pl.String).alias(role)
        if role not in roles
        else table.rows[roles[role]].cast(pl.String).alias(role)
        for role in CLIP_ROLES
        if role != "clip_id"
    )
    if "audio" not in roles:
        rows = rows.with_columns(audio=_if_sound_file("clip_id"))
    if may_repeat:
        rows = rows.unique(pl.exclude(LINE), keep="first", maintain_order=True)
    _check_repeated(table, rows)
    rows = rows.with_columns(_splits(table, rows))
    for role in ("start_seconds", "end_seconds"):
        rows = rows.with_columns(_seconds(table, rows, role))
    default = "audio" if "start_seconds" in roles else "clip_id"
    return rows.with_columns(pl.coalesce("source", default, "clip_id").alias("source"))


def _check_repeated(table: SourceTable, rows: pl.DataFrame) -> None:
    twice = rows.filter(~pl.col("clip_id").is_first_distinct())
    if twice.is_empty():
        return
    clip_id = twice["clip_id"][0]
    first = rows.filter(pl.col("clip_id") == clip_id)[LINE][0]
    raise EarmarkError(
        f"{table.at(twice[LINE][0])}: clip {clip_id!r} is listed before, in {table.unit} {first}; "
        "every clip needs a name of its own, and one file, time, split and source"
    )


def _splits(table: SourceTable, rows: pl.DataFrame) -> pl.Series:
    """Return the splits under our names; refuse unknown ones, and clips without where some have."""
    given = rows["split"].str.to_lowercase()
    split = given.replace_strict(_SPLIT_NAMES, default=None, return_dtype=pl.String)
    is_odd = split.is_null()
    if is_odd.any() and given.count():
        line, text = rows[LINE].filter(is_odd)[0], rows["split"].filter(is_odd)[0]
        raise EarmarkError(
            f"{table.at(line)}: split must be one of {', '.join(SPLITS)} (or "
            f"{', '.join(_SPLIT_NAMES.keys() - set(SPLITS))}), got {text or 'nothing'!r}"
        )
    return split


def _seconds(table: SourceTable, rows: pl.DataFrame, role: str) -> pl.Series:
    seconds = rows[role].cast(pl.Float64, strict=False)
    is_odd = rows[role].is_not_null() & (seconds.is_null() | ~seconds.is_finite())
    if is_odd.any():
        line, text = rows[LINE].filter(is_odd)[0], rows[role].filter(is_odd)[0]
        raise EarmarkError(f"{table.at(line)}: {role} must be a number, got {text!r}")
    return seconds


def _label_set(told: _Told, clips: pl.Series) -> LabelSet:
    """Check the labels, with the lines of their table."""
    long = told.labels.long
    is_strange = ~long.rows["clip_id"].is_in(clips.implode())
    if is_strange.any():
        name = long.rows["clip_id"].filter(is_strange)[0]
        raise EarmarkError(
            f"{long.at_first(is_strange)}: clip {name!r} is not in the table of clips "
            f"({is_strange.sum():,} such labels); do both tables name clips in the same way?"
        )
    if not told.labels.class_ids:
        raise EarmarkError(f"{long.path}: there is not one label in it")
    return LabelSet.from_table(long, clips, sorted(told.labels.class_ids))


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


def _if_sound_file(column: str) -> pl.Expr:
    """Return a column's names where they have the ending of a sound file, else null."""
    endings = "|".join(suffix.removeprefix(".") for suffix in sorted(AUDIO_SUFFIXES))
    return pl.when(pl.col(column).str.contains(rf"(?i)\.({endings})$")).then(pl.col(column))


def _is_sound_file(name: str) -> bool:
    return Path(name).suffix.lower() in AUDIO_SUFFIXES
