"""WebDataset: tars of samples, each a few members of one name: ``007.flac``, ``007.json``.

A sample's sound is unpacked into the workspace, for later stages read plain files. Its labels are
in ``.json`` (a record: labels in any form, splits, sources), in ``.cls`` (a class, by its number or
name) or in ``.txt`` (a class, or one in each line). What they name is present; what a list of
negatives names is not. Archives are read once, from front to back, and not by the library
``webdataset``: it believes whatever size a member claims, and runs the shell command in a name such
as ``pipe:...``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import (
    TAR_SUFFIXES,
    DamagedArchive,
    Unpacked,
    read_tar,
    stays_inside,
    unpack,
    walk_files,
)
from earmark.datasets.importer import ImportSummary
from earmark.datasets.importers.packed_tables import (
    ClassChoice,
    PackedTable,
    Part,
    check_labels_early,
    split_named,
    write_gathered,
)
from earmark.datasets.workspace import AUDIO_FOLDER
from earmark.errors import EarmarkError, first_few, reader, reading
from earmark.labels import Reading, Zeros, guess_columns
from earmark.options import Argument, Option
from earmark.storage import AUDIO_SUFFIXES, LINE, AudioAccess, writes

_MOST_TEXT = 2**20
"""Bytes of a record or text: what is longer is no label."""

_TEXTS = (".json", ".cls", ".txt")
_MANY, _SHARE = 50, 0.5
"""From so many texts, and so many for each sample, on they are captions and no classes."""

_STATES = ("0", "1", "-1", "0.0", "1.0", "-1.0", "false", "true")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_KEY = "key"


@writes("import", makes=True)
@reader("WebDataset")
def import_webdataset(
    shards: Annotated[
        Sequence[str], Argument("Tars, folders of them, or a range: 'x-{000..009}.tar'.")
    ],
    work: Path,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    classes: Annotated[
        Path | None, Option("List of classes: their names, parents and order.")
    ] = None,
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from tars, given as files, folders or ranges such as ``x-{000..009}.tar``.

    ``columns`` name fields of the records, or ``cls`` and ``txt``; ``separator`` and ``zeros`` are
    as for tables. ``classes`` lists the classes, in the order of their numbers. A tar called train,
    val or test tells its samples' split. Another dataset is refused, unless ``replace`` says so.
    """
    paths = find_shards(shards, work)
    tally, read = Unpacked(), _Read()
    meter = progress.job("read archives", len(paths), "archives")
    for folder, path in zip(_folders(paths), paths, strict=True):
        read.take(_Shard(path, folder, work, tally, read.others).samples())
        meter.advance(1)
    tally.flush()
    if not read.samples:
        raise EarmarkError(f"{first_few(map(str, paths))}: there is not one sample in it")
    reading = Reading(columns or {}, separator, zeros)
    table, reading = _table(paths, read, reading)
    check_labels_early(table, reading)
    _refuse_captions(table, reading)
    notes = (*tally.notes(work / AUDIO_FOLDER), *read.notes())
    choice = ClassChoice(classes)
    return write_gathered(table, reading, choice, work, notes, replace=replace)


def find_shards(shards: Sequence[str], work: Path) -> list[Path]:
    """List the tars that files, folders and ranges name; refuse what is not there."""
    paths = [path for shard in shards for name in braced(shard) for path in _tars(name, work)]
    if not paths:
        raise EarmarkError(f"{first_few(shards)}: there is no .tar in it")
    return list(dict.fromkeys(paths))


def braced(name: str) -> list[str]:
    """Return the names that a range in braces stands for, as a shell does.

    >>> braced("x-{08..10}.tar")
    ['x-08.tar', 'x-09.tar', 'x-10.tar']
    """
    found = _RANGE.search(name)
    if found is None:
        return [name]
    first, last = found.groups()
    width = len(first) if first.startswith("0") or last.startswith("0") else 0
    numbers = range(int(first), int(last) + 1)
    texts = [f"{name[: found.start()]}{i:0{width}}{name[found.end() :]}" for i in numbers]
    return [one for text in texts for one in braced(text)]


def _is_tar(path: str) -> bool:
    return path.lower().endswith(TAR_SUFFIXES)


