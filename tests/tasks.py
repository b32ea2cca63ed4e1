"""Tasks for engines, and a display that counts what they say."""

from __future__ import annotations

import os

from earmark.errors import EarmarkError
from earmark.runs.progress import Meter


def square(number: int, meter: Meter) -> tuple[int, str]:
    meter.advance(1, "done")
    return number**2, os.environ.get("OMP_NUM_THREADS", "")


def fail(number: int, meter: Meter) -> None:
    raise EarmarkError(f"task {number} cannot go on")


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
