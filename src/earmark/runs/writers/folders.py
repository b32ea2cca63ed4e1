"""Folders that appear whole or not at all: made in a scratch folder beside their place."""

from __future__ import annotations

import errno
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.runs.writers.leftovers import (
    EARLIER,
    aside_of,
    put_back,
    sweep_beside,
    swept_told,
)


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """Yield a folder on the same disk as ``out``, and remove it afterwards.

    Those that killed processes left beside it go, too.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if n_swept := sweep_beside(out):
        warnings.warn(f"{out}: {swept_told(n_swept)}", EarmarkWarning, stacklevel=4)
    folder = aside_of(out)
    folder.mkdir()
    try:
        yield folder
    finally:
        put_back(folder)
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(folder: Path, out: Path) -> None:
    """Rename a finished folder of a scratch folder; an earlier one makes way and then goes.

    Between the two renames there is nothing in its place. Whoever ends there finds it put back: by
    the end of :func:`scratch_beside`, or, after a kill, by the next that sweeps.
    """
    earlier = folder.with_name(EARLIER)
    if out.exists():
        earlier.mkdir()
        out.rename(earlier / out.name)
    try:
        folder.rename(out)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise EarmarkError(
            f"{out}: another process has written it meanwhile; nothing of this one is kept"
        ) from None
    if earlier.exists():
        # Half of it must never be taken for the whole, should the new one be moved elsewhere.
        earlier = earlier.rename(earlier.with_name("superseded"))
        shutil.rmtree(earlier, ignore_errors=True)
