"""Files that are either whole or not there.

An artefact is written to a temporary name beside its place, flushed to disk and renamed, so that a
full disk, a crash or an interrupt never leaves half a file under a good name. A folder artefact
is finished when its ``meta.json`` is there, and current when the digest in it is the one expected.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from earmark.errors import EarmarkError


@contextmanager
def write_aside(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to ``path`` on success, remove it on any failure.

    The temporary name is nobody else's: machines that share a file system share process numbers.
    A folder or a device in its place is left there, and refused.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise EarmarkError(f"{path}: not a file but a folder or a device; name another place")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield aside
        _flush(aside)
        os.replace(aside, path)
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
    """Read JSON; say which file is damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also not text, huge numbers, deep brackets
        raise EarmarkError(f"{path}: not valid JSON ({error}); delete it and run again") from None


def write_table(path: str | Path, table: pl.DataFrame) -> None:
    """Write a Parquet or CSV table (chosen by the name's ending), whole or not at all."""
    path = Path(path)
    with write_aside(path) as aside:
        try:
            table.write_csv(aside) if path.suffix == ".csv" else table.write_parquet(aside)
        except (pl.exceptions.PolarsError, OSError) as error:
            number = re.search(r"\(os error (\d+)\)", str(error))  # which polars only writes out
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def read_table(path: str | Path) -> pl.DataFrame:
    """Read a table that earmark wrote; say which file is missing or damaged.

    Of a CSV (a history, a table of the report) the types of the columns are inferred, so that
    numbers come back as numbers. What others wrote is read by :mod:`earmark.runs.tables`, where
    every cell stays as it is.
    """
    path = Path(path)
    try:
        if path.suffix == ".csv":
            return pl.read_csv(path, infer_schema_length=None, glob=False)
        return pl.read_parquet(path, glob=False)
    except FileNotFoundError:
        raise EarmarkError(f"{path}: no such file") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise EarmarkError(f"{path}: cannot be read as a table: {error}") from None


def seal_path(folder: str | Path) -> Path:
    """Return the file that is written last into a folder artefact, for those who name it."""
    return Path(folder) / "meta.json"


def seal(folder: str | Path, meta: Mapping[str, object]) -> None:
    """Finish a folder artefact: write what it is, and the ``digest`` of what it was made from."""
    write_json(seal_path(folder), meta)


def read_seal(folder: str | Path) -> Any:
    """Read what :func:`seal` wrote; say which file is damaged."""
    return read_json(seal_path(folder))


def break_seal(folder: str | Path) -> None:
    """Declare a folder artefact unfinished, before any of its files changes."""
    seal_path(folder).unlink(missing_ok=True)


def is_finished(folder: str | Path) -> bool:
    """Tell whether a folder artefact is finished, whatever it was made from."""
    return seal_path(folder).exists()


def is_current(folder: str | Path, digest: str) -> bool:
    """Tell whether a folder artefact is finished and was made from what ``digest`` stands for."""
    return is_finished(folder) and read_seal(folder).get("digest") == digest


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_sqlite(path: Path, seconds_to_wait: float) -> sqlite3.Connection:
    """Open an SQLite file, which is made if it is missing, for several threads and processes.

    Where it may not be written it is read: with what the log beside it holds, if there is one.
    """
    address = ":memory:" if str(path) == ":memory:" else f"file:{quote(str(path.absolute()))}"
    if path.exists() and not (os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)):
        has_log = path.with_name(f"{path.name}-wal").exists()
        address += "?mode=ro" if has_log else "?immutable=1"
    return sqlite3.connect(
        address, timeout=seconds_to_wait, isolation_level=None, check_same_thread=False, uri=True
    )
