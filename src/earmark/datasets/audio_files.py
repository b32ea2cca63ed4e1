"""The recordings in folders and tars, and which of them a name means.

Later stages read plain files, so the wanted members of archives are unpacked once into the
workspace's ``audio`` folder (the disk pays for them twice; nothing else is unpacked). A member
that would land outside that folder, a link or a device is refused and counted. Folders may be
links, even in circles.

Owners write ``dog/1.wav``, ``1.wav``, ``1`` or a path of another computer. A name means the
recording whose path ends as the name does, in as many folders as possible; endings of sound files,
the slashes of Windows and the ways to write an umlaut make no difference. A name that several
recordings could have is nobody's: a label of the wrong sound is worse than none.
"""

from __future__ import annotations

import itertools
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

import polars as pl

from earmark.audio import duration_seconds
from earmark.compute import Meter
from earmark.datasets.workspace import AUDIO_FOLDER
from earmark.errors import EarmarkError, counted, first_few, told_briefly
from earmark.memory import is_memory_error
from earmark.storage import AUDIO_SUFFIXES, AudioAccess, aside_of, flush, make_folder

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
SOUND_ENDING = rf"(?i)\.({'|'.join(suffix[1:] for suffix in sorted(AUDIO_SUFFIXES))})$"
"""A regular expression of the endings of sound files."""

_FORK = "._"
"""What begins the names of files that macOS leaves beside others: they hold no sound."""

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
class Recordings:
    """The sound files of a folder, in the order of their paths.

    ``files``: ``key``, the path within the folder (or ``archive.tar/path``), and ``audio``, the
    place as ``clips`` of a workspace hold it: of unpacked files relative to the workspace, of all
    others absolute. ``notes`` say what was unpacked, refused or damaged.
    """

    root: Path
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


def find_recordings(
    root: Path,
    work: Path,
    is_wanted: Callable[[str], bool] | None = None,
    meter: Meter | None = None,
    allow: Sequence[Path] = (),
) -> Recordings:
    """List the sound files under a folder, unpacking from archives those that are wanted.

    ``root`` may also be one archive or one sound. ``is_wanted`` is asked about a file's name
    without folder and ending, and decides about plain files and members alike. What lies in
    ``work`` is not searched. A link that leads out of ``root`` is refused, unless it is into one of
    ``allow``.
    """
    if not root.exists():
        raise EarmarkError(f"{root}: no such file or folder; where is the audio?")
    tally, access = Unpacked(), AudioAccess(root, tuple(allow))
    base = (root if root.is_dir() else root.parent).resolve()
    paths = {}
    for path in walk_files(root, skip=work):
        for key, audio in _sounds(path, base, work, is_wanted or _is_no_fork, tally, access):
            if _is_text(audio):
                paths[key] = audio
            else:
                tally.n_misnamed += 1
            if meter is not None:
                meter.advance(1)
    tally.flush()
    schema = {"key": pl.String, "audio": pl.String}
    files = pl.DataFrame({"key": [*paths], "audio": [*paths.values()]}, schema)
    return Recordings(root, files, tally.notes(work / AUDIO_FOLDER))


def sounds_of(
    clip_ids: pl.Series, root: Path, work: Path, meter: Meter | None = None
) -> tuple[pl.Series, tuple[str, ...]]:
    """Find the sound of each clip by its name; return the files [clip], null without, and notes.

    A clip is called like its file, with or without folders, with or without the ending. A name
    that several files could have is nobody's; not one sound for any clip is an error.
    """
    wanted = {stem for name in map(PurePosixPath, clip_ids) for stem in (name.name, name.stem)}
    recordings = find_recordings(root, work, wanted.__contains__, meter)
    found = match_recordings(clip_ids, recordings).join(recordings.files, on="key", how="left")
    # Unlike a table's, the names of clips are no paths of another computer.
    ends = [f"/{name}" for name in with_plain_paths(found, "name")["bare"]]
    files = [f"/{file}" for file in with_plain_paths(found, "audio")["bare"]]
    is_whole = pl.Series([file.endswith(end) for file, end in zip(files, ends, strict=True)])
    found = found.with_columns(pl.when(is_whole).then("audio").alias("audio"))
    if not found["audio"].count():
        raise EarmarkError(
            f"{root}: no sound of any clip there; the clips are called {first_few(clip_ids)}, the "
            f"files {first_few(_some_sounds(root))}"
        )
    places = clip_ids.alias("name").to_frame().join(found, on="name", maintain_order="left")
    return places["audio"], (*recordings.notes, *ambiguous_note(found))


