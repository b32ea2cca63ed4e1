"""A meter that remembers what it is told, and may do something after so many units."""

from __future__ import annotations

from collections.abc import Callable


class CountingMeter:
    """Counts units, keeps jobs and notes; calls ``act`` once ``after`` units are done."""

    def __init__(self, after: int | None = None, act: Callable[[], object] = lambda: None) -> None:
        self.jobs: list[tuple[object, ...]] = []
        self.notes: list[str] = []
        self.n_done, self.after, self.act = 0, after, act

    def job(self, *job: object) -> CountingMeter:
        """Begin a job, which this meter counts too."""
        self.jobs.append(job)
        return self

    def advance(self, n_done: int, note: str = "") -> None:
        """Count."""
        self.n_done += n_done
        self.notes.append(note)
        if self.after is not None and self.n_done >= self.after:
            self.after = None
            self.act()
