from __future__ import annotations

import io
import sys
from types import SimpleNamespace

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


class Notebook:
    """The output of a cell: what is displayed stays, and what is updated is written over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outputs: list[object] = []
        self.n_updates = 0
        notebook = Console(file=io.StringIO(), force_jupyter=True)
        monkeypatch.setattr(own, "Console", lambda **_: notebook)
        monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=self.display))

    def display(self, shown: object, *, display_id: bool) -> Notebook:
        assert display_id
        self.outputs.append(shown)
        return self

    def update(self, shown: object) -> None:
        assert shown is self.outputs[-1]
        self.n_updates += 1


def test_in_a_notebook_all_jobs_are_one_short_output(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, notebook = Clock(monkeypatch), Notebook(monkeypatch)
    with Display() as progress:
        for number in range(8):
            meter = progress.job(f"fold {number}", 1_000, "steps")
            for _ in range(1_000):
                clock.now += 0.001
                meter.advance(1)
    (block,) = notebook.outputs
    assert notebook.n_updates <= 8 / own._SECONDS_SHOWN + 1
    told = str(block).splitlines()
    assert told[0] == "3 jobs done before"
    assert told[1:] == [f"fold {n}: 1,000/1,000 steps, 1,000/s, 1 s" for n in range(3, 8)]


def test_a_notebook_draws_bars_of_what_runs_and_shows_names_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, notebook = Clock(monkeypatch), Notebook(monkeypatch)
    with Display() as progress:
        progress.job("done", 1, "steps").advance(1)
        meter = progress.job("<b>net</b>", 10, "steps")
        clock.now += 2
        meter.advance(4, "loss 0.1")
        (block,) = notebook.outputs
        html = block._repr_html_()
    assert html.count("<progress") == 1
    assert '<progress value="4" max="10"></progress> &lt;b&gt;net&lt;/b&gt;: 4/10 steps' in html


def test_a_notebook_without_jobs_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    with Display():
        pass
    assert notebook.outputs == []


@pytest.mark.parametrize("is_terminal", [False, True])
def test_brackets_in_a_name_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """Rich takes ``[/i]`` for the end of italics that never began, and raises."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=is_terminal, width=100)
    monkeypatch.setattr(own, "Console", lambda **_: console)
    with Display() as progress:
        progress.job("score [/i] [red]", 3, "clips").advance(3, "[/b]")
    assert "score [/i] [red]" in shown.getvalue()
