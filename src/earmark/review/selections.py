"""Where classes are heard, in the files of other programs: Raven, Audacity and DCASE.

A *selection* is a stretch of a sound file in which a class is heard. Its times count from the start
of the file. A clip may be a part of a file: :class:`SoundFiles` knows which.

A label is written where the raters' votes call it present. Its span is the one that raters set;
without one, the teacher's best patch; and if that is not known either, the whole clip. Overlapping
spans of one label, of one rater or of several, are written as one.

The tables are read and written here and not by crowsetta, which installs 93 MB (pandas, pandera)
for three columns, refuses Raven's tables without frequencies or with whole numbers for them, loses
the names of the sound files, and does not know DCASE's format.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import polars as pl

from earmark.audio import SoundHeader, UnreadableAudio, sound_header
from earmark.config import (
    Recipe,
)
from earmark.datasets import PAIR, Workspace, scored_frames, whole_scores
from earmark.errors import EarmarkError, EarmarkWarning, counted, first_few, reader, reading
from earmark.labels import Ontology
from earmark.review.judgement_files import content_id
from earmark.review.judgements import Judgement, combine_votes
from earmark.review.peaks import best_peaks
from earmark.review.queue_items import item_id
from earmark.scores import ScoreFolder
from earmark.storage import (
    AUDIO_SUFFIXES,
    LINE,
    digest,
    is_finished,
    is_url,
    local_copy,
    read_header,
    read_source,
    write_text,
)


class SoundFiles:
    """The sound files of a workspace's clips; a clip without one is taken for a file of its name.

    Files are named as ``clips.parquet`` names them, unless another name is spoken of.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        file = pl.coalesce("audio", "clip_id")
        clips = workspace.clips.select("clip_id", "start_seconds", "end_seconds", file=file)
        self._clips = {row.pop("clip_id"): row for row in clips.to_dicts()}
        self._soundless = set(workspace.clips.filter(pl.col("audio").is_null())["clip_id"])

    def clip(self, name: str | None) -> str | None:
        """Return the clip of a name; None if there is none."""
        return name if name in self._clips else None

    @cached_property
    def header(self) -> Callable[[str], SoundHeader | None]:
        """Return what a file says of itself; None where it is missing or does not tell."""
        return lru_cache(None)(self._read_header)

    @cached_property
    def names(self) -> dict[str, str]:
        """The shortest end of each file's path that no other file has."""
        return {file: self._shortest(file) for file in self._by_file}

    def file_of(self, clip_id: str) -> str:
        """Return the file of a clip."""
        return str(self._clips[clip_id]["file"])

    def path(self, file: str) -> str:
        """Return the absolute path of a file, or its URL."""
        return file if is_url(file) else str(self._workspace.audio_path(file).absolute())

    def bounds(self, clip_id: str) -> tuple[float, float | None]:
        """Return start and end of a clip in its file, in seconds; None where nobody knows."""
        clip = self._clips[clip_id]
        start, end = clip["start_seconds"] or 0.0, clip["end_seconds"]
        if end is None:
            header = self.header(clip["file"])
            end = None if header is None else header.seconds
        return start, end

    def seconds(self, clip_id: str) -> float | None:
        """Return how long a clip is; None where nobody knows."""
        start, end = self.bounds(clip_id)
        return None if end is None else end - start

    def find(self, name: str) -> list[str]:
        """Return the clips of the file that another program calls by a name.

        The name may have folders in front, of this or another machine, and may lack its ending.
        Names that no file has, or more than one, are refused.
        """
        given = PurePosixPath(name.replace("\\", "/"))
        bare = given.stem if given.suffix.lower() in AUDIO_SUFFIXES else given.name
        alike = self._by_name.get(given.name) or self._by_stem.get(bare, [])
        folders = given.parts[:-1]
        found = [f for f in alike if _tail(self._folders(f), len(folders)) == folders] or alike
        if not found:
            has = first_few(self.names.values())
            raise EarmarkError(f"no sound file is called {name!r}; the dataset has {has}")
        if len(found) > 1:
            meant = first_few(self.names[file] for file in found)
            raise EarmarkError(f"{name!r} may be {meant}; write the file's folder with it")
        return self._by_file[found[0]]

    def _read_header(self, file: str) -> SoundHeader | None:
        if file in self._soundless:
            return None
        try:
            with local_copy(self._workspace.audio_place(file)) as path:
                return sound_header(path)
        except UnreadableAudio:
            return None

    def _shortest(self, file: str) -> str:
        *folders, name = PurePosixPath(self.path(file)).parts
        rivals = [self._folders(other) for other in self._by_name[name] if other != file]
        n = 0
        while n < len(folders) and any(_tail(rival, n) == _tail(folders, n) for rival in rivals):
            n += 1
        return "/".join((*_tail(folders, n), name))

    def _folders(self, file: str) -> tuple[str, ...]:
        return PurePosixPath(self.path(file)).parts[:-1]

    @cached_property
    def _by_file(self) -> dict[str, list[str]]:
        return _grouped((clip["file"], clip_id) for clip_id, clip in self._clips.items())

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        return _grouped((PurePosixPath(file).name, file) for file in self._by_file)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        return _grouped((PurePosixPath(file).stem, file) for file in self._by_file)


