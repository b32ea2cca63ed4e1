"""Files that lie elsewhere, in an object store or on a server, and are named by a URL.

Whatever fsspec knows will do: ``s3://``, ``gs://`` (with gcsfs installed), ``https://``. Keys and
endpoints come from where those libraries look for them, such as the environment.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from earmark.errors import EarmarkError, load_library

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(name: str | Path) -> bool:
    """Tell whether a file is named by a URL rather than a path.

    >>> is_url("s3://bucket/a.flac"), is_url("audio/a.flac"), is_url("C:/a.flac")
    (True, False, False)
    """
    return isinstance(name, str) and URL.match(name) is not None


def place_of(root: Path, name: str) -> str | Path:
    """Return where a file is: URLs stand for themselves, relative paths start at ``root``.

    >>> str(place_of(Path("work"), "file:///data/a.flac"))
    '/data/a.flac'
    """
    if name.lower().startswith("file://"):
        return Path(name[len("file://") :])
    return name if is_url(name) else root / name


@contextmanager
def local_copy(place: str | Path) -> Iterator[Path]:
    """Yield a path at which a file can be read, for as long as the context lasts.

    A path is yielded as it is; what a URL names is fetched whole and removed afterwards. A file
    that is not there raises FileNotFoundError, one that may not be read PermissionError; any other
    trouble is the connection's, and an EarmarkError.
    """
    if not is_url(place):
        yield Path(place)
        return
    url = str(place)
    with tempfile.TemporaryDirectory(prefix="earmark-") as folder:
        path = Path(folder) / f"fetched{PurePosixPath(url).suffix}"
        _fetch(url, path)
        yield path


def _fetch(url: str, path: Path) -> None:
    fsspec = load_library("fsspec", f"reading {url}", "cluster")
    try:
        files, name = fsspec.core.url_to_fs(url)
        files.get_file(name, str(path))
    except (FileNotFoundError, PermissionError) as error:
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EACCES
        raise OSError(number, os.strerror(number), url) from error  # the one or the other again
    except Exception as error:
        # Each of fsspec's libraries has exceptions of its own; what they share is the remedy.
        raise EarmarkError(
            f"{url} cannot be fetched ({type(error).__name__}: {error}); is the store reachable "
            "from this machine, with its keys set? Then run the same command again to go on"
        ) from error
