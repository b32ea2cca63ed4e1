"""Progress of long jobs: how far, how fast, how long still.

Stages take a :class:`Progress` and know nothing of terminals. On a terminal it draws rich's bars;
elsewhere (a log file, CI) it prints a line now and then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

from rich import progress as bars
from rich.console import Console

_SECONDS_BETWEEN_LINES = 15.0


class Meter(Protocol):
    """The progress of one job."""

    def advance(self, n_done: int, note: str = "") -> None:
        """Add finished units of work and show a short note (a loss, a count)."""


class Progress(Protocol):
    """Where stages announce their jobs."""

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        """Start showing a job of ``n_total`` units, such as clips or steps."""


class _SilentMeter:
    def advance(self, n_done: int, note: str = "") -> None:
        pass


class Silent:
    """Show nothing: the default of everything below the stages."""

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        """Return a meter that shows nothing."""
        del label, n_total, unit
        return _SilentMeter()


SILENT = Silent()


class AsOneJob:
    """Show the progress of many small tasks on one meter, which counts the units of all."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        """Return the one meter."""
        del label, n_total, unit
        return self._meter


class _BarMeter:
    def __init__(self, display: bars.Progress, task: bars.TaskID) -> None:
        self._display, self._task = display, task

    def advance(self, n_done: int, note: str = "") -> None:
        self._display.update(self._task, advance=n_done, note=note)


class _Rate(bars.ProgressColumn):
    """Units per second, such as ``312 clips/s``."""

    def render(self, task: bars.Task) -> str:
        speed = task.finished_speed or task.speed
        return f"{speed:,.0f} {task.fields['unit']}/s" if speed else ""


class _LineMeter:
    def __init__(self, console: Console, label: str, n_total: int, unit: str) -> None:
        self._console, self._label, self._n_total, self._unit = console, label, n_total, unit
        self._n_done = 0
        self._start = self._last_line = time.monotonic()

    def advance(self, n_done: int, note: str = "") -> None:
        self._n_done += n_done
        now = time.monotonic()
        is_finished = self._n_done >= self._n_total
        if is_finished or now - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._print(now - self._start, note)

    def _print(self, seconds: float, note: str) -> None:
        rate = self._n_done / max(seconds, 1e-9)
        left = (self._n_total - self._n_done) / max(rate, 1e-9)
        timing = f"{seconds:.0f} s" if left <= 0 else f"{left:.0f} s left"
        self._console.print(
            f"  {self._label}: {self._n_done:,}/{self._n_total:,} {self._unit}, "
            f"{rate:,.0f}/s, {timing} {note}".rstrip(),
            highlight=False,
            soft_wrap=True,
        )


class Display:
    """Progress on standard error: bars on a terminal, occasional lines elsewhere.

    Use it as a context manager around the work.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        self._bars: bars.Progress | None = None
        if self._console.is_terminal:
            self._bars = bars.Progress(
                bars.TextColumn("{task.description}"),
                bars.BarColumn(bar_width=24),
                bars.MofNCompleteColumn(),
                _Rate(),
                bars.TimeRemainingColumn(elapsed_when_finished=True),
                bars.TextColumn("{task.fields[note]}"),
                console=self._console,
            )

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        """Start showing a job."""
        if self._bars is None:
            return _LineMeter(self._console, label, n_total, unit)
        task = self._bars.add_task(label, total=n_total, unit=unit, note="")
        return _BarMeter(self._bars, task)

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """Yield the progress given; None shows it on standard error while the work lasts."""
    if progress is not None:
        yield progress
        return
    with Display() as display:
        yield display
