"""Processes told apart: on machines that share a disk, over reboots, and by reused numbers.

A process is known by its machine, its number there, and the tick of the kernel at which it began,
which no change of the clock moves. So a name that was written down tells later whether the process
is gone. Of another machine's nobody knows.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process: ``place`` is its machine, ``born`` when it began, as that machine counts."""

    place: str
    number: int
    born: str

    @classmethod
    def here(cls) -> Process:
        """Return this process."""
        return cls(_place(), os.getpid(), _born(os.getpid()))

    @classmethod
    def named(cls, name: str) -> Process | None:
        """Return the process that a name stands for; None where it is no such name."""
        found = re.fullmatch(r"([0-9a-f]{8})-([0-9]{1,10})-([0-9a-z]+)", name)
        return None if found is None else cls(found[1], int(found[2]), found[3])

    def __str__(self) -> str:
        """Return the name, which may be part of a file's."""
        return f"{self.place}-{self.number}-{self.born}"

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, on this machine, where its number means something."""
        return self.place == _place()

    @property
    def is_dead(self) -> bool:
        """Whether it is known to be gone."""
        return self.is_here and _born(self.number) != self.born


@cache
def _place() -> str:
    """Identify this machine, and the numbers of processes that count here: containers have own."""
    told = [socket.gethostname(), _read(Path("/etc/machine-id"))]
    try:
        told.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        told.append("")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]


def _born(number: int) -> str:
    """Return the boot and the tick at which a process began; empty where there is none."""
    try:
        told = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return "" if told[0] in "ZX" else f"{_boot()}{int(told[19])}"
    except (OSError, ValueError, IndexError):
        return "alive" if not Path("/proc/self").exists() and _is_alive(number) else ""


@cache
def _boot() -> str:
    told = _read(Path("/proc/sys/kernel/random/boot_id"))
    return hashlib.sha256(told.encode()).hexdigest()[:6]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _is_alive(number: int) -> bool:
    """Tell whether a process runs, where there is no /proc."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
