from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from earmark.errors import EarmarkError
from earmark.runs.lock import LOCK, writing

HOLDS = """
import sys, time
from earmark.runs.lock import writing
with writing(sys.argv[1], "flag"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that writes in the folder."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_writer_is_told_who_the_first_is(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    wanted = rf"the verb flag \(process {other.pid} on"
    with pytest.raises(EarmarkError, match=wanted), writing(tmp_path, "score"):
        pytest.fail("two write at once")


def test_the_lock_of_a_dead_process_is_taken_over(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (tmp_path / LOCK).exists()
    with writing(tmp_path, "score"):
        assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_process_that_only_has_the_number_of_the_dead_one_holds_nothing(tmp_path: Path) -> None:
    with writing(tmp_path, "score"):
        told = json.loads((tmp_path / LOCK).read_text())
    (tmp_path / LOCK).write_text(json.dumps({**told, "born": "1"}))
    with writing(tmp_path, "flag"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_lock_of_another_machine_holds_until_it_is_deleted(tmp_path: Path) -> None:
    with writing(tmp_path, "score"):
        told = json.loads((tmp_path / LOCK).read_text())
    (tmp_path / LOCK).write_text(json.dumps({**told, "host": "elsewhere", "born": "1"}))
    wanted = r"If it is gone, delete .*lock\.json"
    with pytest.raises(EarmarkError, match=wanted), writing(tmp_path, "flag"):
        pass


def test_a_damaged_lock_is_named(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"verb": 1}'):
        (tmp_path / LOCK).write_text(text)
        wanted = "says nothing of who holds it"
        with pytest.raises(EarmarkError, match=wanted), writing(tmp_path, "flag"):
            pass


def test_a_writer_may_call_another_and_a_failure_gives_the_lock_back(tmp_path: Path) -> None:
    def outer(place: Path) -> None:
        with writing(place, "run"):
            with writing(place, "flag"):
                assert (place / LOCK).exists()
            assert json.loads((place / LOCK).read_text())["verb"] == "run"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        outer(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


COUNTS = """
import sys, time
from pathlib import Path
from earmark.errors import EarmarkError
from earmark.runs.lock import writing
number, path = 0, Path(sys.argv[1]) / "number"
while number < 30:
    try:
        with writing(sys.argv[1], "flag"):
            path.write_text(str(int(path.read_text()) + 1))
            number += 1
    except EarmarkError:
        time.sleep(0.002)
"""


def test_no_two_processes_ever_hold_it(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    command = [sys.executable, "-c", COUNTS, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    deadline = time.monotonic() + 120
    assert [process.wait(deadline - time.monotonic()) for process in processes] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "90"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]
