"""The recordings in a folder, and which of them a name means.

Owners write ``dog/1.wav``, ``1.wav``, ``1`` or a path of another computer. A name means the
recording whose path ends as the name does, in as many folders as possible; endings of sound files,
the slashes of Windows and the ways to write an umlaut make no difference. A name that several
recordings could have is nobody's: a label of the wrong sound is worse than none.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import polars as pl

from earmark.datasets.audio_files import ARCHIVE_SUFFIXES, find_audio, walk_files
from earmark.datasets.workspace import AUDIO_FOLDER
from earmark.errors import EarmarkError, counted, first_few
from earmark.labels import guess_columns
from earmark.storage import AUDIO_SUFFIXES, SourceTable

SOUND_ENDING = rf"(?i)\.({'|'.join(suffix[1:] for suffix in sorted(AUDIO_SUFFIXES))})$"
"""A regular expression of the endings of sound files."""

_N_CELLS = 1_000
"""Cells of a column that are looked at, to tell whether they name recordings."""

_FORK = "._"
"""What begins the names of files that macOS leaves beside others: they hold no sound."""


@dataclass(frozen=True)
class Recordings:
    """The sound files of a folder, in the order of their paths.

    ``files``: ``key``, the path within the folder (or within its archive), and ``audio``, the place
    as ``clips`` of a workspace hold it. ``notes`` say what was unpacked or passed over.
    """

    root: Path
    files: pl.DataFrame
    notes: tuple[str, ...] = ()


def find_recordings(sounds: Path, work: Path, allow: Sequence[Path] = ()) -> Recordings:
    """Find all sound in a folder, its folders and its archives; or take one file.

    What lies in ``work`` is not searched. A place without sound is refused, and so are links that
    lead elsewhere but into one of ``allow``.
    """
    if sounds.is_file() and sounds.suffix.lower() in AUDIO_SUFFIXES:
        place = str(sounds.absolute())
        return Recordings(sounds, pl.DataFrame({"key": [sounds.name], "audio": [place]}))
    root = sounds.resolve()
    found = find_audio(root, work, lambda name: not name.startswith(_FORK), allow=allow)
    base = root if root.is_dir() else root.parent
    audio = pl.col("audio")
    key = pl.coalesce(
        _without_prefix(audio, f"{base}/"), _without_prefix(audio, f"{AUDIO_FOLDER}/"), audio
    )
    files = found.files.select(key.alias("key"), audio)
    if files.is_empty():
        raise EarmarkError(f"{sounds}: there is not one sound file in it{_others(root, work)}")
    return Recordings(sounds, files.unique("key", keep="last", maintain_order=True), found.notes)


def folders_of(keys: pl.Series) -> pl.Series:
    """Return the innermost folder of each recording; null at the top of the folder or archive."""
    folder = keys.str.extract(r"([^/]+)/[^/]+$")
    is_archive = pl.any_horizontal(
        pl.col("key").str.to_lowercase().str.ends_with(suffix) for suffix in ARCHIVE_SUFFIXES
    )
    named = pl.DataFrame({"key": folder})
    return named.select(pl.when(~is_archive).then("key").alias("folder")).to_series()


def match_recordings(names: pl.Series, recordings: Recordings) -> pl.DataFrame:
    """Find the recording that each name means: a table name, key (null: none), is_ambiguous.

    Names come once each. Longer common ends of two paths come first, at each length those with
    the same ending of the file. A recording that two names could mean at the same length is
    neither's. The work grows with the number of names and files, times the depth of folders.
    """
    files = _with_plain_paths(recordings.files.select("key"), "key")
    wanted = _with_plain_paths(pl.DataFrame({"name": names.unique(maintain_order=True)}), "name")
    done = [_same_path(wanted, files, "path"), _same_path(wanted, files, "bare")]
    found = pl.concat(done).unique("name", keep="first", maintain_order=True)
    waiting = wanted.join(found, on="name", how="anti", maintain_order="left")
    deepest = min(_depth(waiting), _depth(files))
    for length, form in itertools.product(range(deepest, 0, -1), ("path", "bare")):
        if waiting.is_empty():
            break
        decided = _same_end(waiting, files, length, form, found["key"].drop_nulls())
        found = pl.concat([found, decided])
        waiting = waiting.join(decided, on="name", how="anti", maintain_order="left")
    none = waiting.select("name", key=pl.lit(None, pl.String), is_ambiguous=pl.lit(False))
    return pl.concat([found, none])


def without_ending(column: str) -> pl.Expr:
    """Return names without the ending of a sound file."""
    return pl.col(column).str.replace(SOUND_ENDING, "")


def names_in_style(keys: pl.Series, used: pl.Series) -> pl.Series:
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


def name_column(
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
    names = _with_plain_paths(pl.DataFrame({"name": some}), "name")["bare"].str.extract(stem)
    known = _with_plain_paths(recordings.files, "key")["bare"].str.extract(stem)
    return len(names.filter(names.is_in(known.implode()))) / len(names)


def _without_prefix(text: pl.Expr, prefix: str) -> pl.Expr:
    return pl.when(text.str.starts_with(prefix)).then(text.str.strip_prefix(prefix))


def _others(root: Path, work: Path) -> str:
    """Say which other files are in a place without sound."""
    names = [os.path.relpath(path, root) for path in itertools.islice(walk_files(root, work), 1000)]
    if not names or not root.is_dir():
        endings = ", ".join(sorted(AUDIO_SUFFIXES))
        return f" (expected files such as {endings}, or .tar and .parquet with sound in them)"
    return f", but {counted(len(names), 'other file')}: {first_few(names)}"


def _with_plain_paths(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Add ``path``, plainly written, and ``bare``, without a file's ending."""
    plain = pl.col(column).str.normalize("NFC").str.replace_all("\\", "/", literal=True)
    plain = plain.str.replace_all(r"/(\./)*/*", "/").str.replace(r"^(\.?/)+", "")
    return rows.with_columns(path=plain).with_columns(bare=without_ending("path"))


