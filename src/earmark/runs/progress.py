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

FOUND, RESUMED = "found", "resumed"
"""Notes on work that an earlier run did: it is done, and tells nothing of how fast this one is."""


class Meter(Protocol):
    """The progress of one job."""

    def advance(self, n_done: int, note: str = "") -> None:
        """Add finished units of work and show a short note (a loss, a count).

        The notes FOUND and RESUMED say that an earlier run did them.
        """


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
        if note in (FOUND, RESUMED):  # a speed is measured from here on
            n_before = self._display.tasks[self._display.task_ids.index(self._task)].completed
            self._display.reset(self._task, completed=int(n_before) + n_done)
            n_done = 0
        self._display.update(self._task, advance=n_done, note=note)


class _Rate(bars.ProgressColumn):
    """Units per second, such as ``312 clips/s``."""

    def render(self, task: bars.Task) -> str:
        speed = task.finished_speed or task.speed
        return f"{speed:,.0f} {task.fields['unit']}/s" if speed else ""


_LEAST_SECONDS = 1e-3
"""Below, what a task did is told all at once, and how quickly is not known."""


class _LineMeter:
    def __init__(self, console: Console, label: str, n_total: int, unit: str) -> None:
        self._console, self._label, self._n_total, self._unit = console, label, n_total, unit
        self._n_done = self._n_before = 0
        self._start = self._last_line = time.monotonic()

    def advance(self, n_done: int, note: str = "") -> None:
        self._n_done += n_done
        self._n_before += n_done if note in (FOUND, RESUMED) else 0
        now = time.monotonic()
        is_finished = self._n_done >= self._n_total
        if is_finished or now - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._print(now - self._start, note)

    def _print(self, seconds: float, note: str) -> None:
        parts = [f"  {self._label}: {self._n_done:,}/{self._n_total:,} {self._unit}"]
        n_own, n_left = self._n_done - self._n_before, self._n_total - self._n_done
        if n_own and seconds > _LEAST_SECONDS:
            rate = n_own / seconds
            timing = f"{_duration(n_left / rate)} left" if n_left > 0 else _duration(seconds)
            parts += [f"{rate:,.{0 if rate >= 10 else 1}f}/s", f"{timing} {note}".rstrip()]
        elif note:
            parts.append(note)
        self._console.print(", ".join(parts), highlight=False, soft_wrap=True)


def _duration(seconds: float) -> str:
    """Return a duration in words, as exact as anyone needs.

    >>> _duration(90), _duration(600), _duration(9000)
    ('90 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


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
