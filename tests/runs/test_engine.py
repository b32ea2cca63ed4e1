from __future__ import annotations

import os

import pytest

from earmark.errors import EarmarkError
from earmark.runs.engine import HERE, LocalEngine, Task
from tasks import Counter, fail, square


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
