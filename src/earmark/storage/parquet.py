"""Parquet and Arrow files from elsewhere, tried in another process before they are read here.

Polars cannot do it alone: over damaged pages it asks for 2^61 bytes and ends its process with no
error that could be caught, and a file of kilobytes may unpack to more than there is memory. One
process tries file after file; one that a file has ended is replaced.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import selectors
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from earmark.errors import EarmarkError
from earmark.memory import OutOfMemory, available_memory, format_bytes

_LEAST_LIMIT, _MOST_GROWN = 2**29, 1_000
"""Bytes that are never too much, and how many times its size a file may grow in memory."""

_COPIES = 4
"""How many times the memory of its values reading a file takes at most."""

_SECONDS, _BYTES_A_SECOND = 60, 5_000_000
"""How long a trial may last: a fraction of a second and 200 MB/s are usual."""

_TRIALS = """
import json, os, resource, select, sys
import polars as pl
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
# Polars' threads are started first: where they find no memory, it waits for them for ever.
pl.LazyFrame({"a": [1]}).map_batches(lambda rows: rows, streamable=True).collect(engine="streaming")
print("started", flush=True)
_, most = resource.getrlimit(resource.RLIMIT_DATA)
while select.select([sys.stdin], [], [], 30)[0] and (line := sys.stdin.readline()):
    path, limit, memory = json.loads(line)
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            memory += int(file.read().split()[5]) * resource.getpagesize()
        limited = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limited, most))
    n_bytes = 0
    def count(rows):
        global n_bytes
        n_bytes += rows.estimated_size()
        if n_bytes > limit:
            print(n_bytes, flush=True)
            os._exit(0)
        return rows.clear()
    try:
        if path.lower().endswith(".arrow"):
            count(pl.read_ipc_stream(path))
        else:
            scanned = pl.scan_parquet(path, glob=False).map_batches(count, streamable=True)
            scanned.collect(engine="streaming")
    except Exception as error:
        if "allocat" in str(error):
            raise
        n_bytes = 0
    print(n_bytes, flush=True)
"""
"""Tries files until nobody has asked for half a minute."""


def check_parquet(path: Path) -> int:
    """Refuse a file that would end the process or fill the memory; return its bytes in memory.

    A file called ``.arrow`` is a stream of Arrow, any other is Parquet. Other damage is left to
    whoever reads it, and the file counts as 0 bytes.
    """
    status = path.stat()
    return _try(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=10_000)
def _try(path: Path, n_on_disk: int, mtime_ns: int) -> int:
    del mtime_ns  # a file that was changed is tried again
    kind = "Arrow" if path.suffix.lower() == ".arrow" else "Parquet"
    limit = max(_LEAST_LIMIT, n_on_disk * _MOST_GROWN)
    available = available_memory()
    memory = min(_COPIES * limit, available[0] if available else _COPIES * limit)
    out_of_memory = OutOfMemory(
        f"out of memory (trying {path} in a process of its own): {format_bytes(memory)} is left; "
        "free some, or take a machine with more memory"
    )
    if memory < _LEAST_LIMIT // 2:  # polars waits for ever for threads that cannot be started
        raise out_of_memory
    seconds = _SECONDS + n_on_disk / _BYTES_A_SECOND
    try:
        trial = _Trials.here().ask([str(path.absolute()), limit, memory], seconds)
    except MemoryError:
        raise out_of_memory from None
    except TimeoutError:
        raise EarmarkError(
            f"{path}: not read as {kind} within {seconds:,.0f} s; damaged, or made to take long? "
            "If this machine is busy, try again"
        ) from None
    if isinstance(trial, int) and trial > limit:
        raise EarmarkError(
            f"{path}: {n_on_disk:,} bytes that unpack to more than {format_bytes(limit)}; damaged, "
            "or made to fill the memory"
        )
    if isinstance(trial, int):
        return trial
    if memory < _COPIES * limit and "allocat" in trial:
        raise out_of_memory
    raise EarmarkError(
        f"{path}: cannot be read as {kind} with {format_bytes(memory)} of memory; damaged, or "
        "made to fill the memory"
    )


class _Trials:
    """The process that tries files for this one; see :data:`_TRIALS`."""

    _here: _Trials | None = None

    def __init__(self) -> None:
        self._lock, self._of = threading.Lock(), os.getpid()
        self._process: subprocess.Popen[str] | None = None
        atexit.register(self._end)

    @classmethod
    def here(cls) -> _Trials:
        """Return those of this process, which those of the process that forked it are not."""
        if cls._here is None or cls._here._of != os.getpid():
            cls._here = cls()
        return cls._here

    def ask(self, request: object, seconds: float) -> int | str:
        """Return a file's bytes in memory, or what the process said that the file has ended.

        Raise TimeoutError if it says nothing for so many seconds, and MemoryError if it cannot
        even start.
        """
        with self._lock:
            try:
                while True:
                    process = self._started(seconds)
                    assert process.stdin is not None
                    with suppress(BrokenPipeError):
                        print(json.dumps(request), file=process.stdin, flush=True)
                    if answer := _read_line(process, seconds):
                        return int(answer)
                    said = self._end(patience_seconds=5)
                    if process.returncode:  # else it had just gone, as nobody had asked
                        return said
            except BaseException:
                self._end()
                raise

    def _started(self, seconds: float) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        # -P: the folder that the command runs in may hold a polars.py.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _TRIALS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not _read_line(self._process, seconds):
            raise MemoryError
        return self._process

    def _end(self, patience_seconds: float = 0) -> str:
        """End the process, if there is one of this one; return what it said."""
        process, self._process = self._process, None
        if process is None or self._of != os.getpid():
            return ""
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_seconds)
        process.kill()
        return process.communicate()[1]


def _read_line(process: subprocess.Popen[str], seconds: float) -> str:
    """Return the next line that a process prints; none at its end."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(seconds):
            raise TimeoutError
    return process.stdout.readline().strip()
