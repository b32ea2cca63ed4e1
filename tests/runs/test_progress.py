from __future__ import annotations

import pytest

from earmark.runs.progress import SILENT, Display


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