def _tars(name: str, work: Path) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        archives = (file for file in walk_files(path, skip=work) if _is_tar(file))
        return [Path(AudioAccess(path).place(file)) for file in archives]
    if not path.is_file():
        raise EarmarkError(f"{path}: no such archive")
    return [path]


@dataclass
class _Sample:
    """Members of one name: the place of the sound, and what records and texts say."""

    key: str
    archive: Path
    audio: str | None = None
    said: dict[str, Any] = field(default_factory=dict)
    endings: set[str] = field(default_factory=set)

    @property
    def place(self) -> str:
        """The key, with the name of the archive in front."""
        return f"{self.archive.name.split('.')[0]}/{self.key}"


@dataclass
class _Read:
    """Samples of all archives, and the endings of members that were passed over."""

    samples: list[_Sample] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    def take(self, samples: Iterator[_Sample]) -> None:
        """Keep the samples of an archive that have sound or say something."""
        for sample in samples:
            if sample.audio is not None or sample.said:
                self.samples.append(sample)

    def notes(self) -> list[str]:
        """Say which kinds of members were passed over."""
        named = ", ".join(f"{ending} ({n:,})" for ending, n in self.others.most_common(5))
        return [f"members passed over: {named}"] if named else []


@dataclass(frozen=True)
class _Shard:
    """One archive on its way into a workspace."""

    path: Path
    folder: str
    work: Path
    tally: Unpacked
    others: Counter[str]

    def samples(self) -> Iterator[_Sample]:
        """Yield samples; members of one name that lie apart, or twice, are refused."""
        seen: set[str] = set()
        sample: _Sample | None = None
        for name, content in self._members():
            key, ending = _key_and_ending(name)
            if sample is None or sample.key != key:
                if sample is not None:
                    yield sample
                if key in seen:
                    raise EarmarkError(
                        f"{self.path}: members of sample {key!r} do not lie together; is the "
                        "archive sorted?"
                    )
                seen.add(key)
                sample = _Sample(key, self.path)
            self._take(sample, name, ending, content)
        if sample is not None:
            yield sample

    def _members(self) -> Iterator[tuple[str, bytes]]:
        """Yield plain members that stay inside; a damaged archive yields what it has."""
        try:
            for name, content in read_tar(self.path, self._is_wanted):
                if content is None or not stays_inside(name):
                    self.tally.refused.append(name)
                else:
                    yield name, content
        except DamagedArchive as error:
            self.tally.damaged.append(str(error))

    def _is_wanted(self, name: str) -> bool:
        """Tell whether a member is read; all others are counted by their endings."""
        key, ending = _key_and_ending(name)
        is_known = _is_sound(ending) or ending in _TEXTS
        if not is_known:
            self.others[ending or PurePosixPath(key).name] += 1
        return is_known and not PurePosixPath(key).name.startswith("._")

    def _take(self, sample: _Sample, name: str, ending: str, content: bytes) -> None:
        if ending in sample.endings:
            raise EarmarkError(f"{self.path}: sample {sample.key!r} has two members {ending}")
        sample.endings.add(ending)
        if _is_sound(ending) and sample.audio is None:
            place = Path(AUDIO_FOLDER) / self.folder / name
            unpack(self.work / place, content, self.tally)
            sample.audio = place.as_posix()
        elif ending in _TEXTS:
            sample.said |= self._said(sample, ending, content)

    def _said(self, sample: _Sample, ending: str, content: bytes) -> dict[str, Any]:
        where = f"{self.path}, sample {sample.key!r}, {ending}"
        if len(content) > _MOST_TEXT:
            raise EarmarkError(f"{where}: {len(content):,} bytes, too long for labels")
        with reading(where, f"{ending[1:]} in UTF-8"):
            text = content.decode("utf-8")
            if ending != ".json":
                lines = [line.strip() for line in text.splitlines() if line.strip()]
                return {ending[1:]: ";".join(lines)} if lines else {}
            record = json.loads(text)
        if not isinstance(record, dict):
            raise EarmarkError(f'{where}: expected a record such as {{"labels": ["dog"]}}')
        return {str(name): value for name, value in record.items() if _is_plain(value)}


