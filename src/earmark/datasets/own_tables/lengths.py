"""How long recordings are, where it matters: to cut them, and to doubt what a table says.

Headers are read for all files only where recordings are cut; otherwise for a few of them, spread
over the whole, and not at all where no library can read sound.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from earmark.audio import duration_seconds
from earmark.errors import EarmarkError, counted
from earmark.runs import SILENT, Progress, SourceTable

LONG_SECONDS = 60.0
"""From here on a flag of a whole recording does not help to find the place."""

_N_LOOKED_AT = 100
_SLACK_SECONDS = 0.5


def lengths_of(clips: pl.DataFrame, work: Path, progress: Progress = SILENT) -> pl.DataFrame:
    """Read how long the recordings of clips are: recording, seconds; null where it is not told."""
    files = clips.select("recording", "audio").drop_nulls("recording").unique("recording")
    places = [work / audio for audio in files["audio"].to_list()]
    meter = progress.job("read lengths", len(places), "files")
    lengths: list[float | None] = []
    with ThreadPoolExecutor(max_workers=8) as pool:  # waits for disks, not for the processor
        for seconds in pool.map(duration_seconds, places):
            lengths.append(seconds)
            meter.advance(1)
    return files.select("recording", pl.Series("seconds", lengths, pl.Float64))


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