def _tail(parts: Sequence[str], n: int) -> tuple[str, ...]:
    return tuple(parts[len(parts) - n :]) if n else ()


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


SelectionFormat = Literal["raven", "audacity", "dcase"]

SELECTION_FORMATS: tuple[SelectionFormat, ...] = get_args(SelectionFormat)

_BEGIN, _END, _OFFSET = "Begin Time (s)", "End Time (s)", "File Offset (s)"

_DCASE = ("filename", "onset", "offset", "event_label")

_RAVEN_FILES = ("Begin Path", "Begin File")
_RAVEN_LABELS = ("Class ID", "Annotation", "Species", "Common Name", "Label")
"""Columns that may name a selection's class, in the order in which they are asked."""

_DECIMALS = 6


Span = tuple[float, float]
"""Start and end in seconds."""

_SELECTION_SCHEMA = pl.Schema(
    {
        "clip_id": pl.String(),
        "class_id": pl.String(),
        "file": pl.String(),
        "start": pl.Float64(),
        "end": pl.Float64(),
        "span": pl.String(),
        "raters": pl.String(),
    }
)
"""Start and end are seconds of the file; ``span`` says whose they are: rater, teacher or clip."""

_TOLERANCE_SECONDS = 0.002
"""A selection that leaves out no more of a clip's start and end is about the whole clip."""

_LEAST_OVERLAP_SECONDS = 0.1
"""A selection that reaches into a clip by less, and with less than half of it, is not about it."""


@dataclass(frozen=True)
class Selection:
    """A stretch of a sound file as another program wrote it; ``where`` it stood, for messages."""

    where: str
    file: str
    label: str
    start: float
    end: float
    clip: str | None = None
    """The clip that was meant, where the file names it."""
    is_set: bool = True
    """Whether a person set the span: it is not the teacher's, nor just the whole clip's."""
    raters: tuple[str, ...] = ()


def export_selections(
    workspace: Workspace,
    recipe: Recipe,
    current: pl.DataFrame,
    path: str | Path,
    written_as: SelectionFormat,
) -> int:
    """Write where raters heard classes, by their current answers; return how many selections.

    Labels of which nobody knows when they are heard, nor how long the clip is, are left out, and
    counted in a warning.
    """
    files = SoundFiles(workspace)
    known = current.filter(pl.col("clip_id").is_in(workspace.clips["clip_id"].implode()))
    teachers = _teachers_spans(workspace, recipe, files)
    selections, n_timeless = _make_selections(files, known, teachers)
    if selections.is_empty():
        raise EarmarkError(
            f"{workspace.root}: there is nothing to write: {counted(len(known), 'answer')} call no "
            "label present whose time is known; the answers themselves are written as CSV"
        )
    class_names = _names_of_classes(workspace.ontology)
    rows = selections.with_columns(
        pl.col("file").replace_strict(files.names).alias("name"),
        pl.col("file").map_elements(files.path, pl.String).alias("path"),
        pl.col("class_id").replace_strict(class_names).alias("label"),
    )
    match written_as:
        case "raven":
            _write_raven(Path(path), rows, recipe.front_end.low_hz, recipe.front_end.high_hz)
        case "audacity":
            _write_audacity(Path(path), rows)
        case "dcase":
            columns = dict(zip(_DCASE, ("name", "start", "end", "label"), strict=True))
            _write_tsv(Path(path), rows.select(**columns))
    if n_timeless:
        warnings.warn(
            f"{counted(n_timeless, 'label')} left out: their sound files cannot be read, so nobody "
            "knows how long they are",
            EarmarkWarning,
            stacklevel=2,
        )
    return len(selections)


def import_selections(
    workspace: Workspace,
    path: str | Path,
    written_as: SelectionFormat,
    at: datetime,
    rater: str = "imported",
) -> list[Judgement]:
    """Return the answers "present" that the selections of a file or folder stand for."""
    found = read_selections(path, written_as)
    return _answers_of(found, SoundFiles(workspace), workspace.ontology, at, rater)


