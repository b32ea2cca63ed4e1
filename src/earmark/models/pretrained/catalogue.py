"""The teachers that earmark knows by name, and the user's cache in which their weights are kept.

Weights never come with earmark. ``add`` takes a file that somebody has, ``get`` fetches it from the
address at which its authors publish it; both go by the file's SHA-256, so that what is kept is what
was published. A kept file is named by its hash and checked whenever it is opened.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from earmark.compute import SILENT, Progress
from earmark.errors import EarmarkError, check_file, load_library, nearest, quoted
from earmark.storage import file_sha256, write_aside

CACHE_VARIABLE = "EARMARK_TEACHERS"
"""Names another folder for the weights than the user's cache."""

_HASH_DIGITS = 16
"""Digits of the hash in the name of a kept file."""

_BLOCK_BYTES = 1 << 18
_PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class PublishedFile:
    """A file of weights as its authors publish it."""

    url: str
    sha256: str
    n_bytes: int
    what: str

    @property
    def suffix(self) -> str:
        """The ending that tells how it is read."""
        return Path(self.url).suffix


@dataclass(frozen=True)
class Teacher:
    """A pretrained network that earmark knows by name; the best of its files comes first."""

    name: str
    what: str
    licence: str
    files: tuple[PublishedFile, ...]


CATALOGUE = (
    Teacher(
        "yamnet",
        "521 kinds of sound, trained on AudioSet by Google",
        "Apache-2.0",
        (
            PublishedFile(
                "https://storage.googleapis.com/audioset/yamnet.h5",
                "13c3308955bbfaef262f175ac9c40e47b134573a93984f009220dd7cc12a1744",
                15_296_092,
                "Keras, the float original",
            ),
            PublishedFile(
                "https://storage.googleapis.com/tfhub-lite-models/google/lite-model/yamnet/"
                "classification/tflite/1.tflite",
                "10c95ea3eb9a7bb4cb8bddf6feb023250381008177ac162ce169694d05c317de",
                4_126_810,
                "TFLite, int8",
            ),
        ),
    ),
)
DEFAULT_TEACHER = "yamnet"


@dataclass(frozen=True)
class KeptTeacher:
    """A file of weights in the cache."""

    teacher: Teacher
    file: PublishedFile
    path: Path


