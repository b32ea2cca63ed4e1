from __future__ import annotations

import io
import re
import sys

import pytest
from rich.console import Console

from earmark.compute import FOUND, RESUMED, SILENT, Display, hide_progress

progress_module = sys.modules[Display.__module__]


def test_without_a_terminal_the_end_of_a_job_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Display() as progress:
        meter = progress.job("features", 10, "clips")
        meter.advance(4)
        meter.advance(6, "2 quarantined")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    for words in ("features", "10/10 clips", "2 quarantined"):
        assert words in printed


def test_silence_is_the_default() -> None:
    SILENT.job("train", 3, "steps").advance(1, "loss 0.1")


class Clock:
    """Time that passes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(progress_module.time, "monotonic", lambda: self.now)


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


def test_a_slow_start_does_not_spoil_the_estimate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first clip of 303 takes 15 s, in which a network is loaded; all others take 20 s."""
    clock = Clock(monkeypatch)
    with Display() as progress:
        meter = progress.job("features", 303, "clips")
        clock.now += 15.5
        meter.advance(1)
        assert "left" not in capsys.readouterr().err
        clock.now += 8
        meter.advance(121)
    assert capsys.readouterr().err == "  features: 122/303 clips, 15/s, 12 s left\n"


def test_a_log_of_a_long_job_is_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with Display() as progress:
        meter = progress.job("train", 24 * 60 * 60, "steps")
        for _ in range(24 * 60 * 60):
            clock.now += 1
            meter.advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert 20 <= len(lines) <= 25
    assert lines[0] == "  train: 16/86,400 steps, 1.0/s, 24.0 h left"


def test_work_that_was_all_done_before_has_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    with Display() as progress:
        progress.job("features", 10, "clips").advance(10, FOUND)
    assert capsys.readouterr().err == "  features: 10/10 clips, found\n"


def test_hidden_progress_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with hide_progress(), Display() as progress:
        progress.job("features", 10, "clips").advance(10)
    assert capsys.readouterr().err == ""


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    """Have displays draw on a terminal of so many columns; return what is written to it."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width, _environ={})
    monkeypatch.setattr(progress_module, "Console", lambda **_: console)
    return written


@pytest.mark.parametrize("width", [40, 80, 200])
def test_bars_do_not_wrap(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    clock, written = Clock(monkeypatch), terminal(monkeypatch, width)
    with Display() as progress:
        meter = progress.job("fold 3 of the probe over embeddings", 2_467_357, "examples")
        for _ in range(3):
            clock.now += 60
            meter.advance(411_226, "loss 0.123, epoch 23/60, 1,234 clips/s, and more words" * 4)
        progress._bars.refresh()
        meter.advance(2_467_357 - 3 * 411_226, "loss 0.123" * 20)
    lines = (
        re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", written.getvalue()).replace("\r", "\n").split("\n")
    )
    assert max(map(len, lines)) <= width
    if width >= 80:
        assert any(
            "1,233,678/2,467,357 examples" in line and "3 min left" in line for line in lines
        )


@pytest.mark.parametrize("is_terminal", [False, True])
def test_brackets_in_a_name_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """Rich takes ``[/i]`` for the end of italics that never began, and raises."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=100, _environ={})
    monkeypatch.setattr(progress_module, "Console", lambda **_: console)
    with Display() as progress:
        progress.job("score [/i] [red]", 3, "clips").advance(3, "[/b]")
    assert "score [/i] [red]" in written.getvalue()