def _teachers_spans(
    workspace: Workspace, recipe: Recipe, files: SoundFiles
) -> Callable[[str, str], Span | None]:
    """Return a function that gives the best patch of a label; None where nobody knows it."""
    folder = workspace.scores_folder(recipe.scores_name)
    if not is_finished(folder):
        return lambda clip_id, class_id: None  # noqa: ARG005
    scores = whole_scores(workspace, ScoreFolder.open(folder))
    peaks = best_peaks(recipe, scores, scored_frames(workspace, recipe), files.seconds)
    return lambda clip_id, class_id: next(iter(peaks.spans(clip_id, class_id)), None)


def _make_selections(
    files: SoundFiles, current: pl.DataFrame, teachers: Callable[[str, str], Span | None]
) -> tuple[pl.DataFrame, int]:
    """Return the labels that current answers call present, and how many of them have no times.

    ``teachers`` gives the part of a clip in which the teacher hears a class, if it is known. A
    label has no times where nobody knows a part of the clip, nor how long the clip is.
    """
    heard = combine_votes(current, PAIR).filter(answer="present").select(PAIR)
    said = current.filter(answer="present").group_by(PAIR).agg("span_start", "span_end", "rater")
    rows: list[tuple[Any, ...]] = []
    n_timeless = 0
    for clip_id, class_id, starts, ends, names in heard.join(said, on=PAIR).iter_rows():
        raters = ",".join(sorted(set(names)))
        set_spans = [span for span in zip(starts, ends, strict=True) if span[0] is not None]
        spans, whose = _merged(set_spans), "rater"
        if not spans:
            spans, whose = _unmarked(files, clip_id, teachers(clip_id, class_id))
        n_timeless += not spans
        for start, end in spans:
            first = files.bounds(clip_id)[0]
            place = (files.file_of(clip_id), first + start, first + end)
            rows.append((clip_id, class_id, *place, whose, raters))
    table = pl.DataFrame(rows, _SELECTION_SCHEMA, orient="row")
    return table.sort("file", "start", "end", "class_id"), n_timeless


def _unmarked(files: SoundFiles, clip_id: str, best: Span | None) -> tuple[list[Span], str]:
    """Return the span of a label that no rater marked, if one is known, and whose it is."""
    seconds = files.seconds(clip_id)
    if best is not None and (seconds is None or best[0] < seconds):
        # The last patch of a clip may reach beyond its end.
        return [(best[0], best[1] if seconds is None else min(best[1], seconds))], "teacher"
    return ([] if seconds is None else [(0.0, seconds)]), "clip"


