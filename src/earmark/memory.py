"""How much memory is left, and what is said where it runs out.

:class:`OutOfMemory` is a MemoryError and no :class:`~earmark.errors.EarmarkError`: whoever treats
a file that cannot be read as damaged must not treat it so because memory was short.
"""

from __future__ import annotations

import errno
import io
import re
import resource
from collections.abc import Iterator
from pathlib import Path

_ADVICE = (
    "use fewer --workers, a smaller batch or less data at once, raise the limit, or take a machine "
    "with more memory; nothing is damaged, and what is finished is kept"
)

_LEAST_ADDRESS_SPACE = 1_500_000_000
"""Bytes of addresses that Python, numpy and polars with its threads take before any data."""

_SAID = re.compile(
    r"out of memory|can(?:no|')t allocate|(?:failed|unable|not) to (?:allocate|start)|could not "
    r"allocate|not enough memory|bad_alloc|bad allocation|can't start new thread|failed to map "
    r"segment|memory allocation of \d+ bytes",
    re.IGNORECASE,
)
"""What libraries say for want of memory where they do not raise a MemoryError."""

_SIZE = re.compile(
    r"(?:allocate|allocation of|buffer of size)[a-z ]* ([\d.]+) ?(bytes|[KMGTPE]iB)?", re.IGNORECASE
)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class OutOfMemory(MemoryError):  # noqa: N818 - named for what it is, as torch's is
    """Memory ran out, or would: the message says how much is needed and what to do."""


def check_memory(n_bytes: float, purpose: str) -> None:
    """Refuse work that needs more memory than is available; ``purpose`` begins the message."""
    available = available_memory()
    if available is not None and n_bytes > available[0]:
        raise OutOfMemory(
            f"{purpose} needs {format_bytes(n_bytes)} of memory, and {format_bytes(available[0])} "
            f"is available ({available[1]}); {_ADVICE}"
        )


def check_address_space() -> None:
    """Refuse to start where ``ulimit -v`` leaves too little for the libraries alone.

    Below that, polars and OpenBLAS hang or abort, with nothing that could be caught.
    """
    for n_left, limit in _address_space():
        if n_left < _LEAST_ADDRESS_SPACE:
            raise OutOfMemory(
                f"{format_bytes(_LEAST_ADDRESS_SPACE)} of address space is needed beside the data, "
                f"and {format_bytes(n_left)} is left ({limit}); raise it: ulimit -v unlimited"
            )
        _start_threads()


def _start_threads() -> None:
    """Have polars start its threads while there is room: where there is none, it waits for ever."""
    import polars as pl  # only where there is a limit: commands start without it

    file = io.BytesIO()
    pl.DataFrame({"a": [1]}).write_parquet(file)
    file.seek(0)
    pl.read_parquet(file)


def available_memory() -> tuple[int, str] | None:
    """Return the bytes that this process may still take, and what limits them.

    The least of what the machine, its swap included, the address space (``ulimit -v``) and the
    control group (a container, a job of a cluster) leave. None where the system does not say.
    """
    return min([*_machine(), *_address_space(), *_control_groups()], default=None)


def is_memory_error(error: BaseException) -> bool:
    """Tell whether an error says that memory, of the machine or of a GPU, ran out."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    kind = type(error).__name__
    if kind == "OutOfMemoryError":  # torch's
        return True
    may_say = isinstance(error, RuntimeError | ImportError | OSError | SystemError)
    is_foreign = kind in ("PanicException", "ComputeError", "Fail", "RuntimeException")
    return (may_say or is_foreign) and _SAID.search(str(error)) is not None


def find_memory_error(error: BaseException) -> BaseException | None:
    """Return the memory error that an error is, or was raised over; None where there is none."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if is_memory_error(cause):
            return cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def describe_memory_error(error: BaseException, purpose: str = "") -> str:
    """Return what to tell a user of a memory error; ``purpose``: what was done, such as a file."""
    if isinstance(error, OutOfMemory):
        return str(error)
    available = available_memory()
    asked = _asked(error)
    left = "" if available is None else f"{format_bytes(available[0])} is left ({available[1]})"
    during = f" ({purpose})" if purpose else ""
    told = ", ".join(filter(None, (asked, left)))
    return f"out of memory{during}{': ' if told else ''}{told}; {_ADVICE}"


def format_bytes(n_bytes: float) -> str:
    """Return a number of bytes for people.

    >>> format_bytes(2_500_000_000), format_bytes(3_400), format_bytes(0)
    ('2.5 GB', '0.0 MB', '0.0 MB')
    """
    unit, name = next(
        ((unit, name) for unit, name in ((1e12, "TB"), (1e9, "GB")) if n_bytes >= unit),
        (1e6, "MB"),
    )
    return f"{n_bytes / unit:,.1f} {name}"


def _asked(error: BaseException) -> str:
    """Return how much was asked for, where the error says so."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is not None and dtype is not None:  # numpy's
        n_bytes = dtype.itemsize
        for length in shape:
            n_bytes *= length
        sizes = " x ".join(f"{length:,}" for length in shape)
        return f"{format_bytes(n_bytes)} more was asked for (an array of {sizes} {dtype})"
    size = _SIZE.search(str(error))
    if size is None:
        return ""
    power = _UNITS.index(size[2]) if size[2] in _UNITS else 0
    return f"{format_bytes(float(size[1]) * 1024**power)} more was asked for"


def _machine() -> Iterator[tuple[int, str]]:
    lines = _read("/proc/meminfo").splitlines()
    sizes = {name: size for name, _, size in (line.partition(":") for line in lines)}
    if "MemAvailable" in sizes:
        n_kilobytes = sum(
            int(sizes.get(name, "0 kB").split()[0]) for name in ("MemAvailable", "SwapFree")
        )
        yield n_kilobytes * 1024, "all that this machine has left"


def _address_space() -> Iterator[tuple[int, str]]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    n_pages = _read("/proc/self/statm").split()[:1]
    if limit != resource.RLIM_INFINITY and n_pages:
        n_left = limit - int(n_pages[0]) * resource.getpagesize()
        yield max(n_left, 0), f"a limit of {format_bytes(limit)} on the process, ulimit -v"


def _control_groups() -> Iterator[tuple[int, str]]:
    """Yield what each control group that this process is in leaves, of either version."""
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = ("memory.max", "memory.current")
        if controllers:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        root = Path("/sys/fs/cgroup", controllers)
        group = Path(path.lstrip("/"))
        for folder in (root / group, *(root / parent for parent in group.parents)):
            limit, used = (_read(folder / name).strip() for name in names)
            if limit.isdigit() and used.isdigit() and int(limit) < 2**60:
                # Pages of files count as used, but make way.
                cached = re.findall(
                    r"^(?:in)?active_file (\d+)$", _read(folder / "memory.stat"), re.M
                )
                n_left = int(limit) - int(used) + sum(map(int, cached))
                yield max(n_left, 0), f"a limit of {format_bytes(int(limit))} on the container"


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
