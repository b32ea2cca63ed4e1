"""Where memory runs out, that is said: no file is called damaged, and there is no traceback."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.errors import EarmarkError, reading
from earmark.memory import (
    OutOfMemory,
    available_memory,
    check_memory,
    describe_memory_error,
    find_memory_error,
    is_memory_error,
)

ADVICE = "use fewer --workers, a smaller batch or less data at once"


class OutOfMemoryError(RuntimeError):
    """As torch has it."""


class PanicException(BaseException):
    """As polars has it."""


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (MemoryError(), ""),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), ""),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), "21.0 MB more"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                         "4000000000 bytes. Error code 12"),
            "4.0 GB more",
        ),
        (PanicException("memory allocation of 33554432 bytes failed"), "33.6 MB more"),
        (RuntimeError("can't start new thread"), ""),
        (ImportError("libx.so: failed to map segment from shared object"), ""),
    ],
)  # fmt: skip
def test_libraries_say_in_many_ways_that_memory_ran_out(error: BaseException, asked: str) -> None:
    assert is_memory_error(error)
    with pytest.raises(OutOfMemory) as caught, reading("scores.npy", "scores"):
        raise error
    message = str(caught.value)
    assert message.startswith("out of memory (reading scores.npy)")
    assert asked in message
    assert ADVICE in message
    assert "is left (" in message
    assert "is it damaged" not in message


@pytest.mark.parametrize(
    "error", [ValueError("out of memory"), RuntimeError("odd"), OSError(errno.ENOENT, "no file")]
)
def test_other_errors_are_not_about_memory(error: BaseException) -> None:
    assert not is_memory_error(error)


def test_an_array_says_how_much_it_needed() -> None:
    with pytest.raises(MemoryError) as caught:
        np.zeros((10**6, 10**8))
    message = describe_memory_error(caught.value)
    assert "800.0 TB more was asked for (an array of 1,000,000 x 100,000,000 float64)" in message


def test_a_memory_error_is_found_behind_what_was_made_of_it() -> None:
    def read() -> None:
        try:
            raise MemoryError
        except MemoryError:
            raise EarmarkError("a.npy is damaged: delete it") from None

    with pytest.raises(EarmarkError) as caught:
        read()
    assert isinstance(find_memory_error(caught.value), MemoryError)
    assert find_memory_error(EarmarkError("a.npy is damaged")) is None


def test_work_that_needs_too_much_is_refused_before_it_begins() -> None:
    available = available_memory()
    assert available is not None
    check_memory(available[0] / 2, "scores")
    with pytest.raises(OutOfMemory, match=r"^scores needs .* of memory, and .* is available"):
        check_memory(available[0] * 2, "scores")


def write_inputs(folder: Path) -> list[str]:
    """Write sparse scores of 1.2 GB and labels, and return the command that scans them."""
    shape = 30_000, 10_000
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float32, shape)
    scores[::1000, 0] = 1
    del scores
    clips = [f"clip{i}" for i in range(shape[0])]
    pl.DataFrame({"clip_id": clips}).write_csv(folder / "clips.csv")
    pl.DataFrame({"class_id": [f"c{i}" for i in range(shape[1])]}).write_csv(folder / "classes.csv")
    labels = pl.DataFrame({"clip_id": clips[:1000], "class_id": ["c1"] * 1000})
    labels.write_csv(folder / "labels.csv")
    names = {"labels": "labels.csv", "scores": "scores.npy", "clips": "clips.csv"}
    options = [word for name, file in names.items() for word in (f"--{name}", str(folder / file))]
    return [
        "scan",
        *options,
        "--classes",
        str(folder / "classes.csv"),
        "--out",
        str(folder / "out"),
    ]


def run_limited(command: list[str], n_bytes: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "earmark", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "POLARS_MAX_THREADS": "2", "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes)),
    )


@pytest.mark.parametrize(
    ("megabytes", "message"),
    [
        (500, "1.5 GB of address space is needed beside the data, and .* is left"),
        (1_900, r"out of memory \(reading .*scores\.npy, 1\.2 GB\): .* is left"),
    ],
)
def test_a_command_without_memory_ends_with_a_message(
    tmp_path: Path, megabytes: int, message: str
) -> None:
    done = run_limited(write_inputs(tmp_path), megabytes * 1_000_000)
    told = " ".join(done.stderr.split())
    assert done.returncode == 2, told
    assert re.search(message, told), told
    assert "Traceback" not in told
    assert "is it damaged" not in told
    assert not (tmp_path / "out").exists()


LITTLE_LEFT = """
import mmap, resource, sys
import polars as pl
from earmark.memory import available_memory, check_address_space

with open("/proc/self/statm") as file:
    n_bytes = int(file.read().split()[0]) * resource.getpagesize() + 3_000_000_000
resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
check_address_space()
held = []
while available_memory()[0] > 40_000_000:
    held.append(mmap.mmap(-1, 10_000_000))
print(pl.read_parquet(sys.argv[1]).height)
"""
"""As where torch takes nearly all addresses that a limit leaves."""


def test_polars_has_its_threads_before_memory_runs_out(tmp_path: Path) -> None:
    """Without, it waits for them for ever, or ends the process."""
    pl.DataFrame({"a": range(100)}).write_parquet(tmp_path / "a.parquet")
    command = [sys.executable, "-c", LITTLE_LEFT, str(tmp_path / "a.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
