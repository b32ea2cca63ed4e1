"""Audio as people really have it: folders, tars, Parquet files with embedded bytes.

Later stages read plain files, so the wanted members of archives are unpacked once into the
workspace's ``audio`` folder (the disk pays for them twice; nothing else is unpacked). A member
that would land outside that folder, a link or a device is refused and counted. Folders may be
links, even in circles.
"""

from __future__ import annotations

import itertools
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import polars as pl

from earmark.compute import (
    Meter,
)
from earmark.datasets.workspace import AUDIO_FOLDER
from earmark.errors import EarmarkError, counted, first_few, reading, told_briefly
from earmark.labels import CLIP_COLUMNS
from earmark.memory import is_memory_error
from earmark.storage import (
    AUDIO_SUFFIXES,
    AudioAccess,
    aside_of,
    check_parquet,
    flush,
    make_folder,
)

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
ARCHIVE_SUFFIXES = (*TAR_SUFFIXES, ".parquet")

ROWS_AT_ONCE = 256
"""Rows of a Parquet file whose bytes are in memory at the same time: about 250 MB of wav."""

_ID_COLUMNS = tuple(dict.fromkeys(("clip_id", "video_id", *CLIP_COLUMNS, "name")))
"""Columns that name a Parquet file's rows where the embedded audio has no path, in this order.

AudioSet's Parquet has ``video_id``, which elsewhere is a recording of several clips.
"""

_SHRUNK = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_LONGEST_NAME, _LONGEST_PATH = 255, 2_000
"""Bytes that file systems allow to a name, and characters that leave room for the workspace's."""

_MOST_SHRUNK, _LEAST_LIMIT = 100, 2**28
"""How much smaller sound may be in a compressed archive, and what is never too much."""


class DamagedArchive(EarmarkError):  # noqa: N818 - named for what it is, like UnreadableAudio
    """An archive cannot be read to its end; ``offset`` is where its last readable member begins."""

    def __init__(self, path: str | Path, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path, self.offset = path, offset
        self.reason = f"the archive is damaged from here on ({reason})"

    def __str__(self) -> str:
        return f"{self.path}, byte {self.offset:,}: {self.reason}"


@dataclass(frozen=True)
class FoundAudio:
    """The sound files of a dataset: a table ``name`` (without folder and ending), ``audio`` (path).

    Paths of unpacked files are relative to the workspace, all others absolute. Files come in the
    order of their paths. ``notes`` say what was unpacked, refused or damaged.
    """

    files: pl.DataFrame
    notes: tuple[str, ...] = ()


_FILES_AT_ONCE = 1_000
"""Files that are flushed together."""


@dataclass
class Unpacked:
    """What the summary will say about archives."""

    n_unpacked: int = 0
    n_bytes: int = 0
    n_misnamed: int = 0
    refused: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unflushed: list[Path] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Take note of a file that has to be flushed."""
        self.unflushed.append(path)
        if len(self.unflushed) >= _FILES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Have all files on the disk; to be called before a table names them."""
        for path in (*self.unflushed, *{path.parent for path in self.unflushed}):
            flush(path)
        self.unflushed.clear()

    def notes(self, folder: Path) -> tuple[str, ...]:
        """Return sentences about what was unpacked into a folder, refused or damaged."""
        notes = list(self.damaged)
        if self.n_unpacked:
            size = f"{self.n_bytes / 1e9:,.2f} GB"
            notes.append(f"{counted(self.n_unpacked, 'file')} ({size}) unpacked into {folder}")
        if self.refused:
            members = counted(len(self.refused), "member")
            notes.append(
                f"{members} of archives refused (a path that leads outside, "
                f"a link or a device): {', '.join(self.refused[:3])}"
            )
        if self.n_misnamed:
            n_files = counted(self.n_misnamed, "file")
            notes.append(f"{n_files} passed over: a path that is not valid UTF-8")
        return tuple(notes)


def find_audio(
    root: Path,
    work: Path,
    is_wanted: Callable[[str], bool],
    meter: Meter | None = None,
    allow: Sequence[Path] = (),
) -> FoundAudio:
    """List the sound files under a folder, unpacking from archives those that are wanted.

    ``root`` may also be one archive. ``is_wanted`` is asked about a file's name without folder and
    ending, and decides about plain files and members alike. What lies in ``work`` is not searched.
    A link that leads out of ``root`` is refused, unless it is into one of ``allow``.
    """
    if not root.exists():
        raise EarmarkError(f"{root}: no such file or folder; where is the audio?")
    tally, access = Unpacked(), AudioAccess(root, tuple(allow))
    base = root if root.is_dir() else root.parent
    names, paths = [], []
    for path in walk_files(root, skip=work):
        for name, audio in _sounds(path, base, work, is_wanted, tally, access):
            if _is_text(audio):
                names.append(name)
                paths.append(audio)
            else:
                tally.n_misnamed += 1
            if meter is not None:
                meter.advance(1)
    tally.flush()
    schema = {"name": pl.String, "audio": pl.String}
    return FoundAudio(
        pl.DataFrame({"name": names, "audio": paths}, schema), tally.notes(work / AUDIO_FOLDER)
    )


def sounds_of(
    clip_ids: pl.Series, root: Path, work: Path, meter: Meter | None = None
) -> tuple[pl.Series, tuple[str, ...]]:
    """Find the sound of each clip by its name; return the files [clip], null without, and notes.

    A clip is called like its file, with or without folders, with or without the ending. A name
    that files in several folders have is nobody's; not one sound for any clip is an error.
    """
    names = [PurePosixPath(clip_id) for clip_id in clip_ids]
    wanted = {stem for name in names for stem in (name.name, name.stem)}
    found = find_audio(root, work, wanted.__contains__, meter)
    files: dict[str, list[str]] = {}
    for name, audio in found.files.iter_rows():
        files.setdefault(name, []).append(audio)
    matches = [_matches(name, files) for name in names]
    several = [name for name, own in zip(clip_ids, matches, strict=True) if len(own) > 1]
    if not any(matches):
        raise EarmarkError(
            f"{root}: no sound of any clip there; the clips are called {first_few(clip_ids)}, the "
            f"files {first_few(_some_sounds(root))}"
        )
    notes = [*found.notes]
    if several:
        notes.append(
            f"{counted(len(several), 'clip')} called like files in several folders (such as "
            f"{first_few(several)}): give clips the names of their folders, too"
        )
    audio = [own[0] if len(own) == 1 else None for own in matches]
    return pl.Series("audio", audio, pl.String), tuple(notes)


def walk_files(root: Path, skip: Path | None = None) -> Iterator[str]:
    """Yield the path of every file under a folder in the order of names, or of ``root`` itself.

    Links to folders are followed, each folder is entered once, and ``skip`` is not entered.
    """
    root = root.resolve()
    if not root.is_dir():
        yield str(root)
        return
    entered = {_identity(str(skip))} if skip is not None and skip.is_dir() else set()
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        if _identity(folder) in entered:
            continue
        entered.add(_identity(folder))
        folders = []
        for entry in _entries(folder):
            if _is_kind(entry.is_dir):
                folders.append(entry.path)
            elif _is_kind(entry.is_file):
                yield entry.path
        waiting.extend(reversed(folders))


def read_tar(
    path: str | Path, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes | None]]:
    """Yield name and content of the wanted members in one pass; what is no plain file has None.

    Nothing is unpacked to the disk. A damaged archive yields what it has, then raises
    :class:`DamagedArchive`; so does one that claims or unpacks to more than it can hold: an
    archive of a few kilobytes may pretend to be a terabyte.
    """
    offset, most = 0, _most_bytes(path)
    try:
        with tarfile.open(path, "r|*") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined] # or they all stay in memory
                offset = member.offset
                if member.offset_data + (0 if member.issparse() else member.size) > most:
                    raise EOFError(f"{member.name} claims {member.size:,} bytes, which it has not")
                if member.isdir() or not is_wanted(member.name):
                    continue
                is_plain = member.isreg() and not member.issparse()  # holes need no bytes
                file = tar.extractfile(member) if is_plain else None
                content = None if file is None else file.read()
                if content is not None and len(content) < member.size:
                    raise EOFError(f"it ends within {member.name}")
                yield member.name, content
    except Exception as error:  # tarfile, zlib and lzma have no base in common
        if is_memory_error(error):
            raise
        raise DamagedArchive(path, offset, told_briefly(error)) from None


