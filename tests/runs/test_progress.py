from __future__ import annotations

import io

import pytest
from rich.console import Console

from earmark.runs import progress as own
from earmark.runs.progress import FOUND, RESUMED, SILENT, Display


def test_without_a_terminal_the_end_of_a_job_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Display() as progress:
        meter = progress.job("features", 10, "clips")
        meter.advance(4)
        meter.advance(6, "2 quarantined")
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    for words in ("features", "10/10 clips", "2 quarantined"):
        assert words in told


def test_silence_is_the_default() -> None:
    SILENT.job("train", 3, "steps").advance(1, "loss 0.1")


class Clock:
    """Time that passes when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(own.time, "monotonic", lambda: self.now)


@pytest.mark.parametrize("note", [FOUND, RESUMED])
def test_time_left_is_estimated_from_the_work_of_this_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    clock = Clock(monkeypatch)
    with Display() as progress:
        meter = progress.job("features", 10_000, "clips")
        meter.advance(9_000, note)
        clock.now += 20
        meter.advance(100)
        clock.now += 180
        meter.advance(900)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "  features: 9,100/10,000 clips, 5.0/s, 3 min left"
    assert last == "  features: 10,000/10,000 clips, 5.0/s, 3 min"


def test_work_that_was_all_done_before_has_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    with Display() as progress:
        progress.job("features", 10, "clips").advance(10, FOUND)
    assert capsys.readouterr().err == "  features: 10/10 clips, found\n"


def test_a_bar_measures_its_speed_after_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(own, "Console", lambda **_: terminal)
    with Display() as progress:
        now = 0.0
        assert progress._bars is not None
        progress._bars.get_time = lambda: now
        meter = progress.job("features", 10_000, "clips")
        meter.advance(9_000, RESUMED)
        for _ in range(20):
            now += 1.0
            meter.advance(5)
        (task,) = progress._bars.tasks
        assert task.completed == 9_100
        assert task.speed == pytest.approx(5, rel=0.1)
        assert task.time_remaining == pytest.approx(180, rel=0.1)