def _depth(rows: pl.DataFrame) -> int:
    n_slashes = rows["path"].str.count_matches("/", literal=True).max()
    return n_slashes + 1 if isinstance(n_slashes, int) else 0


def _same_path(
    wanted: pl.DataFrame, files: pl.DataFrame, form: Literal["path", "bare"]
) -> pl.DataFrame:
    """Return the names that are the whole path of a recording."""
    firsts = files.unique(form, keep="first", maintain_order=True)
    same = wanted.select("name", form).join(firsts.select(form, "key"), on=form)
    return same.select("name", "key", is_ambiguous=pl.lit(False))


def _same_end(
    waiting: pl.DataFrame, files: pl.DataFrame, length: int, form: str, taken: pl.Series
) -> pl.DataFrame:
    """Decide about the names whose last ``length`` parts are those of some recording."""
    ours, theirs = (_ends(rows, length, form) for rows in (waiting, files))
    # Files of one folder that differ in their endings alone hold the same sound: the first will do.
    theirs = theirs.group_by("end", maintain_order=True).agg(
        pl.col("key").first(), n_files=pl.col("bare").n_unique()
    )
    ours = ours.with_columns(n_names=pl.col("bare").n_unique().over("end"))
    met = ours.join(theirs, on="end", maintain_order="left")
    is_taken = pl.col("key").is_in(taken.implode())
    is_ambiguous = (pl.col("n_files") > 1) | (pl.col("n_names") > 1) | is_taken
    key = pl.when(~pl.col("is_ambiguous")).then("key")
    return met.with_columns(is_ambiguous=is_ambiguous).select("name", key, "is_ambiguous")


def _ends(rows: pl.DataFrame, length: int, form: str) -> pl.DataFrame:
    """Return the rows that have so many parts, with the last of them as ``end``."""
    end = pl.col(form).str.extract(rf"((?:[^/]+/){{{length - 1}}}[^/]+)$")
    return rows.with_columns(end=end).drop_nulls("end")