def _merged(spans: list[Span]) -> list[Span]:
    """Return spans of which none overlap; those that merely touch stay apart.

    >>> _merged([(3, 4), (0, 2), (1, 3)])
    [(0, 3), (3, 4)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _answers_of(
    selections: Iterable[Selection],
    files: SoundFiles,
    ontology: Ontology,
    at: datetime,
    rater: str = "imported",
) -> list[Judgement]:
    """Return the answers "present" that selections stand for, all of them or none.

    A selection is about every clip of its file that it reaches into, and its span is cut there. The
    whole of a clip, and a point in it, are answers without a span. ``rater`` answers where the file
    names nobody. Several selections of a class in a clip are several items, so that none of them
    takes another's place. A file or class that is not known is refused.
    """
    found: dict[tuple[str, str, str, Span | None], None] = {}
    for one in selections:
        try:
            class_id = ontology.find(one.label)
            places = list(_places(one, files))
        except EarmarkError as error:
            raise EarmarkError(f"{one.where}: {error}; nothing was imported") from None
        for clip_id, span in places:
            for name in one.raters or (rater,):
                found[name, clip_id, class_id, span] = None
    answers, seen = [], set()
    for name, clip_id, class_id, span in found:
        is_first = (name, clip_id, class_id) not in seen
        seen.add((name, clip_id, class_id))
        item = item_id(clip_id, class_id) if is_first else digest(clip_id, class_id, span)
        answers.append(_answer(name, item, clip_id, class_id, span, at))
    return answers


def _answer(
    rater: str, item: str, clip_id: str, class_id: str, span: Span | None, at: datetime
) -> Judgement:
    start, end = span or (None, None)
    return Judgement(
        id=content_id(rater, item, "present", start, end),
        at=at,
        rater=rater,
        item=item,
        clip_id=clip_id,
        class_id=class_id,
        answer="present",
        span_start=start,
        span_end=end,
    )


def _places(one: Selection, files: SoundFiles) -> Iterator[tuple[str, Span | None]]:
    """Yield the clips that a selection is about, with its span in each."""
    if not 0 <= one.start <= one.end:
        raise EarmarkError(
            f"from {one.start:g} s to {one.end:g} s is no part of a file: expected seconds from "
            "the file's start, the end not before the start"
        )
    known = files.clip(one.clip)
    clips = files.find(one.file) if known is None else [known]
    placed = [(clip_id, _inside(one, *files.bounds(clip_id))) for clip_id in clips]
    inside = [(clip_id, span) for clip_id, span in placed if span is not None]
    if not inside:
        parts = counted(len(clips), "clip")
        raise EarmarkError(
            f"no clip of {one.file!r} ({parts}) holds {one.start:g} s to {one.end:g} s; are the "
            "times seconds from the file's start?"
        )
    for clip_id, (start, end) in inside:
        first, last = files.bounds(clip_id)
        is_whole = last is not None and end - start >= last - first - _TOLERANCE_SECONDS
        has_span = one.is_set and end > start and not is_whole
        yield clip_id, (start, end) if has_span else None


def _inside(one: Selection, first: float, last: float | None) -> Span | None:
    """Return a selection's span from the clip's start, cut at its ends; None if it is elsewhere."""
    start = max(one.start, first)
    end = one.end if last is None else min(one.end, last)
    least = min(_LEAST_OVERLAP_SECONDS, (one.end - one.start) / 2)
    if end - start < least:
        return None
    return round(start - first, 3), round(end - first, 3)


def _names_of_classes(ontology: Ontology) -> dict[str, str]:
    """Name each class; one that shares its name with others keeps its identifier."""
    named = {class_id: ontology.name(class_id) for class_id in ontology.class_ids}
    return {key: name if ontology.find(name) == key else key for key, name in named.items()}


@reader("selections")
def read_selections(path: str | Path, written_as: SelectionFormat) -> list[Selection]:
    """Read the selections of a file, or of a folder of Audacity's labels."""
    path = Path(path)
    if not path.exists():
        raise EarmarkError(f"{path}: no such file or folder")
    if path.is_dir() and written_as != "audacity":
        raise EarmarkError(f"{path}: a folder; only Audacity's labels are read from folders")
    match written_as:
        case "raven":
            return list(_read_raven(path))
        case "audacity":
            return list(_read_audacity(path))
        case "dcase":
            return list(_read_dcase(path))


def selection_format(path: str | Path) -> SelectionFormat | None:
    """Tell in which format a file or folder is by what is in it; None if in none of these."""
    path = Path(path)
    if path.is_dir():
        return "audacity"
    ending = path.suffix.lower()
    return _table_format(path) if ending in (".txt", ".tsv", ".csv") and path.is_file() else None


def _table_format(path: Path) -> SelectionFormat | None:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline().rstrip("\r\n").split("\t")
    if _BEGIN in first:
        return "raven"
    if set(_DCASE) <= set(first) or (len(first) == len(_DCASE) and _are_seconds(first[1:3])):
        return "dcase"
    return "audacity" if len(first) == 3 and _are_seconds(first[:2]) else None


def _are_seconds(cells: Iterable[str]) -> bool:
    try:
        return all(float(cell) >= 0 for cell in cells)
    except ValueError:
        return False


def _write_raven(path: Path, rows: pl.DataFrame, low_hz: float, high_hz: float) -> None:
    """Write one selection table for all files.

    Times are those of each file, in ``Begin Time`` and in ``File Offset``; the frequencies are the
    lowest and the highest that the teacher hears.
    """
    columns = {
        "Selection": pl.int_range(1, pl.len() + 1),
        "View": pl.lit("Spectrogram 1"),
        "Channel": pl.lit(1),
        _BEGIN: pl.col("start"),
        _END: pl.col("end"),
        "Low Freq (Hz)": pl.lit(float(low_hz)),
        "High Freq (Hz)": pl.lit(float(high_hz)),
        "Begin File": pl.col("name"),
        "Begin Path": pl.col("path"),
        _OFFSET: pl.col("start"),
        "Annotation": pl.col("label"),
        "Class ID": pl.col("class_id"),
        "Clip": pl.col("clip_id"),
        "Span": pl.col("span"),
        "Raters": pl.col("raters"),
    }
    _write_tsv(path, rows.select(**columns))


