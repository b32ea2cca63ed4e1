"""Cut long recordings into clips of equal length and assign their labels.

A label with times goes to every clip that it overlaps by 0.1 s or by half of its own length; "not
present" holds only for clips that lie within its times. A positive label of a whole recording does
not say in which clip the sound is, so it is refused where recordings are cut; "not present" for
the whole recording holds for every clip.

File headers are read for all recordings only when they are cut. Otherwise a few are read to check
the times in a table, and none where no audio library is installed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import read_lengths, without_ending
from earmark.errors import EarmarkError, counted
from earmark.storage import LINE, SourceTable

LONG_SECONDS = 60.0
"""From here on a flag of a whole recording does not help to find the place."""

_N_LOOKED_AT = 100
_SLACK_SECONDS = 0.5


def lengths_of(clips: pl.DataFrame, work: Path, progress: Progress = SILENT) -> pl.DataFrame:
    """Read how long the recordings of clips are: recording, seconds; null where it is not told."""
    files = clips.select("recording", "audio").drop_nulls("recording").unique("recording")
    places = [work / audio for audio in files["audio"].to_list()]
    lengths = read_lengths(places, progress.job("read lengths", len(places), "files"))
    return files.select("recording", seconds=lengths)


def advise_cutting(clips: pl.DataFrame, work: Path) -> tuple[str, ...]:
    """Say so where clips are long recordings, or only stretches of recordings."""
    is_whole = pl.col("start_seconds").is_null() & pl.col("end_seconds").is_null()
    advice = []
    if len(clips.filter(~is_whole)):
        advice.append(
            "clips are the stretches that the rows name, and labels are looked for in these; "
            "--clip-seconds 10 makes clips of the whole of every recording"
        )
    looked_at = _looked_at(clips.filter(is_whole), work)
    long = looked_at.filter(pl.col("seconds") > LONG_SECONDS)
    if len(long):
        advice.append(
            f"{len(long):,} of {counted(len(looked_at), 'recording')} looked at, such as "
            f"{long['recording'][0]!r} ({long['seconds'][0]:,.0f} s), are longer than "
            f"{LONG_SECONDS:g} s: a flag will point to the whole of one. --clip-seconds 10 cuts "
            "them into clips of 10 s, for labels that have times"
        )
    return tuple(advice)


def refuse_other_times(clips: pl.DataFrame, table: SourceTable, work: Path) -> None:
    """Refuse times that are not those of the files: clips that were cut by them already."""
    finish = pl.coalesce("end_seconds", "start_seconds")
    looked_at = _looked_at(clips.with_columns(finish=finish).drop_nulls("finish"), work)
    beyond = looked_at.filter(pl.col("finish") > pl.col("seconds") + _SLACK_SECONDS)
    if 2 * len(beyond) <= len(looked_at) or beyond.is_empty():
        return
    first = beyond.row(0, named=True)
    raise EarmarkError(
        f"{table.path}: most times lie beyond the end of the files: {first['recording']!r} is "
        f"{first['seconds']:.1f} s long, and {first['finish']:g} s is not in it. Where the files "
        "are cut already, and times only tell from where, say --column start_seconds=- --column "
        "end_seconds=-; where they are not in seconds, make them so"
    )


def _looked_at(clips: pl.DataFrame, work: Path) -> pl.DataFrame:
    """Return a few clips with sound, spread over the whole, and the seconds of their files."""
    heard = clips.drop_nulls("recording")
    chosen = heard.gather_every(max(1, -(-len(heard) // _N_LOOKED_AT)))
    try:
        lengths = lengths_of(chosen, work)
    except EarmarkError:  # no library that reads sound: what is only a doubt can wait
        return chosen.head(0).with_columns(seconds=pl.lit(None, pl.Float64))
    return chosen.join(lengths, on="recording", maintain_order="left").drop_nulls("seconds")


OVERLAP_SECONDS = 0.1
"""What a piece must have of a label; and what may be lacking of a piece in a stretch."""

_REST_SHARE = 0.1
"""A rest at the end that is shorter than this share of a clip stays with the piece before."""

_ROUNDING = 1e-6


class _Cut(NamedTuple):
    """The pieces of all recordings, one row each, and the recordings themselves."""

    pieces: pl.DataFrame
    recordings: pl.DataFrame


@dataclass(frozen=True)
class Gathered:
    """Clips and labels on their way into a workspace.

    ``clips``: LINE, the columns of CLIP_SCHEMA and ``recording`` (its key; null where there is no
    sound); of uncut recordings also ``named``, the owner's name of it. ``labels``: LINE, clip_id,
    class_id, present.
    """

    clips: pl.DataFrame
    labels: SourceTable
    notes: tuple[str, ...] = ()


def cut_recordings(gathered: Gathered, lengths: pl.DataFrame, clip_seconds: float) -> Gathered:
    """Cut the recordings of clips into pieces of ``clip_seconds``, and deal out their labels.

    ``lengths``: recording, seconds (null where unknown: not cut). Clips without sound stay as they
    are.
    """
    clips, labels = gathered.clips, gathered.labels
    cut = _pieces(_recordings(clips, labels, lengths, clip_seconds), clip_seconds)
    spoken = labels.rows.drop_nulls("present").join(
        clips.select("clip_id", "recording", "start_seconds", "end_seconds"),
        on="clip_id",
        maintain_order="left",
    )
    silent = clips.filter(pl.col("recording").is_null()).drop("named")
    of_silent = spoken.filter(pl.col("recording").is_null())
    dealt, n_beyond = _deal(spoken, cut, labels, clip_seconds)
    columns = (LINE, "clip_id", "class_id", "present")
    rows = pl.concat([dealt.select(columns), of_silent.select(columns)])
    whole = pl.concat([cut.pieces.select(silent.columns), silent])
    notes = (*gathered.notes, *_notes(cut, clip_seconds, n_beyond))
    return Gathered(whole, replace(labels, rows=rows), notes)


def _recordings(
    clips: pl.DataFrame, labels: SourceTable, lengths: pl.DataFrame, clip_seconds: float
) -> pl.DataFrame:
    """Return a row for each recording: what its clips say of it, its length, how many pieces."""
    is_whole = pl.col("start_seconds").is_null() & pl.col("end_seconds").is_null()
    own_name = pl.when(pl.len() == 1, is_whole.all()).then(pl.col("clip_id").first())
    heard = clips.drop_nulls("recording").group_by("recording", maintain_order=True)
    whole = heard.agg(
        pl.col(LINE, "audio", "split", "source").first(),
        name=pl.coalesce(own_name, pl.col("named").first()),
        n_splits=pl.col("split").n_unique(),
    ).join(lengths, on="recording", how="left", maintain_order="left")
    torn = whole.filter(pl.col("n_splits") > 1)
    if len(torn):
        raise EarmarkError(
            f"{labels.path}: recording {torn['name'][0]!r} is in two splits, so that its pieces "
            "belong to none; say that there are no splits with --column split=-"
        )
    n_pieces = (pl.col("seconds") / clip_seconds - _REST_SHARE - _ROUNDING).ceil().clip(1)
    return whole.with_columns(n_pieces=n_pieces.fill_null(1).cast(pl.Int64))


def _pieces(recordings: pl.DataFrame, clip_seconds: float) -> _Cut:
    numbers = pl.int_ranges(0, "n_pieces").alias("piece")
    pieces = recordings.with_columns(numbers).explode("piece")
    is_cut, is_last = pl.col("n_pieces") > 1, pl.col("piece") == pl.col("n_pieces") - 1
    start = pl.col("piece") * float(clip_seconds)
    end = pl.when(is_last).then("seconds").otherwise(start + clip_seconds)
    pieces = pieces.with_columns(
        start_seconds=pl.when(is_cut).then(start), end_seconds=pl.when(is_cut).then(end)
    )
    named = pieces.with_columns(
        base=without_ending("name"), begin=_begin_texts(pieces["start_seconds"], clip_seconds)
    )
    for base in ("base", "name", "recording"):
        clip_id = pl.when(is_cut).then(pl.format("{}_{}", base, "begin")).otherwise("name")
        named = named.with_columns(clip_id=clip_id)
        if not named["clip_id"].is_duplicated().any():
            break
    return _Cut(named, recordings)


def _begin_texts(starts: pl.Series, clip_seconds: float) -> pl.Series:
    """Write where pieces begin, in seconds, so that their names have the order of time: 0010."""
    n_decimals = 0 if clip_seconds == int(clip_seconds) else 3
    most = starts.max()
    width = max(4, len(f"{most:.0f}" if isinstance(most, float) else ""))
    whole = starts.fill_null(0).floor().cast(pl.Int64)
    texts = whole.cast(pl.String).str.zfill(width)
    if not n_decimals:
        return texts
    rest = ((starts.fill_null(0) - whole) * 1_000).round().cast(pl.Int64).cast(pl.String)
    return pl.select(pl.format("{}.{}", texts, rest.str.zfill(n_decimals))).to_series()


def _deal(
    spoken: pl.DataFrame, cut: _Cut, labels: SourceTable, clip_seconds: float
) -> tuple[pl.DataFrame, int]:
    """Return the labels of pieces, and how many lie beyond the end of their recording."""
    known = cut.recordings.select("recording", "seconds", "n_pieces", "name")
    rows = spoken.join(known, on="recording", maintain_order="left").with_row_index("label")
    _refuse_placeless(rows, labels, clip_seconds)
    rows = _touched(rows, cut, clip_seconds)
    begin, finish, first, last = map(pl.col, ("begin", "finish", "first", "last"))
    overlap = pl.min_horizontal(finish, last) - pl.max_horizontal(begin, first)
    least = pl.min_horizontal((finish - begin) / 2, pl.lit(OVERLAP_SECONDS))
    is_heard = overlap >= least - _ROUNDING
    is_filled = (begin <= first + OVERLAP_SECONDS) & (finish >= last - OVERLAP_SECONDS)
    is_beyond = begin >= pl.col("seconds")
    n_beyond = rows.filter(is_beyond)["label"].n_unique()
    goes = ~is_beyond & pl.when("present").then(is_heard).otherwise(is_filled)
    said = ["clip_id", "class_id", "present"]
    dealt = rows.filter(goes).with_columns(clip_id="piece_id")
    return dealt.unique(said, keep="first", maintain_order=True), n_beyond


def _touched(rows: pl.DataFrame, cut: _Cut, clip_seconds: float) -> pl.DataFrame:
    """Return a row for each label and piece that may share time, with the times of both."""
    seconds = pl.col("seconds").fill_null(float("inf"))
    rows = rows.with_columns(
        begin=pl.col("start_seconds").fill_null(0),
        finish=pl.col("end_seconds").fill_null(seconds),
        seconds=seconds,
    )
    rows = rows.with_columns(piece=_range(clip_seconds)).explode("piece")
    names = cut.pieces.select("recording", "piece", piece_id="clip_id")
    rows = rows.join(names, on=["recording", "piece"], maintain_order="left")
    is_last = pl.col("piece") == pl.col("n_pieces") - 1
    first = pl.col("piece") * clip_seconds
    last = pl.when(is_last).then("seconds").otherwise(first + clip_seconds)
    return rows.with_columns(first=first, last=last)


def _range(clip_seconds: float) -> pl.Expr:
    """Return the numbers of the pieces that a label's stretch may touch."""
    most = pl.col("n_pieces") - 1
    first, last = (
        pl.min_horizontal((pl.col(time) / clip_seconds).clip(0, 2**31).cast(pl.Int64), most)
        for time in ("begin", "finish")
    )
    return pl.int_ranges(first, last + 1)


