from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from extras import needs_core_alone

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

    from kept_processes import KeptProcesses

# One thread each: with OpenMP's spinning barriers two busy processes stall each other for minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# How long one example took says how busy the machine is, not that the code is wrong.
hypothesis.settings.register_profile("earmark", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("earmark")

# The files of a test need not outlive a power cut, and hundreds of flushes a minute take long.
os.fsync = lambda _descriptor: None

# Processes that tests start, and nodes of a cluster, find the tests' own functions by this path.
TESTS = Path(__file__).parent
PATHS = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PATHS))


def pytest_addoption(parser: pytest.Parser) -> None:
    core = "run the tests that need no extra, and no others (make test-core)"
    parser.addoption("--core", action="store_true", help=core)
    rest = "run the tests that make test-core leaves out"
    parser.addoption("--rest", action="store_true", help=rest)
    renew = "write the files that tests/frozen compares with anew"
    parser.addoption("--renew", action="store_true", help=renew)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of tests that run in another environment."""
    if not collection_path.is_file():
        return None
    is_core = needs_core_alone(collection_path)
    is_left_out = config.getoption("--rest") if is_core else config.getoption("--core")
    return True if is_left_out else None


LONGEST = (
    "compute/test_ray.py",
    "browser/test_page.py",
    "models/test_onnx_export.py",
    "training/test_loop.py",
    "training/test_distributed.py",
    "benchmarks/test_fuzz.py",
    "cli/test_models.py",
    "cli/test_app.py",
    "cli/test_review.py",
    "pipeline/test_teachers.py",
    "pipeline/test_same_answer.py",
    "cli/test_core_alone.py",
    "frozen/test_results.py",
    "pipeline/test_find.py",
    "training/test_checkpoints.py",
    "docs/test_dataset_owner.py",
    "pipeline/test_demo.py",
)
"""Files of tests that take longest, in that order."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process is left alone with one."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def _no_teachers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let no test find the weights that a developer keeps: the cache is empty, elsewhere."""
    folder = tmp_path_factory.mktemp("teachers")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("EARMARK_TEACHERS", str(folder))
        yield
    assert not list(folder.iterdir()), "a test kept weights in the cache of all tests"


@pytest.fixture(scope="session")
def yamnet_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``yamnet.h5`` and ``yamnet.tflite`` of one made-up network."""
    from made_up_yamnet import made_up_network, write_keras, write_tflite_yamnet  # need torch

    folder, network = tmp_path_factory.mktemp("yamnet"), made_up_network()
    write_keras(folder / "yamnet.h5", network)
    write_tflite_yamnet(folder / "yamnet.tflite", network)
    return folder


@pytest.fixture(scope="session")
def knowing_yamnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up ``yamnet.h5`` that knows the tones of ``tone_folders``."""
    from tone_folders import write_knowing_yamnet

    return write_knowing_yamnet(tmp_path_factory.mktemp("knowing") / "yamnet.h5")


@pytest.fixture(scope="session")
def two_processes() -> Iterator[KeptProcesses]:
    """An engine of two other processes, for all tests of what does not depend on their number."""
    from kept_processes import KeptProcesses

    engine = KeptProcesses()
    yield engine
    engine.end()


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
