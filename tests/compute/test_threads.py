from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from earmark.compute import HERE, LocalEngine, Meter, Task

np.ones((2, 2)) @ np.ones((2, 2))  # loads a library with threads


def threads(meter: Meter) -> set[int]:
    meter.advance(1)
    return {pool["num_threads"] for pool in threadpool_info()}


@pytest.fixture
def _two_threads() -> Iterator[None]:
    with threadpool_limits(2):
        yield


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize(("n_workers", "n_tasks"), [(1, 2), (2, 1)])
def test_work_in_this_process_has_one_thread_too(n_workers: int, n_tasks: int) -> None:
    before, environment = threadpool_info(), dict(os.environ)
    found = LocalEngine(n_workers).map([Task("threads", threads)] * n_tasks)
    assert found == [{1}] * n_tasks
    assert threadpool_info() == before
    assert dict(os.environ) == environment


@pytest.mark.usefixtures("_two_threads")
def test_threads_come_back_after_a_failure() -> None:
    before = threadpool_info()
    with pytest.raises(TypeError):
        HERE.map([Task("fails", threads, {"no": "such"})])
    assert threadpool_info() == before
