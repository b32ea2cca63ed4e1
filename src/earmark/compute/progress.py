"""Progress of long jobs, shown by rich: how much is done, and how much time is left.

Stages take a :class:`Progress` and know nothing of terminals. A :class:`Display` draws bars on a
terminal, and prints a line now and then elsewhere (a log file, CI, a notebook).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol, Self

from rich import progress as bars
from rich.console import Console
from rich.table import Column
from rich.text import Text

from earmark.text import printable

_FIRST_LINE_SECONDS, _LINE_GROWTH = 15.0, 1.5
"""When a log gets the first line of a job, and how much later each next one comes: a job of a day
has twenty-odd lines."""
_SURE_SECONDS, _SURE_SHARE = 3.0, 0.03
"""Time left is estimated after so many seconds of work, or after this share of the job."""
_LEAST_SECONDS = 1e-3
"""Below this, nothing is said of speed."""

FOUND, RESUMED = "found", "resumed"
"""Notes on work that an earlier run did: it counts as done, but not for the speed of this run."""

_is_hidden: ContextVar[bool] = ContextVar("is_hidden", default=False)


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


class Display:
    """Progress: bars on a terminal, lines on standard error elsewhere.

    Use it as a context manager around the work.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, force_jupyter=False)
        self._is_terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        longest_note = max(self._console.width - 70, 10)  # so that 80 columns hold all
        label, note = (
            Column(no_wrap=True, overflow="ellipsis", max_width=width)
            for width in (20, longest_note)
        )
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}", markup=False, table_column=label),
            bars.BarColumn(None, table_column=Column(max_width=24)),
            bars.TextColumn("{task.fields[count]}", markup=False),
            bars.TextColumn("{task.fields[timing]}", markup=False),
            bars.TextColumn("{task.fields[note]}", markup=False, table_column=note),
            console=self._console,
            redirect_stdout=sys.stdout.isatty(),
        )

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        """Start showing a job."""
        if _is_hidden.get():
            return _SilentMeter()
        job = _Job(self._show, printable(label), n_total, printable(unit))
        job.task = self._bars.add_task(
            job.label, total=n_total, count=job.count, timing="", note=""
        )
        return job

    def __enter__(self) -> Self:
        if self._is_terminal and not _is_hidden.get():
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars.live.is_started:
            self._bars.stop()

    def _show(self, job: _Job) -> None:
        if job.task not in self._bars.task_ids:  # finished before
            return
        self._bars.update(
            job.task, completed=job.n_done, count=job.count, timing=job.timing, note=job.note
        )
        if job.is_finished:
            self._bars.remove_task(job.task)
            self._print(job)
        elif not self._is_terminal and job.last > job.next_line:
            self._print(job)

    def _print(self, job: _Job) -> None:
        job.next_line = job.start + _LINE_GROWTH * (job.last - job.start)
        # No markup: users' names may have brackets in them. Terminals cut a line, logs keep it all.
        line = Text(f"  {job.line}", no_wrap=True, overflow="ellipsis")
        self._console.print(line, soft_wrap=not self._is_terminal)


class _Job:
    """The meter of one job: how much is done, how fast, and how long the rest will take."""

    def __init__(self, show: Callable[[_Job], None], label: str, n_total: int, unit: str) -> None:
        self.label, self.n_total, self.unit, self.note = label, n_total, unit, ""
        self.n_done = self._n_new = self._n_first = 0
        self.start = self.last = self._first_at = time.monotonic()
        self.next_line = self.start + _FIRST_LINE_SECONDS
        self.task = bars.TaskID(-1)
        self._show = show

    def advance(self, n_done: int, note: str = "") -> None:
        self.last, self.note = time.monotonic(), printable(note)
        self.n_done += n_done
        if n_done and note not in (FOUND, RESUMED):
            if not self._n_new:  # until here the work was starting up
                self._n_first, self._first_at = n_done, self.last
            self._n_new += n_done
        self._show(self)

    @property
    def is_finished(self) -> bool:
        return self.n_done >= self.n_total

    @property
    def count(self) -> str:
        return f"{self.n_done:,}/{self.n_total:,} {self.unit}"

    @property
    def timing(self) -> str:
        """Time left, or the time that a finished job took; empty while neither is known."""
        if not self._n_new:
            return ""
        if self.is_finished:
            seconds = self.last - self.start
            return _duration(seconds) if seconds > _LEAST_SECONDS else ""
        n_left = self.n_total - self.n_done
        is_sure = self.last - self._first_at >= _SURE_SECONDS or self._n_new >= _SURE_SHARE * (
            self._n_new + n_left
        )
        rate = self._rate
        return f"{_duration(n_left / rate)} left" if rate and is_sure else ""

    @property
    def line(self) -> str:
        """All of it in one line."""
        rate = self._rate
        speed = f"{rate:,.{0 if rate >= 10 else 1}f}/s" if rate else ""
        return ", ".join(
            filter(None, [f"{self.label}: {self.count}", speed, self.timing, self.note])
        )

    @property
    def _rate(self) -> float:
        """Units a second, without the start-up where that is known; 0 before it is measurable."""
        n_done, since = self._n_new, self.start
        if self._n_new > self._n_first and self.last - self._first_at > _LEAST_SECONDS:
            n_done, since = self._n_new - self._n_first, self._first_at
        return n_done / (self.last - since) if self.last - since > _LEAST_SECONDS else 0.0


def _duration(seconds: float) -> str:
    """Return a duration in words, rounded.

    >>> _duration(90), _duration(600), _duration(9000)
    ('90 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """Yield the progress given; None shows it on standard error while the work lasts."""
    if progress is not None:
        yield progress
        return
    with Display() as display:
        yield display


@contextmanager
def hide_progress() -> Iterator[None]:
    """Have displays show nothing for a while: programs that read JSON want no bars."""
    token = _is_hidden.set(True)
    try:
        yield
    finally:
        _is_hidden.reset(token)
