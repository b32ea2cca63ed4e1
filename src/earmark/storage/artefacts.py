"""Files that are either whole or not there.

An artefact is written to a temporary name beside its place, flushed to disk and renamed, and its
folder is flushed (:func:`write_aside`), so that a full disk, a crash, an interrupt or a power cut
never leaves half a file under a good name. A folder artefact is finished when its ``meta.json`` is
there, and current when the digest in it is the one expected.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from earmark.errors import EarmarkError, check_file, reading
from earmark.storage.leftovers import aside_of
from earmark.text import without_formulas

_FILES = "files"
"""The key of the digests of tables in their seal."""


_PROBE_BYTES = 65_536

_LONGEST_NAME = 255
"""Bytes of a name, on most disks."""

_DELETE = "it is damaged, or of another version: delete it and run again"


@contextmanager
def write_aside(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to ``path`` on success, remove it on any failure.

    The temporary name is nobody else's: machines that share a file system share process numbers.
    A folder or a device in its place is left there, and refused.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise EarmarkError(f"{path}: not a file but a folder or a device; name another place")
    make_folder(path.parent)
    aside = aside_of(path)
    try:
        yield aside
        flush(aside)
        rename(aside, path)
    except EarmarkError:
        raise
    except Exception as error:
        known = error.errno if isinstance(error, OSError) else None
        number = _disk_error(error, aside) if known is None else None
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from None
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with write_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: object) -> None:
    """Write JSON whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> Any:
    """Read JSON; say which file is missing or damaged.

    Half a character, which JSON can say (as ``ud800``) and no other file can hold, is refused.
    """
    path = Path(path)
    check_file(path)
    with reading(path, "JSON", "is it damaged? If earmark wrote it, delete it and run again"):
        text = path.read_text(encoding="utf-8-sig")
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value


class Noted(dict[str, Any]):
    """What a file of JSON notes under names; one that is not there is an error with the file."""

    def __init__(self, path: Path, noted: dict[str, Any]) -> None:
        super().__init__(noted)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise EarmarkError(f"{self.path}: there is no {name!r} in it; {_DELETE}")


def read_noted(path: str | Path) -> Noted:
    """Read what a file of JSON notes under names, as every file of earmark's own does."""
    noted = read_json(path)
    if not isinstance(noted, dict):
        raise EarmarkError(
            f"{path}: expected names and values, got {type(noted).__name__}; {_DELETE}"
        )
    return Noted(Path(path), noted)


def write_table(path: str | Path, table: pl.DataFrame, *, for_people: bool = False) -> None:
    """Write a Parquet or CSV table (chosen by the name's ending), whole or not at all.

    A CSV ``for_people``, which is opened in a spreadsheet and not read again, has no formulas.
    """
    path = Path(path)
    if path.suffix == ".csv":
        write_table_blocks(path, [table], for_people=for_people)
        return
    with write_aside(path) as aside:
        table.write_parquet(aside)


def write_table_blocks(
    path: str | Path, blocks: Iterable[pl.DataFrame], *, for_people: bool = False
) -> None:
    """Write a table as :func:`write_table` does, from blocks of rows of which few are held at once.

    There is at least one block, and all have the columns of the first.
    """
    path = Path(path)
    with write_aside(path) as aside:
        if path.suffix == ".csv":
            _write_csv_blocks(aside, map(without_formulas, blocks) if for_people else iter(blocks))
        else:
            _write_parquet_blocks(aside, iter(blocks))


def _write_csv_blocks(path: Path, blocks: Iterator[pl.DataFrame]) -> None:
    with path.open("wb") as file:
        next(blocks).write_csv(file)
        for block in blocks:
            block.write_csv(file, include_header=False)


def _write_parquet_blocks(path: Path, blocks: Iterator[pl.DataFrame]) -> None:
    first = next(blocks)

    def source(*_: object) -> Iterator[pl.DataFrame]:
        yield first
        yield from blocks

    register_io_source(source, schema=first.schema).sink_parquet(path)