def teachers_folder() -> Path:
    """Return the folder in which weights are kept."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    platformdirs = load_library("platformdirs", "keeping a teacher's weights", "pretrained")
    return Path(platformdirs.user_cache_path("earmark")) / "teachers"


def known_teacher(name: str) -> Teacher:
    """Return a teacher by name; refuse one that is not in the catalogue."""
    for teacher in CATALOGUE:
        if teacher.name == name:
            return teacher
    names = [teacher.name for teacher in CATALOGUE]
    raise EarmarkError(f"no teacher is called {name!r}{nearest(name, names)}")


def kept_teachers() -> list[KeptTeacher]:
    """Return the weights that are in the cache, the best of each teacher first."""
    return [kept for one in _published() if (kept := _place_of(*one)).path.exists()]


def kept_weights(name: str) -> KeptTeacher:
    """Return a teacher's best file in the cache, checked; say how to get one where there is none.

    A file that is damaged is refused.
    """
    teacher = known_teacher(name)
    for kept in kept_teachers():
        if kept.teacher == teacher:
            if file_sha256(kept.path) != kept.file.sha256:
                raise EarmarkError(
                    f"{kept.path}: damaged since it was kept; delete it and run `earmark teachers "
                    f"get {quoted(name)}` again"
                )
            return kept
    get = f"With internet: earmark teachers get {quoted(name)}"
    raise EarmarkError(f"{name} is not on this machine yet.\n{get}\n{_ways_told(teacher)}")


def recognised(path: Path) -> tuple[Teacher, PublishedFile] | None:
    """Tell which published file a file is, by its content; None for any other."""
    if not path.is_file():
        return None
    n_bytes = path.stat().st_size
    alike = [(teacher, file) for teacher, file in _published() if file.n_bytes == n_bytes]
    sha256 = file_sha256(path) if alike else ""
    return next((one for one in alike if one[1].sha256 == sha256), None)


def is_catalogued(network: str) -> bool:
    """Tell whether a teacher of the catalogue is meant: by name, or by a file that is its weights.

    Any Keras file is: there is no other network that such files are read for.
    """
    is_named = any(network == teacher.name for teacher in CATALOGUE)
    return is_named or network.endswith(".h5") or recognised(Path(network)) is not None


def add_teacher(path: str | Path) -> KeptTeacher:
    """Keep a copy of a file that is published weights by its hash; refuse any other."""
    path = Path(path)
    check_file(path)
    found = recognised(path)
    if found is None:
        raise EarmarkError(_unknown_told(path))
    kept = _place_of(*found)
    with write_aside(kept.path) as aside:
        shutil.copyfile(path, aside)
    return kept


def get_teacher(name: str, progress: Progress = SILENT) -> KeptTeacher:
    """Download the best of a teacher's files, unless it is kept; refuse what has another hash.

    Where the best cannot be had, the next is tried; where none can, the error says what else to do.
    """
    teacher = known_teacher(name)
    reasons = []
    for file in teacher.files:
        kept = _place_of(teacher, file)
        if kept.path.exists() and file_sha256(kept.path) == file.sha256:
            return kept
        try:
            _download(kept, progress)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reasons.append(f"{file.url}: {getattr(error, 'reason', None) or error}")
        else:
            return kept
    tried = "\n  ".join(reasons)
    raise EarmarkError(f"{name} could not be downloaded:\n  {tried}\n{_ways_told(teacher)}")


def _download(kept: KeptTeacher, progress: Progress) -> None:
    meter = progress.job(f"download {kept.teacher.name}", kept.file.n_bytes, "bytes")
    sha256 = hashlib.sha256()
    with write_aside(kept.path) as aside:
        with (
            urllib.request.urlopen(kept.file.url, timeout=_PATIENCE_SECONDS) as answer,
            aside.open("wb") as file,
        ):
            while block := answer.read(_BLOCK_BYTES):
                sha256.update(block)
                file.write(block)
                meter.advance(len(block))
        if sha256.hexdigest() != kept.file.sha256:
            raise ValueError(
                f"what came has SHA-256 {sha256.hexdigest()}, expected {kept.file.sha256}"
            )


def _published() -> Iterator[tuple[Teacher, PublishedFile]]:
    return ((teacher, file) for teacher in CATALOGUE for file in teacher.files)


def _place_of(teacher: Teacher, file: PublishedFile) -> KeptTeacher:
    """Return where a published file is kept, or would be."""
    name = f"{teacher.name}-{file.sha256[:_HASH_DIGITS]}{file.suffix}"
    return KeptTeacher(teacher, file, teachers_folder() / name)


def _ways_told(teacher: Teacher) -> str:
    """Say the ways in which weights come onto a machine that cannot fetch them."""
    urls = "\n  or ".join(file.url for file in teacher.files)
    return (
        f"Without internet, fetch on another machine\n  {urls}\n"
        "and here: earmark teachers add FILE\n"
        "Or teach with a model of your own: --teacher FILE (ONNX, TFLite, Hugging Face)"
    )


def _unknown_told(path: Path) -> str:
    expected = ", ".join(
        f"{teacher.name} ({file.n_bytes:,} bytes, {file.sha256[:12]}...)"
        for teacher, file in _published()
    )
    return (
        f"{path}: not weights that are known here: {path.stat().st_size:,} bytes with SHA-256 "
        f"{file_sha256(path)}; expected {expected}. Cut off, or changed? Another network needs no "
        f"adding: give its file as the teacher, --teacher {quoted(path)}"
    )
