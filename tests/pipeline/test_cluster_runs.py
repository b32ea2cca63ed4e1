from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from ray.cluster_utils import Cluster

from clusters import SabotagedEngine, Victim
from earmark.compute import LocalEngine, RayEngine
from earmark.pipeline import run
from noises import content
from small_recipe import SMALL

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def locally(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("local")
    run(SMALL, root, engine=LocalEngine(1))
    return root


TABLES = (
    "flags/flags.parquet",
    "flags/thresholds.parquet",
    "sweep/results.parquet",
    "sweep/per_class.parquet",
)


def assert_same(root: Path, expected: Path) -> None:
    assert content(root / "frames") == content(expected / "frames")
    logits = "scores/teacher/logits.npy"
    np.testing.assert_array_equal(np.load(root / logits), np.load(expected / logits))
    for name in TABLES:
        assert pl.read_parquet(root / name).equals(pl.read_parquet(expected / name)), name


@pytest.mark.slow
def test_a_run_on_two_nodes_equals_one_on_this_machine(
    cluster: Cluster, tmp_path: Path, locally: Path
) -> None:
    """The next one does as well, and with deaths."""
    run(SMALL, tmp_path, engine=RayEngine())
    assert_same(tmp_path, locally)


@pytest.mark.parametrize("victim", ["worker", pytest.param("node", marks=pytest.mark.slow)])
def test_a_run_survives_a_death_in_every_stage(
    cluster: Cluster,
    tmp_path: Path,
    locally: Path,
    victim: Victim,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run(SMALL, tmp_path / "work", engine=SabotagedEngine(cluster, victim, tmp_path / "deeds"))
    assert_same(tmp_path / "work", locally)
    lost = [message for message in caplog.messages if " was lost (" in message]
    assert len(lost) >= 3
