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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.audio_files import TAR_SUFFIXES, Unpacked, read_members, unpack, walk_files
from earmark.datasets.importers.own_labels import (
    ClassList,
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
from earmark.options import Argument
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
    classes: ClassList = None,
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
    samples: dict[Path, dict[str, dict[str, Any]]] = {}
    for number, path in enumerate(paths):
        # Sounds are unpacked into a folder that is called as the archive.
        folder = path.name if n_called[path.name] == 1 else f"{number}-{path.name}"
        samples[path] = _read_samples(path, work, folder, tally, others)
        meter.advance(1)
    tally.flush()
    if not any(samples.values()):
        raise EarmarkError(f"{first_few(map(str, paths))}: there is not one sample in it")
    table, reading = _table(samples, Reading(columns or {}, separator, zeros))
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


def _read_samples(
    path: Path, work: Path, folder: str, tally: Unpacked, others: Counter[str]
) -> dict[str, dict[str, Any]]:
    """Return what the members of each name say, and under ``audio`` where their sound is now.

    Endings that are passed over are counted in ``others``.
    """

    def is_wanted(name: str) -> bool:
        key, ending = _key_and_ending(name)
        is_known = _is_sound(ending) or ending in _TEXTS
        if not is_known:
            others[ending or PurePosixPath(key).name] += 1
        return is_known and not PurePosixPath(key).name.startswith("._")

    samples: dict[str, dict[str, Any]] = {}
    for name, content in read_members(str(path), is_wanted, tally):
        key, ending = _key_and_ending(name)
        if ending in _TEXTS:
            where = f"{path}, sample {key!r}, {ending}"
            said = _read_text(where, ending, content)
            if said:
                samples.setdefault(key, {}).update(said)
        elif "audio" not in samples.setdefault(key, {}):
            place = Path(AUDIO_FOLDER, folder, name)
            unpack(work / place, content, tally)
            samples[key]["audio"] = place.as_posix()
    return samples


def _read_text(where: str, ending: str, content: bytes) -> dict[str, Any]:
    if len(content) > _MOST_TEXT:
        raise EarmarkError(f"{where}: {len(content):,} bytes, too long for labels")
    with reading(where, f"{ending[1:]} in UTF-8"):
        text = content.decode("utf-8")
        if ending == ".cls":
            return {"cls": text.strip()} if text.strip() else {}
        record = json.loads(text)
    if not isinstance(record, dict):
        raise EarmarkError(f'{where}: expected a record such as {{"labels": ["dog"]}}')
    passed_over = (_KEY, "audio", LINE)
    return {str(k): v for k, v in record.items() if _is_plain(v) and k not in passed_over}


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
    samples: Mapping[Path, Mapping[str, Mapping[str, Any]]], reading: Reading
) -> tuple[PackedTable, Reading]:
    """Return a row for each sample: key, audio, the fields of its record, and split."""
    records = [record for of_path in samples.values() for record in of_path.values()]
    keys = [key for of_path in samples.values() for key in of_path]
    if len(set(keys)) < len(keys):
        keys = [f"{path.name.split('.')[0]}/{key}" for path in samples for key in samples[path]]
    names = dict.fromkeys(["audio", *(name for record in records for name in record)])
    rows = {_KEY: keys, **{name: _column([r.get(name) for r in records]) for name in names}}
    parts = [Part(path, len(samples[path]), split_named(path.name)) for path in samples]
    paths = list(samples)
    where = paths[0] if len(paths) == 1 else paths[0].parent
    table, reading = pack_rows(where, pl.DataFrame(rows), "sample", parts, reading)
    columns = {"clip_id": _KEY, **reading.columns, "audio": "audio"}
    roles = guess_columns(table, reading.columns)
    if "cls" in table.columns and not {"class_id", "labels", "present"} & roles.keys():
        columns["class_id"] = "cls"
    return table, replace(reading, columns=columns)


def _column(values: Sequence[Any]) -> pl.Series:
    """Return a field of all samples, as texts or as lists of texts."""
    if any(isinstance(value, list) for value in values):
        lists = [
            None
            if value is None
            else [_text(one) for one in (value if isinstance(value, list) else [value])]
            for value in values
        ]
        return pl.Series(values=lists, dtype=pl.List(pl.String))
    return pl.Series(values=[_text(value) for value in values], dtype=pl.String)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)  # true, 7 and 0.5, and not True