def read_members(
    path: str, is_wanted: Callable[[str], bool], tally: Unpacked
) -> Iterator[tuple[str, bytes]]:
    """Yield plain members that stay inside; an archive that ends early yields what it has."""
    try:
        for name, content in read_tar(path, is_wanted):
            if content is None or not stays_inside(name):
                tally.refused.append(name)
            else:
                yield name, content
    except DamagedArchive as error:
        tally.damaged.append(str(error))


def _most_bytes(path: str | Path) -> int:
    """Return how many bytes an archive can hold: its own; a compressed one, many times more."""
    n_bytes = os.path.getsize(path)
    with open(path, "rb") as file:
        is_shrunk = file.read(6).startswith(_SHRUNK)
    return max(_LEAST_LIMIT, n_bytes * _MOST_SHRUNK) if is_shrunk else n_bytes


def _matches(name: PurePosixPath, files: Mapping[str, list[str]]) -> list[str]:
    """Return the files that a clip may mean, one for each folder; ``files`` are given by stem."""
    bare = name.with_suffix("") if name.suffix.lower() in AUDIO_SUFFIXES else name
    candidates = [PurePosixPath(path) for path in files.get(bare.name, ())]
    exact = [path for path in candidates if _ends_with(path, name)]
    if not exact:
        exact = [path for path in candidates if _ends_with(path.with_suffix(""), bare)]
    by_folder = {path.parent: str(path) for path in reversed(exact)}
    return [*reversed(by_folder.values())]


def _ends_with(path: PurePosixPath, tail: PurePosixPath) -> bool:
    parts = [part for part in tail.parts if part not in ("/", ".")]
    return list(path.parts[len(path.parts) - len(parts) :]) == parts


