"""Tasks for engines, and a display that counts what they say."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path

from earmark.compute import Meter, engine
from earmark.errors import EarmarkError


def square(number: int, meter: Meter) -> tuple[int, str]:
    meter.advance(1, "done")
    return number**2, os.environ.get("OMP_NUM_THREADS", "")


def fail(number: int, meter: Meter) -> None:
    raise EarmarkError(f"task {number} cannot go on")


def ignore_the_end(number: int, meter: Meter) -> None:
    """Fail, or hang while nothing but SIGKILL helps."""
    if number == 0:
        time.sleep(1)  # the other one is deaf by then
        fail(number, meter)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def die(number: int, meter: Meter) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_reporting(number: int, meter: Meter) -> None:
    """Write the head of a report, and no more."""
    os.write(engine._reports._writer.fileno(), struct.pack("!i", 1_000) + b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def note_and_wait(folder: Path, number: int, meter: Meter) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(600)


class Counter:
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        counter = self

        class CountingMeter:
            def advance(self, n_done: int, note: str = "") -> None:
                counter.done[label] = counter.done.get(label, 0) + n_done

        return CountingMeter()
