"""Parquet files from elsewhere, tried in a process of their own before they are read here.

Polars cannot do it alone: over damaged pages it asks for 2^61 bytes and ends its process with no
error that could be caught, and a file of kilobytes may unpack to more than there is memory.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from earmark.errors import EarmarkError
from earmark.memory import OutOfMemory, available_memory, format_bytes

_LEAST_LIMIT, _MOST_GROWN = 2**29, 1_000
"""Bytes that are never too much, and how many times its size a file may grow in memory."""

_COPIES = 4
"""How many times the memory of its values reading a file takes at most."""

_SECONDS, _BYTES_A_SECOND = 60, 5_000_000
"""How long a trial may last: a fraction of a second and 200 MB/s are usual."""

_TRIAL = """
import os, resource, sys
import polars as pl
path, limit, memory, n_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), 0
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
# Polars' threads are started first: where they find no memory, it waits for them for ever.
pl.LazyFrame({"a": [1]}).map_batches(lambda rows: rows, streamable=True).collect(engine="streaming")
if sys.platform == "linux":
    with open("/proc/self/statm") as file:
        memory += int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
print("started", flush=True)
def count(rows):
    global n_bytes
    n_bytes += rows.estimated_size()
    if n_bytes > limit:
        print(n_bytes, flush=True)
        os._exit(0)
    return rows.clear()
pl.scan_parquet(path, glob=False).map_batches(count, streamable=True).collect(engine="streaming")
print(n_bytes)
"""


def check_parquet(path: Path) -> int:
    """Refuse a file that would end the process or fill the memory; return its bytes in memory.

    Other damage is left to whoever reads it, and the file counts as 0 bytes.
    """
    status = path.stat()
    return _try(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=10_000)
def _try(path: Path, n_on_disk: int, mtime_ns: int) -> int:
    del mtime_ns  # a file that was changed is tried again
    limit = max(_LEAST_LIMIT, n_on_disk * _MOST_GROWN)
    available = available_memory()
    memory = min(_COPIES * limit, available[0] if available else _COPIES * limit)
    out_of_memory = OutOfMemory(
        f"out of memory (trying {path} in a process of its own): {format_bytes(memory)} is left; "
        "free some, or take a machine with more memory"
    )
    if memory < _LEAST_LIMIT // 2:  # polars waits for ever for threads that cannot be started
        raise out_of_memory
    # -P: the folder that the command runs in may hold a polars.py.
    command = [sys.executable, "-P", "-c", _TRIAL, str(path.absolute()), str(limit), str(memory)]
    seconds = _SECONDS + n_on_disk / _BYTES_A_SECOND
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise EarmarkError(
            f"{path}: not read as Parquet within {seconds:,.0f} s; damaged, or made to take long? "
            "If this machine is busy, try again"
        ) from None
    started, *counted = done.stdout.split() or [""]
    if counted and int(counted[0]) > limit:
        raise EarmarkError(
            f"{path}: {n_on_disk:,} bytes that unpack to more than {format_bytes(limit)}; damaged, "
            "or made to fill the memory"
        )
    if counted:
        return int(counted[0])
    if not started or (memory < _COPIES * limit and "allocat" in done.stderr):
        raise out_of_memory
    if done.returncode < 0 or "allocat" in done.stderr:
        raise EarmarkError(
            f"{path}: cannot be read as Parquet with {format_bytes(memory)} of memory; damaged, or "
            "made to fill the memory"
        )
    return 0
