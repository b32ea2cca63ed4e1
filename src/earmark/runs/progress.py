"""Progress of long jobs: how far, how fast, how long still.

Stages take a :class:`Progress` and know nothing of terminals. On a terminal it draws rich's bars,
in a notebook one short block that is written over; elsewhere (a log file, CI) it prints a line now
and then.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self

from rich import progress as bars
from rich.console import Console

from earmark.errors import counted

_FIRST_LINE_SECONDS, _GROWTH = 15.0, 1.5
"""When a log is told of a job for the first time, and how much longer each time after that: a job
of a day has twenty-odd lines."""
_SECONDS_SHOWN = 0.3
"""How long the block of a notebook stays as it is, at least."""
_N_FINISHED = 5
"""Finished jobs that the block of a notebook lists."""

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


class _Job:
    """How much of a job is done, and since when."""

    def __init__(self, label: str, n_total: int, unit: str) -> None:
        self.label, self.n_total, self.unit = label, n_total, unit
        self.n_done = self.n_before = 0
        self.note = ""
        self.start = self.last = time.monotonic()

    @property
    def is_finished(self) -> bool:
        return self.n_done >= self.n_total

    def advance(self, n_done: int, note: str) -> None:
        self.n_done += n_done
        self.n_before += n_done if note in (FOUND, RESUMED) else 0
        self.note, self.last = note, time.monotonic()

    @property
    def told(self) -> str:
        """How far it is, how fast it goes, and how long it will still take."""
        seconds = self.last - self.start
        parts = [f"{self.label}: {self.n_done:,}/{self.n_total:,} {self.unit}"]
        n_own, n_left = self.n_done - self.n_before, self.n_total - self.n_done
        if n_own and seconds > _LEAST_SECONDS:
            rate = n_own / seconds
            timing = f"{_duration(n_left / rate)} left" if n_left > 0 else _duration(seconds)
            parts += [f"{rate:,.{0 if rate >= 10 else 1}f}/s", f"{timing} {self.note}".rstrip()]
        elif self.note:
            parts.append(self.note)
        return ", ".join(parts)


class _LineMeter:
    def __init__(self, console: Console, job: _Job) -> None:
        self._console, self._job = console, job
        self._next_line = job.start + _FIRST_LINE_SECONDS

    def advance(self, n_done: int, note: str = "") -> None:
        self._job.advance(n_done, note)
        if self._job.is_finished or self._job.last > self._next_line:
            self._next_line = self._job.start + _GROWTH * (self._job.last - self._job.start)
            # No markup: a name of a user's may have brackets in it.
            told = f"  {self._job.told}"
            self._console.print(told, markup=False, highlight=False, soft_wrap=True)


class _NotebookBlock:
    """One output of a notebook, written over as jobs go on: a bar for each that runs.

    Jobs that were finished long ago are counted, so that the block stays short.
    """

    def __init__(self) -> None:
        self._jobs: list[_Job] = []
        self._handle: Any = None
        self._shown_at = -math.inf

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        self._jobs.append(_Job(label, n_total, unit))
        return _BlockMeter(self, self._jobs[-1])

    def show(self, *, at_once: bool = False) -> None:
        """Write the block over, unless that was done just now."""
        if not self._jobs or not (at_once or time.monotonic() - self._shown_at > _SECONDS_SHOWN):
            return
        self._shown_at = time.monotonic()
        if self._handle is None:
            notebook = import_module("IPython.display")  # there, as only notebooks come here
            self._handle = notebook.display(self, display_id=True)
        else:
            self._handle.update(self)

    def _repr_html_(self) -> str:
        lines = [*map(escape, self._earlier()), *map(_bar_html, self._listed())]
        return f"<div>{'<br>'.join(lines)}</div>"

    def __repr__(self) -> str:
        return "\n".join([*self._earlier(), *(job.told for job in self._listed())])

    def _listed(self) -> list[_Job]:
        is_old = {id(job) for job in [job for job in self._jobs if job.is_finished][:-_N_FINISHED]}
        return [job for job in self._jobs if id(job) not in is_old]

    def _earlier(self) -> list[str]:
        n_earlier = len(self._jobs) - len(self._listed())
        return [f"{counted(n_earlier, 'job')} done before"] if n_earlier else []


class _BlockMeter:
    def __init__(self, block: _NotebookBlock, job: _Job) -> None:
        self._block, self._job = block, job

    def advance(self, n_done: int, note: str = "") -> None:
        self._job.advance(n_done, note)
        self._block.show()


def _bar_html(job: _Job) -> str:
    bar = f'<progress value="{job.n_done}" max="{job.n_total}"></progress> '
    return ("" if job.is_finished else bar) + escape(job.told)


def _duration(seconds: float) -> str:
    """Return a duration in words, as exact as anyone needs.

    >>> _duration(90), _duration(600), _duration(9000)
    ('90 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Display:
    """Progress: bars on a terminal, a block in a notebook, lines on standard error elsewhere.

    Use it as a context manager around the work.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        self._bars: bars.Progress | None = None
        self._block = _NotebookBlock() if self._console.is_jupyter else None
        if self._console.is_terminal and self._block is None:
            self._bars = bars.Progress(
                bars.TextColumn("{task.description}", markup=False),
                bars.BarColumn(bar_width=24),
                bars.MofNCompleteColumn(),
                _Rate(),
                bars.TimeRemainingColumn(elapsed_when_finished=True),
                bars.TextColumn("{task.fields[note]}", markup=False),
                console=self._console,
            )

    def job(self, label: str, n_total: int, unit: str) -> Meter:
        """Start showing a job."""
        if self._block is not None:
            return self._block.job(label, n_total, unit)
        if self._bars is None:
            return _LineMeter(self._console, _Job(label, n_total, unit))
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
        if self._block is not None:
            self._block.show(at_once=True)


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """Yield the progress given; None shows it on standard error while the work lasts."""
    if progress is not None:
        yield progress
        return
    with Display() as display:
        yield display
