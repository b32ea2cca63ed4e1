"""Long recordings, cut into clips of equal length, and where their labels go.

A label with times goes to every piece that it overlaps by 0.1 s, or by half of itself; "not
present" holds only for pieces that lie within its stretch. A label of a whole recording says of no
piece that the class is there, so that it is refused where a recording is cut; "not present" in the
whole is not present in any piece.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import polars as pl

from earmark.datasets.own_tables.recordings import without_ending
from earmark.errors import EarmarkError, counted
from earmark.runs import LINE, SourceTable

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
class CutClips:
    """Clips that are pieces of recordings, and their labels in the long form."""

    clips: pl.DataFrame
    labels: SourceTable
    notes: tuple[str, ...]


def cut_recordings(
    clips: pl.DataFrame, labels: SourceTable, lengths: pl.DataFrame, clip_seconds: float
) -> CutClips:
    """Cut the recordings of clips into pieces of ``clip_seconds``, and deal out their labels.

    ``clips``: LINE, the columns of CLIP_SCHEMA, ``recording`` (null where there is no sound) and
    ``named``, the owner's name of it. ``labels``: LINE, clip_id, class_id, present. ``lengths``:
    recording, seconds (null where unknown: not cut). Clips without sound stay as they are.
    """
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
    return CutClips(whole, replace(labels, rows=rows), _notes(cut, clip_seconds, n_beyond))


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
