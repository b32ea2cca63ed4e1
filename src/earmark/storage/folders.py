"""Folders that are replaced file by file, by a manifest of what an earlier command wrote.

A folder is made in a scratch folder beside its place. A new one appears whole or not at all. Of one
that is there, only files that its manifest names, and that nobody has edited, are replaced or
removed: everything else in it belongs to somebody else.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from earmark.errors import EarmarkError, EarmarkWarning, first_few, quoted
from earmark.storage.artefacts import (
    file_sha256,
    flush,
    inside,
    make_folder,
    read_noted,
    rename,
    write_json,
)
from earmark.storage.leftovers import aside_of, sweep_beside, swept_told
from earmark.storage.lock import HOLDER, LOCK

MANIFEST = ".earmark.json"
"""Names what a command wrote into a folder: ``made_by`` and ``files`` with their SHA-256.

While files are being replaced, ``earlier`` has the files from before.
"""

_SEALS = ("meta.json", "labels.parquet")
"""Files that are written last, because they say that those beside them are whole."""


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """Yield a folder on the same disk as ``out``, and remove it afterwards.

    Those that killed processes left beside it go, too.
    """
    make_folder(out.parent)
    if n_swept := sweep_beside(out):
        warnings.warn(f"{out}: {swept_told(n_swept)}", EarmarkWarning, stacklevel=4)
    folder = aside_of(out)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_replaceable(out: Path, made_by: str) -> None:
    """Refuse a folder that is neither new nor empty nor, unedited, what ``made_by`` wrote."""
    _replaceable_files(out, made_by)


def foreign_files(folder: Path, below: str) -> list[str]:
    """Return the files below a part of a folder that its manifest does not name."""
    manifest = folder / MANIFEST
    named = _named_files(read_noted(manifest)) if manifest.is_file() else {}
    return [
        name
        for name in _file_names(folder)
        if name.startswith(f"{below}/")
        and name not in named
        and Path(name).name not in (LOCK, HOLDER)
    ]


def put_in_place(made: Path, out: Path, made_by: str) -> None:
    """Rename a finished folder of a scratch folder, or move its files into an earlier one.

    Refuse, and change nothing, where a file would be lost that ``made_by`` did not write or that
    was edited since. A kill between two files leaves the seals out, and a manifest of both.
    """
    files = _digests(made, _file_names(made))
    manifest = {"made_by": made_by, "files": files}
    earlier = _replaceable_files(out, made_by)
    if not out.exists() or not any(out.iterdir()):
        write_json(made / MANIFEST, manifest)
        for root, _, names in os.walk(made):
            for name in names:
                flush(Path(root, name))
            flush(Path(root))
        rename(made, out)
        return
    if in_the_way := [name for name in files.keys() - earlier if os.path.lexists(out / name)]:
        raise EarmarkError(
            f"{out}: {first_few(in_the_way)} is not from an earlier `{made_by}`, and would be "
            "replaced; nothing was changed. Move it elsewhere, or give a new folder"
        )
    digests = _digests(out, sorted(earlier))
    write_json(out / MANIFEST, {**manifest, "earlier": digests})
    for name in sorted(earlier, key=_seals_last, reverse=True):
        if name not in files or Path(name).name in _SEALS:
            (out / name).unlink(missing_ok=True)
    move_files(made, out)
    write_json(out / MANIFEST, manifest)


def move_files(source: Path, target: Path) -> None:
    """Move the files of a folder into another, those that say that others are whole last.

    All are flushed to disk.
    """
    names = sorted(_file_names(source), key=_seals_last)
    for name in names:
        flush(source / name)
    for name in names:
        make_folder((target / name).parent)
        rename(source / name, target / name)


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: file_sha256(folder / name) for name in names if (folder / name).exists()}


def _seals_last(name: str) -> tuple[bool, int]:
    return Path(name).name in _SEALS, -name.count("/")


def _file_names(folder: Path) -> list[str]:
    """Return the files of a folder and all below it, links as what they are."""
    return sorted(
        Path(root, name).relative_to(folder).as_posix()
        for root, folders, files in os.walk(folder)
        for name in (*files, *(one for one in folders if Path(root, one).is_symlink()))
    )


def _replaceable_files(out: Path, made_by: str) -> frozenset[str]:
    """Return the files that an earlier command wrote; refuse a folder that it did not write.

    So is one in which somebody edited a file that it wrote.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return frozenset()
    manifest = out / MANIFEST
    noted = read_noted(manifest) if manifest.is_file() else {}
    if noted.get("made_by") != made_by:
        raise EarmarkError(
            f"{out}: there is something in it that no earlier `{made_by}` wrote, and it was not "
            "touched; give a new folder"
        )
    named = _named_files(noted)
    edited = [name for name, known in named.items() if _is_edited(out, name, known)]
    if edited:
        raise EarmarkError(
            f"{out}: {first_few(edited)} was changed after `{made_by}` wrote it; nothing was "
            f"replaced. Move your version elsewhere (mv {quoted(out / edited[0])} ELSEWHERE) and "
            "run again, or give a new folder"
        )
    return frozenset(named)


def _named_files(noted: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the digests that each file of a manifest may have."""
    named: dict[str, set[str]] = {}
    for part in ("files", "earlier"):
        files = noted.get(part, {})
        for name, sha256 in files.items() if isinstance(files, dict) else ():
            named.setdefault(name, set()).add(str(sha256))
    return named


def _is_edited(out: Path, name: str, known: set[str]) -> bool:
    """Tell whether a file is not what was written; one behind a link is somebody else's."""
    path = inside(out, name)
    if path.is_dir() or path.resolve() != out.resolve() / name:
        return True
    return path.exists() and file_sha256(path) not in known
