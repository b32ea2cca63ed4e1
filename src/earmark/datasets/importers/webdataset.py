"""WebDataset: tars of samples, each a few members of one name: ``007.flac``, ``007.json``.

A sample's sound is unpacked into the workspace, for later stages read plain files. Its labels are
in ``.json`` (a record: labels in any form, splits, sources) or in ``.cls`` (a class, by its number
or name). What they name is present; what a list of negatives names is not. Archives are read once,
from front to back, and not by the library ``webdataset``: it believes whatever size a member
claims, and runs the shell command in a name such as ``pipe:...``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import TAR_SUFFIXES, Unpacked, read_members, unpack, walk_files
from earmark.datasets.importers.own_labels import (
    PackedTable,
    Part,
    check_labels_early,
    pack_rows,
    split_named,
    write_packed,
)
from earmark.datasets.workspace import AUDIO_FOLDER, ImportSummary
from earmark.errors import EarmarkError, first_few, reader, reading
from earmark.labels import Reading, Zeros, guess_columns
from earmark.options import Argument, Option
from earmark.storage import AUDIO_SUFFIXES, LINE, AudioAccess, writes

_MOST_TEXT = 2**20
"""Bytes of a record or text: what is longer is no label."""

_TEXTS = (".json", ".cls")
_KEY = "key"


@writes("import", makes=True)
@reader("WebDataset")
def import_webdataset(
    shards: Annotated[Sequence[str], Argument("Tars, or folders of them.")],
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
    """Write a workspace from tars, given as files or as folders of them.

    ``columns`` name fields of the records, or ``cls``; ``separator`` and ``zeros`` are as for
    tables. ``classes`` lists the classes, in the order of their numbers. A tar called train, val or
    test tells its samples' split. Another dataset is refused, unless ``replace`` says so.
    """
    paths = _find_tars(shards, work)
    tally, others = Unpacked(), Counter[str]()
    meter = progress.job("read archives", len(paths), "archives")
    n_called = Counter(path.name for path in paths)
    samples: list[_Sample] = []
    for number, path in enumerate(paths):
        # Sounds are unpacked into a folder that is called as the archive.
        folder = path.name if n_called[path.name] == 1 else f"{number}-{path.name}"
        samples += _Shard(path, folder, work, tally, others).samples()
        meter.advance(1)
    tally.flush()
    samples = [sample for sample in samples if sample.audio is not None or sample.said]
    if not samples:
        raise EarmarkError(f"{first_few(map(str, paths))}: there is not one sample in it")
    table, reading = _table(paths, samples, Reading(columns or {}, separator, zeros))
    check_labels_early(table, reading)
    named = ", ".join(f"{ending} ({n:,})" for ending, n in others.most_common(5))
    passed_over = (f"members passed over: {named}",) if named else ()
    notes = (*tally.notes(work / AUDIO_FOLDER), *passed_over)
    return write_packed(table, reading, work, notes, classes=classes, replace=replace)


def _find_tars(shards: Sequence[str], work: Path) -> list[Path]:
    """List the tars that are named, or that lie in a folder; refuse what is not there."""
    tars: list[Path] = []
    for path in map(Path, shards):
        if path.is_dir():
            files = (file for file in walk_files(path, work) if file.lower().endswith(TAR_SUFFIXES))
            tars += [Path(AudioAccess(path).place(file)) for file in files]
        elif path.is_file():
            tars.append(path)
        else:
            raise EarmarkError(f"{path}: no such archive")
    if not tars:
        raise EarmarkError(f"{first_few(shards)}: there is no .tar in it")
    return list(dict.fromkeys(tars))


@dataclass
class _Sample:
    """Members of one name: the place of the sound, and what records and texts say."""

    key: str
    archive: Path
    audio: str | None = None
    said: dict[str, Any] = field(default_factory=dict)
    endings: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Shard:
    """One archive on its way into a workspace; ``others`` counts endings that are passed over."""

    path: Path
    folder: str
    work: Path
    tally: Unpacked
    others: Counter[str]

    def samples(self) -> Iterator[_Sample]:
        """Yield samples; members of one name that lie apart, or twice, are refused."""
        seen: set[str] = set()
        sample: _Sample | None = None
        for name, content in read_members(str(self.path), self._is_wanted, self.tally):
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

    def _is_wanted(self, name: str) -> bool:
        """Tell whether a member is read; all others are counted by their endings."""
        key, ending = _key_and_ending(name)
        is_wanted = _is_sound(ending) or ending in _TEXTS
        if not is_wanted:
            self.others[ending or PurePosixPath(key).name] += 1
        return is_wanted and not PurePosixPath(key).name.startswith("._")

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
            if ending == ".cls":
                return {"cls": text.strip()} if text.strip() else {}
            record = json.loads(text)
        if not isinstance(record, dict):
            raise EarmarkError(f'{where}: expected a record such as {{"labels": ["dog"]}}')
        return {str(name): value for name, value in record.items() if _is_plain(value)}


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


def _table(
    paths: Sequence[Path], samples: Sequence[_Sample], reading: Reading
) -> tuple[PackedTable, Reading]:
    """Return a row for each sample: key, audio, the fields of its record, and split."""
    names = dict.fromkeys(name for sample in samples for name in sample.said)
    keys = [sample.key for sample in samples]
    if len(set(keys)) < len(keys):
        keys = [f"{sample.archive.name.split('.')[0]}/{sample.key}" for sample in samples]
    rows: dict[str, Any] = {_KEY: keys}
    rows |= {name: _column(name, samples) for name in names if name not in (_KEY, "audio", LINE)}
    rows["audio"] = pl.Series([sample.audio for sample in samples], dtype=pl.String)
    counts = Counter(sample.archive for sample in samples)
    parts = [Part(path, counts[path], split_named(path.name)) for path in paths if counts[path]]
    where = paths[0] if len(paths) == 1 else paths[0].parent
    table, reading = pack_rows(where, pl.DataFrame(rows), "sample", parts, reading)
    columns = {"clip_id": _KEY, **reading.columns, "audio": "audio"}
    roles = guess_columns(table, reading.columns)
    if "cls" in table.columns and not {"class_id", "labels", "present"} & roles.keys():
        columns["class_id"] = "cls"
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
