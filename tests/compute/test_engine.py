from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from earmark.compute import HERE, LocalEngine, Task
from earmark.errors import EarmarkError
from tasks import Counter, die, die_while_reporting, fail, ignore_the_end, square


@pytest.mark.parametrize("n_workers", [1, 2])
def test_results_come_in_order_and_progress_is_told(n_workers: int) -> None:
    tasks = [Task(f"task {i}", square, {"number": i}) for i in range(4)]
    counter = Counter()
    results = LocalEngine(n_workers).map(tasks, counter)
    assert [value for value, _ in results] == [0, 1, 4, 9]
    assert counter.done == {f"task {i}": 1 for i in range(4)}


def test_workers_have_one_thread_each_and_the_parent_keeps_its_environment() -> None:
    before = dict(os.environ)
    results = LocalEngine(2).map([Task(str(i), square, {"number": i}) for i in range(2)])
    assert [threads for _, threads in results] == ["1", "1"]
    assert dict(os.environ) == before


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_users_mistake_in_a_worker_reaches_the_caller(n_workers: int) -> None:
    tasks = [Task("bad", fail, {"number": i}) for i in range(2)]
    with pytest.raises(EarmarkError, match="cannot go on"):
        LocalEngine(n_workers).map(tasks)


def test_no_tasks_no_work() -> None:
    assert HERE.map([]) == []


def test_a_worker_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("earmark.compute.engine._PATIENCE_SECONDS", 0.5)
    tasks = [Task(str(i), ignore_the_end, {"number": i}) for i in range(2)]
    with pytest.raises(EarmarkError, match="task 0 cannot go on"):
        LocalEngine(2).map(tasks)


def test_a_worker_that_was_killed_is_told_of_in_a_sentence() -> None:
    tasks = [Task(str(i), die, {"number": i}) for i in range(2)]
    with pytest.raises(EarmarkError, match="a worker process was killed"):
        LocalEngine(2).map(tasks)


def test_half_a_report_of_a_killed_worker_is_not_waited_for() -> None:
    tasks = [Task(str(i), die_while_reporting, {"number": i}) for i in range(2)]
    with pytest.raises(EarmarkError, match="a worker process was killed"):
        LocalEngine(2).map(tasks)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with two workers, which note their numbers and wait."""
    script = tmp_path / "parent.py"
    script.write_text(
        "from pathlib import Path\n"
        "from earmark.compute.engine import LocalEngine, Task\n"
        "from tasks import note_and_wait\n"
        "if __name__ == '__main__':\n"
        f"    own = {{'folder': Path({str(tmp_path)!r})}}\n"
        "    tasks = [Task(str(i), note_and_wait, {**own, 'number': i}) for i in range(2)]\n"
        "    LocalEngine(2).map(tasks)\n"
    )
    process = subprocess.Popen([sys.executable, str(script)])
    yield process
    process.kill()
    process.wait()


def test_workers_end_with_a_parent_that_is_killed(
    tmp_path: Path, parent: subprocess.Popen[bytes]
) -> None:
    workers: list[int] = []
    while len(workers) < 2:
        assert parent.poll() is None
        workers = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
        time.sleep(0.1)
    _check_all_end(parent, workers)


def test_workers_that_have_not_begun_end_with_a_parent_that_is_killed(
    parent: subprocess.Popen[bytes],
) -> None:
    workers: list[int] = []
    while len(workers) < 2:
        assert parent.poll() is None
        workers = _children(parent.pid)
        time.sleep(0.01)
    _check_all_end(parent, workers)


def _check_all_end(parent: subprocess.Popen[bytes], workers: list[int]) -> None:
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(600):
        if not any(map(_is_alive, workers)):
            return
        time.sleep(0.1)
    pytest.fail("workers live on")


def _children(parent: int) -> list[int]:
    """Return the workers of a process, by what started them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            of = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if of == parent and b"spawn_main" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