def match_recordings(names: pl.Series, recordings: Recordings) -> pl.DataFrame:
    """Find the recording that each name means: a table name, key (null: none), is_ambiguous.

    Names come once each. Longer common ends of two paths come first, at each length those with
    the same ending of the file. A recording that two names could mean at the same length is
    neither's. The work grows with the number of names and files, times the depth of folders.
    """
    files = with_plain_paths(recordings.files.select("key"), "key")
    wanted = with_plain_paths(pl.DataFrame({"name": names.unique(maintain_order=True)}), "name")
    done = [_same_path(wanted, files, "path"), _same_path(wanted, files, "bare")]
    found = pl.concat(done).unique("name", keep="first", maintain_order=True)
    waiting = wanted.join(found, on="name", how="anti", maintain_order="left")
    deepest = min(_depth(waiting), _depth(files))
    for length, form in itertools.product(range(deepest, 0, -1), ("path", "bare")):
        if waiting.is_empty():
            break
        decided = _same_end(waiting, files, length, form, found["key"].drop_nulls())
        found = pl.concat([found, decided])
        waiting = waiting.join(decided, on="name", how="anti", maintain_order="left")
    none = waiting.select("name", key=pl.lit(None, pl.String), is_ambiguous=pl.lit(False))
    return pl.concat([found, none])


def without_ending(column: str) -> pl.Expr:
    """Return names without the ending of a sound file."""
    return pl.col(column).str.replace(SOUND_ENDING, "")


def ambiguous_note(matches: pl.DataFrame) -> tuple[str, ...]:
    """Count the names of :func:`match_recordings` that several recordings could have."""
    names = matches.filter("is_ambiguous")["name"]
    if names.is_empty():
        return ()
    return (
        f"{counted(len(names), 'clip')} without sound, for several recordings could be meant (such "
        f"as {first_few(names)}): name them with their folders",
    )


def with_plain_paths(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Add ``path``, plainly written, and ``bare``, without a file's ending."""
    plain = pl.col(column).str.normalize("NFC").str.replace_all("\\", "/", literal=True)
    plain = plain.str.replace_all(r"/(\./)*/*", "/").str.replace(r"^(\.?/)+", "")
    return rows.with_columns(path=plain).with_columns(bare=without_ending("path"))


def _depth(rows: pl.DataFrame) -> int:
    n_slashes = rows["path"].str.count_matches("/", literal=True).max()
    return n_slashes + 1 if isinstance(n_slashes, int) else 0


def _same_path(
    wanted: pl.DataFrame, files: pl.DataFrame, form: Literal["path", "bare"]
) -> pl.DataFrame:
    """Return the names that are the whole path of a recording."""
    firsts = files.unique(form, keep="first", maintain_order=True)
    same = wanted.select("name", form).join(firsts.select(form, "key"), on=form)
    return same.select("name", "key", is_ambiguous=pl.lit(False))


def _same_end(
    waiting: pl.DataFrame, files: pl.DataFrame, length: int, form: str, taken: pl.Series
) -> pl.DataFrame:
    """Decide about the names whose last ``length`` parts are those of some recording."""
    ours, theirs = (_ends(rows, length, form) for rows in (waiting, files))
    # Files of one folder that differ in their endings alone hold the same sound: the first will do.
    theirs = theirs.group_by("end", maintain_order=True).agg(
        pl.col("key").first(), n_files=pl.col("bare").n_unique()
    )
    ours = ours.with_columns(n_names=pl.col("bare").n_unique().over("end"))
    met = ours.join(theirs, on="end", maintain_order="left")
    is_taken = pl.col("key").is_in(taken.implode())
    is_ambiguous = (pl.col("n_files") > 1) | (pl.col("n_names") > 1) | is_taken
    key = pl.when(~pl.col("is_ambiguous")).then("key")
    return met.with_columns(is_ambiguous=is_ambiguous).select("name", key, "is_ambiguous")


def _ends(rows: pl.DataFrame, length: int, form: str) -> pl.DataFrame:
    """Return the rows that have so many parts, with the last of them as ``end``."""
    end = pl.col(form).str.extract(rf"((?:[^/]+/){{{length - 1}}}[^/]+)$")
    return rows.with_columns(end=end).drop_nulls("end")


def read_lengths(paths: Sequence[Path], meter: Meter) -> pl.Series:
    """Read from headers how many seconds sound files are long; null where that is not told."""
    lengths: list[float | None] = []
    with ThreadPoolExecutor(max_workers=8) as pool:  # waits for disks, not for the processor
        for seconds in pool.map(duration_seconds, paths):
            lengths.append(seconds)
            meter.advance(1)
    return pl.Series("seconds", lengths, pl.Float64)


def walk_files(root: Path, skip: Path | None = None) -> Iterator[str]:
    """Yield the path of every file under a folder in the order of names, or of ``root`` itself.

    Links to folders are followed, each folder is entered once, and ``skip`` is not entered.
    """
    if not root.is_dir():
        yield str(root.parent.resolve() / root.name)
        return
    root = root.resolve()
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
    """Yield key and place of the wanted sounds in one file, be it a sound or a tar."""

    def is_meant(name: str) -> bool:
        member = PurePosixPath(name)
        return member.suffix.lower() in AUDIO_SUFFIXES and is_wanted(member.stem)

    key = os.path.relpath(path, base)
    if is_meant(key):
        access.place(path)
        yield key, path
    elif key.lower().endswith(TAR_SUFFIXES):
        access.place(path)
        for member, content in read_members(path, is_meant, tally):
            place = PurePosixPath(AUDIO_FOLDER, key, member)
            unpack(work / place, content, tally)
            yield str(PurePosixPath(key, member)), str(place)


def _is_no_fork(name: str) -> bool:
    return not name.startswith(_FORK)


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