def read_table(path: str | Path, schema: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Read a table that earmark wrote; say which file is missing or damaged.

    The columns of ``schema`` are there and of its types, or the file is refused; others may be.
    Of a CSV (a history, a table of the report) the types of the columns are inferred, so that
    numbers come back as numbers. What others wrote is read by :mod:`earmark.storage.tables`, where
    every cell stays as it is.
    """
    path = Path(path)
    check_file(path)
    with reading(path, "a table"):
        if path.suffix == ".csv":
            rows = pl.read_csv(path, infer_schema_length=None, glob=False)
        else:
            rows = pl.read_parquet(path, glob=False)
        return _of_types(rows, schema or {})


def _of_types(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Return a table with columns of some types; ValueError where one cannot be of its type."""
    rows = rows.with_columns(pl.col(name).cast(kind) for name, kind in schema.items())
    for name, kind in schema.items():
        if rows.schema[name] != kind:  # lists of texts made lists of numbers, where one was wanted
            raise ValueError(f"column {name!r} is of type {rows.schema[name]}")
    return rows


def seal_path(folder: str | Path) -> Path:
    """Return the file that is written last into a folder artefact, for those who name it."""
    return Path(folder) / "meta.json"


def seal(folder: str | Path, meta: Mapping[str, object]) -> None:
    """Finish a folder artefact: write what it is, and the ``digest`` of what it was made from."""
    write_json(seal_path(folder), meta)


def read_seal(folder: str | Path) -> Noted:
    """Read what :func:`seal` wrote; say which file is damaged."""
    return read_noted(seal_path(folder))


def break_seal(folder: str | Path) -> None:
    """Declare a folder artefact unfinished, before any of its files changes."""
    seal_path(folder).unlink(missing_ok=True)


def is_finished(folder: str | Path) -> bool:
    """Tell whether a folder artefact is finished, whatever it was made from."""
    return seal_path(folder).exists()


def is_current(folder: str | Path, digest: str) -> bool:
    """Tell whether a folder artefact is finished and was made from what ``digest`` stands for."""
    return is_finished(folder) and read_seal(folder).get("digest") == digest


def write_sealed(
    file: str | Path, tables: Mapping[str, pl.DataFrame], meta: Mapping[str, object]
) -> None:
    """Write tables that belong together, and last ``file``, their seal of JSON, beside them.

    The seal goes before any of them changes, and knows the digest of each, so that whoever reads
    them while they are written anew is not given some of one run and some of another.
    """
    file = Path(file)
    file.unlink(missing_ok=True)
    for name, table in tables.items():
        write_table(file.with_name(name), table)
    digests = {name: file_sha256(file.with_name(name)) for name in tables}
    write_json(file, {**meta, _FILES: digests})


def read_sealed(
    file: str | Path, name: str, schema: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """Read a table that :func:`write_sealed` wrote; refuse one that is not what the seal says."""
    file = Path(file)
    path = file.with_name(name)
    if not file.exists():
        raise EarmarkError(f"{path}: not finished, or being written anew ({file.name} is missing)")
    sealed = read_noted(file).get(_FILES)
    expected = sealed.get(name) if isinstance(sealed, dict) else None
    if expected is not None and path.exists() and file_sha256(path) != expected:
        raise EarmarkError(
            f"{path}: not what {file.name} says: being written anew, or changed by hand; if "
            "nothing writes here now, make it again"
        )
    return read_table(path, schema)


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _disk_error(error: BaseException, aside: Path) -> int | None:
    """Return the number of what a disk refused to a library that has its own word for it.

    Some name the number in their message, some fail while they handle the disk's refusal, and some
    say nothing: then a few bytes more are written, to see.
    """
    said = re.search(r"\(os error (\d+)\)", str(error))  # those written in Rust
    if said is not None:
        return int(said[1])
    before = error.__context__
    while before is not None:
        if isinstance(before, OSError) and before.errno is not None:
            return before.errno
        before = before.__context__
    try:
        with aside.open("ab") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as refused:
        return refused.errno
    return errno.EIO if type(error).__name__ == "LibsndfileError" else None


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush folders, and need not: their servers do.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename a file or a folder, and have its new name on the disk before going on."""
    os.replace(source, target)
    flush(target.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and have their names on the disk before going on."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        flush(one.parent)


def inside(folder: Path, name: str) -> Path:
    """Return the place of a name in a folder; refuse one that leads out of it.

    The name may come from a file, and be anything.
    """
    if (
        not isinstance(name, str)
        or not Path(name).parts
        or Path(name).is_absolute()
        or ".." in Path(name).parts
        or "\0" in name
        or max(len(part.encode(errors="replace")) for part in Path(name).parts) > _LONGEST_NAME
    ):
        raise EarmarkError(
            f"{str(name)[:80]!r}: not a name for something in {folder}; it leads elsewhere, or is "
            "too long"
        )
    return folder / name


def digest(*values: object) -> str:
    """Return 16 hexadecimal digits identifying parameters, texts, numbers, bytes and containers.

    >>> digest({"seed": 0, "name": "a"}) == digest({"name": "a", "seed": 0})
    True
    >>> digest({"seed": 0}) == digest({"seed": 1})
    False
    """
    text = json.dumps(values, sort_keys=True, default=_plain, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: object) -> object:
    as_plain = getattr(value, "for_digest", None)  # a record of parameters, which load slowly
    if as_plain is not None:
        return {"record": type(value).__name__, **as_plain()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return {"bytes": hashlib.sha256(value).hexdigest()}
    raise TypeError(f"cannot take the digest of a {type(value).__name__}")
