"""What a cell of an audio column may open, and how it is opened.

Tables come from strangers. A cell names a file below a folder that the user named, links resolved,
or, where the user allowed it, an address of ``https://``, ``s3://`` or ``gs://`` (with gcsfs
installed). Nothing else reaches fsspec: its other schemes and its chains (``::``) read any file,
and some of them run code. Keys and endpoints come from where those libraries look for them, such as
the environment.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from earmark.errors import EarmarkError, load_library
from earmark.memory import is_memory_error

SCHEMES = ("https", "s3", "gs")
"""The schemes of addresses that are fetched."""


_MOST_FETCHED = 20 * 10**9
"""Bytes of one file: a day of sound as WAV, in stereo. A server may send without end."""


class UnreadableAudio(EarmarkError):  # noqa: N818 - named for what it is, like the quarantine
    """A sound file, or the asked part of it, cannot be used; ``reason`` says why."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class AudioAccess:
    """The files that cells of an audio column may name.

    Relative paths start at ``base``. Files lie below ``base`` or one of ``folders``, wherever
    links lead; addresses are allowed where ``is_remote`` says so.
    """

    base: Path
    folders: tuple[Path, ...] = ()
    is_remote: bool = False

    def place(self, audio: str) -> str | Path:
        """Return the path or the address that a cell may open; else raise UnreadableAudio."""
        checked = self._checked(audio)
        return checked if is_url(audio) else Path(checked)

    def _checked(self, audio: str) -> str:
        if is_url(audio):
            _check_url(audio)
            if not self.is_remote:
                raise UnreadableAudio(
                    audio,
                    "on another machine, and nothing is fetched from there unless it was imported "
                    "with --remote",
                )
            return audio
        path = os.path.join(self.base, audio)
        real = self._real_path(path)
        if not f"{real}/".startswith(self._prefixes):
            raise UnreadableAudio(
                audio,
                f"lies outside {', '.join(map(str, self.folders or (self.base,)))}, the folders "
                f"that sound may be read from; if it is meant, import it with --allow "
                f"{os.path.dirname(real)}",
            )
        return path

    def find_all(self, cells: Iterable[str | None], at: Callable[[int], str]) -> list[str | None]:
        """Return addresses as they are and the absolute paths of files; None where no file is.

        A cell that may not be opened is refused; ``at`` says where the cell of a number is.
        """
        found: list[str | None] = []
        for number, audio in enumerate(cells):
            is_there = audio and (is_url(audio) or os.path.isfile(os.path.join(self.base, audio)))
            try:
                found.append(self._checked(audio) if audio and is_there else None)
            except UnreadableAudio as error:
                raise EarmarkError(
                    f"{at(number)}: {error}; to leave all sound out, --column audio=-"
                ) from None
        return found

    def _real_path(self, path: str) -> str:
        """Return where a path leads, links resolved; the files of one folder resolve it once."""
        folder, name = os.path.split(path)
        try:
            if name in ("", ".", ".."):
                return os.path.realpath(path)
            if folder not in self._real_folders:
                self._real_folders[folder] = os.path.realpath(folder)
            real = os.path.join(self._real_folders[folder], name)
            return os.path.realpath(real) if os.path.islink(real) else real
        except (OSError, ValueError) as error:  # a NUL in it
            raise UnreadableAudio(path, f"not the path of a file ({error})") from None

    @cached_property
    def _real_folders(self) -> dict[str, str]:
        return {}

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        folders = (self.base, *self.folders)
        return tuple(f"{os.path.realpath(folder).rstrip('/')}/" for folder in folders)


def is_url(name: str | Path) -> bool:
    """Tell whether a file is named by a URL, of whatever scheme, rather than a path.

    >>> is_url("s3://bucket/a.flac"), is_url("audio/a.flac"), is_url("C:/a.flac")
    (True, False, False)
    """
    return isinstance(name, str) and "://" in name


@contextmanager
def local_copy(place: str | Path) -> Iterator[Path]:
    """Yield a path at which a file can be read, for as long as the context lasts.

    A path is yielded as it is; what a URL names is fetched whole and removed afterwards. A URL
    that may not be opened, leads to no file or cannot be reached raises UnreadableAudio.
    """
    if not is_url(place):
        yield Path(place)
        return
    url = str(place)
    _check_url(url)
    with tempfile.TemporaryDirectory(prefix="earmark-") as folder:
        path = Path(folder) / f"fetched{PurePosixPath(url).suffix[:9]}"
        _fetch(url, path)
        yield path


def _check_url(url: str) -> None:
    if "::" in url or url.partition("://")[0].lower() not in SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise UnreadableAudio(
            url, f"expected the path of a file, or an address of {schemes} without '::'"
        )


def _fetch(url: str, path: Path) -> None:
    fsspec = load_library("fsspec", f"reading {url}", "cluster")
    try:
        files, name = fsspec.core.url_to_fs(url)
        files.get_file(name, str(path), callback=_limited(fsspec, url))
    except UnreadableAudio:
        raise
    except (FileNotFoundError, PermissionError) as error:
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EACCES
        raise UnreadableAudio(url, os.strerror(number).lower()) from error
    except Exception as error:
        if is_memory_error(error) or getattr(error, "errno", None) == errno.ENOSPC:
            raise  # trouble of this machine, not of the file
        # Each of fsspec's libraries has exceptions of its own; what they share is the remedy.
        raise UnreadableAudio(
            url,
            f"cannot be fetched ({type(error).__name__}: {error}); is the store reachable from "
            "this machine, with its keys set? The same command tries again",
        ) from error


def _limited(fsspec: Any, url: str) -> Any:
    """Return what fsspec tells how many bytes it has; it ends a fetch that has too many."""
    counted = fsspec.Callback()

    def check(size: int | None, value: int, **_: object) -> None:
        if max(size or 0, value) > _MOST_FETCHED:
            raise UnreadableAudio(url, f"longer than {_MOST_FETCHED:,} bytes, the most of a file")

    counted.hooks["limit"] = check
    return counted