def _read_raven(path: Path) -> Iterator[Selection]:
    """Read a selection table; ``Begin File`` or ``Begin Path`` says which sound file is meant.

    ``File Offset`` counts where it is given: in a table of several files Raven counts ``Begin
    Time`` from the first of them.
    """
    source = read_source(path)
    of_file = [name for name in _RAVEN_FILES if name in source.columns]
    of_class = [name for name in _RAVEN_LABELS if name in source.columns]
    if not of_file or not of_class:
        missing = "Begin File" if not of_file else "Annotation"
        raise EarmarkError(
            f"{path}: there is no column {missing!r}; it has {', '.join(source.columns)}. Show the "
            "column in Raven (View > Choose Measurements) and save the table again"
        )
    for row in source.rows.iter_rows(named=True):
        where = source.at(row[LINE])
        begin, end = _seconds(row, _BEGIN, where), _seconds(row, _END, where)
        start = begin if row.get(_OFFSET) is None else _seconds(row, _OFFSET, where)
        yield Selection(
            where,
            _first(row, of_file, where),
            _first(row, of_class, where),
            start,
            round(start + end - begin, _DECIMALS),
            row.get("Clip"),
            row.get("Span") not in ("teacher", "clip"),
            tuple(filter(None, (row.get("Raters") or "").split(","))),
        )


def _read_dcase(path: Path) -> Iterator[Selection]:
    """Read strong labels, with or without a header; files without an event are passed over."""
    has_header = set(_DCASE) <= set(read_header(path)[0])
    source = read_source(path, None if has_header else _DCASE)
    missing = [name for name in _DCASE if name not in source.columns]
    if missing:
        raise EarmarkError(
            f"{path}: there is no column {missing[0]!r}; expected {', '.join(_DCASE)}, got "
            f"{', '.join(source.columns)}"
        )
    for row in source.rows.iter_rows(named=True):
        where = source.at(row[LINE])
        if all(row[name] is None for name in _DCASE[1:]):
            continue
        start, end = (_seconds(row, name, where) for name in ("onset", "offset"))
        label = _first(row, ("event_label",), where)
        yield Selection(where, _first(row, ("filename",), where), label, start, end)


def _write_audacity(folder: Path, rows: pl.DataFrame) -> None:
    """Write a label track for each sound file, named as it is and ``.txt``: ``rain.wav.txt``."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise EarmarkError(
            f"{folder}: Audacity's labels are a folder with a file for each sound file, and this "
            "is there already; give the name of a new folder"
        )
    for (name,), track in rows.group_by("name", maintain_order=True):
        lines = (
            f"{start:.{_DECIMALS}f}\t{end:.{_DECIMALS}f}\t{label}\n"
            for start, end, label in track.select("start", "end", "label").iter_rows()
        )
        write_text(folder / f"{name}.txt", "".join(lines))


def _read_audacity(path: Path) -> Iterator[Selection]:
    """Read a label track, or all those in a folder; each is named like its sound file."""
    tracks = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not tracks:
        raise EarmarkError(f"{path}: there is no label track in this folder: no file named *.txt")
    for track in tracks:
        file = track.relative_to(path).as_posix() if path.is_dir() else track.name
        for number, line in enumerate(_lines(track), start=1):
            if line.strip() and not line.startswith("\\"):  # a backslash: the line before's bands
                yield _audacity_label(line, file.removesuffix(".txt"), f"{track}, line {number}")


def _audacity_label(line: str, file: str, where: str) -> Selection:
    cells = line.split("\t")
    if len(cells) != 3 or not cells[2].strip():
        raise EarmarkError(
            f"{where}: expected start, end and label with tabs between them, got {line!r}"
        )
    row = dict(zip(("start", "end", "label"), cells, strict=True))
    start, end = (_seconds(row, name, where) for name in ("start", "end"))
    return Selection(where, file, cells[2].strip(), start, end)


def _lines(path: Path) -> list[str]:
    with reading(path, "text in UTF-8"):
        return path.read_text(encoding="utf-8-sig").splitlines()


def _write_tsv(path: Path, table: pl.DataFrame) -> None:
    write_text(path, table.write_csv(separator="\t", float_precision=_DECIMALS))


def _first(row: Mapping[str, Any], columns: list[str] | tuple[str, ...], where: str) -> str:
    """Return the first of some cells that has a value."""
    found = next((row[name] for name in columns if row[name] is not None), None)
    if found is None:
        raise EarmarkError(f"{where}: {columns[0]} is empty")
    return str(found)


def _seconds(row: Mapping[str, Any], column: str, where: str) -> float:
    try:
        seconds = float(row[column])
    except (KeyError, TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise EarmarkError(
            f"{where}: {column} is {row.get(column)!r}; expected seconds, such as 1.25"
        )
    return seconds