def _folders(paths: Sequence[Path]) -> list[str]:
    """Return the folders that sounds are unpacked into: the archives' names, told apart."""
    n_called = Counter(path.name for path in paths)
    return [
        path.name if n_called[path.name] == 1 else f"{number}-{path.name}"
        for number, path in enumerate(paths)
    ]


def _is_sound(ending: str) -> bool:
    return PurePosixPath(f"x{ending}").suffix in AUDIO_SUFFIXES


def _key_and_ending(name: str) -> tuple[str, str]:
    """Cut a member's name at the first dot of its last part, as WebDataset does.

    >>> _key_and_ending("./birds/007.seg.JSON")
    ('birds/007', '.seg.json')
    """
    path = PurePosixPath(name)
    stem, dot, ending = path.name.partition(".")
    return str(path.parent / stem), f"{dot}{ending}".lower()


def _is_plain(value: object) -> bool:
    """Tell whether a field is a text, a number or a list of such."""
    if isinstance(value, list):
        return all(one is None or isinstance(one, str | int | float) for one in value)
    return isinstance(value, str | int | float)


def _table(paths: Sequence[Path], read: _Read, reading: Reading) -> tuple[PackedTable, Reading]:
    """Return a row for each sample: key, audio, the fields of its record, and split."""
    names = dict.fromkeys(name for sample in read.samples for name in sample.said)
    taken = {_KEY, "audio", LINE}
    keys = [sample.key for sample in read.samples]
    if len(set(keys)) < len(keys):
        keys = [sample.place for sample in read.samples]
    rows: dict[str, Any] = {_KEY: keys}
    rows |= {name: _column(name, read.samples) for name in names if name not in taken}
    rows["audio"] = pl.Series([sample.audio for sample in read.samples], dtype=pl.String)
    counts = Counter(sample.archive for sample in read.samples)
    parts = [Part(path, counts[path], split_named(path.name)) for path in paths if counts[path]]
    frame = pl.DataFrame(rows)
    if any(part.split for part in parts):
        splits = [part.split or "train" for part in parts for _ in range(part.n_rows)]
        frame = frame.with_columns(pl.Series("split", splits, pl.String))
    where = paths[0] if len(paths) == 1 else paths[0].parent
    table = PackedTable(where, frame.with_row_index(LINE, offset=1), "sample", tuple(parts))
    columns = {"clip_id": _KEY, **_with_texts(table, reading.columns), "audio": "audio"}
    return table, replace(reading, columns=columns)


def _column(name: str, samples: Sequence[_Sample]) -> pl.Series:
    """Return a field of all samples, as texts or as lists of texts."""
    values = [sample.said.get(name) for sample in samples]
    if any(isinstance(value, list) for value in values):
        lists = [
            None if value is None else [_text(one) for one in _listed(value)] for value in values
        ]
        return pl.Series(name, lists, pl.List(pl.String))
    return pl.Series(name, [_text(value) for value in values], pl.String)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)  # true, 7 and 0.5, and not True


def _with_texts(table: PackedTable, columns: Mapping[str, str]) -> Mapping[str, str]:
    """Take ``.cls`` for the class, else ``.txt``, where records do not say.

    Texts beside fields of 0 and 1 are words about the sound; the fields are the classes.
    """
    roles = guess_columns(table, columns)
    if {"class_id", "labels", "present"} & roles.keys():
        return columns
    if "cls" in table.columns:
        return {**columns, "class_id": "cls"}
    texts = (cells for cells in table.rows if cells.dtype == pl.String and cells.count())
    has_states = any(cells.drop_nulls().is_in(_STATES).all() for cells in texts)
    return {**columns, "class_id": "txt"} if "txt" in table.columns and not has_states else columns


def _refuse_captions(table: PackedTable, reading: Reading) -> None:
    """Refuse sentences about sounds in the place of classes."""
    if reading.columns.get("class_id") != "txt":
        return
    n_texts = table.rows["txt"].drop_nulls().n_unique()
    if n_texts >= _MANY and n_texts > _SHARE * len(table.rows):
        raise EarmarkError(
            f"{table.path}: {n_texts:,} texts in .txt of {len(table.rows):,} samples, such as "
            f"{table.rows['txt'].drop_nulls()[0]!r}; these are captions, not classes. Say which "
            "field of .json holds the classes (--column labels=NAME)"
        )
