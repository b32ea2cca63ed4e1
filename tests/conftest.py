from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

# One thread each: with OpenMP's spinning barriers two busy processes stall each other for minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Processes that tests start, and nodes of a cluster, find the tests' own functions by this path.
TESTS = Path(__file__).parent
PATHS = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PATHS))


@pytest.fixture(scope="module")
def _running_cluster() -> Iterator[Cluster]:
    from clusters import small_cluster  # loading Ray takes a second, and few tests need it

    with small_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(_running_cluster: Cluster) -> Cluster:
    """Two nodes of one core each; those that an earlier test killed are replaced."""
    from clusters import restore

    restore(_running_cluster)
    return _running_cluster