def _refuse_placeless(rows: pl.DataFrame, labels: SourceTable, clip_seconds: float) -> None:
    """Refuse labels that say of a long recording that a class is there, but not where."""
    is_whole = pl.col("start_seconds").is_null() & pl.col("end_seconds").is_null()
    placeless = rows.filter(is_whole & pl.col("present") & (pl.col("n_pieces") > 1))
    if placeless.is_empty():
        return
    first = placeless.row(0, named=True)
    raise EarmarkError(
        f"{labels.at(first[LINE])}: {first['class_id']!r} is somewhere in {first['name']!r}, which "
        f"is {first['seconds']:,.0f} s long, so that nobody knows which of its pieces has it "
        f"({counted(len(placeless), 'such label')}). Labels of recordings longer than "
        f"{clip_seconds:g} s need columns start and end (in seconds); or leave out --clip-seconds"
    )


def _notes(cut: _Cut, clip_seconds: float, n_beyond: int) -> tuple[str, ...]:
    notes = []
    long = cut.recordings.filter(pl.col("n_pieces") > 1)
    if len(long):
        n_clips = int(long["n_pieces"].sum())
        notes.append(
            f"{counted(len(long), 'recording')} longer than {clip_seconds:g} s cut into "
            f"{n_clips:,} clips. A label goes to each clip that has {OVERLAP_SECONDS:g} s of it; "
            "'not present' to those that lie within its times"
        )
    n_unknown = cut.recordings["seconds"].null_count()
    if n_unknown:
        told = counted(n_unknown, "recording")
        notes.append(f"{told} of unknown length not cut: the files do not say how long they are")
    if n_beyond:
        notes.append(f"{counted(n_beyond, 'label')} beyond the end of the recording left out")
    return tuple(notes)