def _some_sounds(root: Path) -> list[str]:
    """Return the names of a few sound files in a folder."""
    sounds = (path for path in walk_files(root) if Path(path).suffix.lower() in AUDIO_SUFFIXES)
    return [os.path.relpath(path, root) for path in itertools.islice(sounds, 3)]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise EarmarkError(f"{folder}: the folder cannot be listed ({error.strerror})") from None


def _is_kind(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except OSError:  # a link to itself, or to a place that may not be seen
        return False


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _is_text(path: str) -> bool:
    """Tell whether a path is text at all: tables cannot hold names in unknown encodings."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sounds(
    path: str,
    base: Path,
    work: Path,
    is_wanted: Callable[[str], bool],
    tally: Unpacked,
    access: AudioAccess,
) -> Iterator[tuple[str, str]]:
    """Yield name and path of the wanted sounds in one file, be it a sound or an archive."""
    lower = path.lower()
    stem, suffix = os.path.splitext(os.path.basename(path))
    if suffix.lower() in AUDIO_SUFFIXES:
        if is_wanted(stem):
            access.place(path)
            yield stem, path
        return
    if lower.endswith(ARCHIVE_SUFFIXES):
        access.place(path)
    members: Iterator[tuple[str, bytes]]
    if lower.endswith(TAR_SUFFIXES):
        members = read_members(path, lambda name: _is_sound(name, is_wanted), tally)
    elif lower.endswith(".parquet"):
        members = _parquet_members(path, is_wanted, tally)
    else:
        return
    folder = Path(AUDIO_FOLDER) / os.path.relpath(path, base.resolve())
    for member, content in members:
        unpack(work / folder / member, content, tally)
        yield PurePosixPath(member).stem, (folder / member).as_posix()


def unpack(target: Path, content: bytes, tally: Unpacked) -> None:
    """Write a member under its own name, whole or not at all; one that is there is kept.

    It is on the disk after :meth:`Unpacked.flush`: to flush some hundreds together is faster.
    """
    aside = aside_of(target)
    try:
        if target.is_file() and target.read_bytes() == content:
            tally.add(target)  # whose writer may not have flushed it
            return
        make_folder(target.parent)
        aside.write_bytes(content)
        os.replace(aside, target)
        tally.add(target)
    except OSError as error:
        raise EarmarkError(f"{target}: cannot be unpacked ({error.strerror})") from None
    finally:
        aside.unlink(missing_ok=True)
    tally.n_unpacked += 1
    tally.n_bytes += len(content)


def stays_inside(name: str) -> bool:
    """Tell whether a member's name leads to a file below the folder that it is unpacked into.

    Others lead elsewhere, or are no names of files: with a NUL, too long, or of half a character.
    """
    member = PurePosixPath(name)
    try:
        longest = max((len(os.fsencode(part)) for part in member.parts), default=_LONGEST_NAME + 1)
    except UnicodeEncodeError:
        return False
    is_below = not member.is_absolute() and ".." not in member.parts and "\0" not in name
    return is_below and longest <= _LONGEST_NAME and len(name) <= _LONGEST_PATH


def _is_sound(name: str, is_wanted: Callable[[str], bool]) -> bool:
    member = PurePosixPath(name)
    return member.suffix.lower() in AUDIO_SUFFIXES and is_wanted(member.stem)


def _parquet_members(
    path: str, is_wanted: Callable[[str], bool], tally: Unpacked
) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted rows of a Parquet file with a column ``audio`` of bytes or {bytes, path}."""
    try:
        for name, content in _embedded(path):
            member = PurePosixPath(PurePosixPath(name).name)
            if member.suffix.lower() not in AUDIO_SUFFIXES:
                member = PurePosixPath(f"{member.name}.audio")
            if not stays_inside(member.name):
                tally.refused.append(name)
            elif is_wanted(member.stem):
                yield member.name, content
    except EarmarkError as error:
        tally.damaged.append(f"passed over: {error}")


def _embedded(path: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of the sounds in a Parquet file, some rows at a time."""
    with reading(path, "Parquet"):
        check_parquet(Path(path))
        table = pl.scan_parquet(path, glob=False)
        columns = _parquet_columns(table.collect_schema())
        if columns is None:
            return
        for first in range(0, table.select(pl.len()).collect().item(), ROWS_AT_ONCE):
            rows = table.slice(first, ROWS_AT_ONCE).select(*columns).collect()
            yield from rows.drop_nulls().iter_rows()


def _parquet_columns(schema: pl.Schema) -> tuple[pl.Expr, pl.Expr] | None:
    """Return expressions for names and bytes, or None for a table without embedded sound."""
    audio = schema.get("audio")
    names = [pl.col(column).cast(pl.String) for column in _ID_COLUMNS if column in schema]
    content = pl.col("audio")
    if isinstance(audio, pl.Struct):
        fields = {each.name: each.dtype for each in audio.fields}
        if fields.get("bytes") != pl.Binary:
            return None
        if "path" in fields:
            names.insert(0, content.struct.field("path"))
        content = content.struct.field("bytes")
    elif audio != pl.Binary:
        return None
    return (pl.coalesce(names).alias("name"), content.alias("content")) if names else None
