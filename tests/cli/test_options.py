from __future__ import annotations

from pathlib import Path

import pytest

from earmark.cli.options import after_import, chosen_engine
from earmark.compute import LocalEngine, RayEngine
from earmark.config import ResourceParams, TaskResources
from earmark.errors import EarmarkError
from own_tables import imported
from scenes import band_workspace


def test_work_runs_here_unless_a_cluster_is_asked_for() -> None:
    assert chosen_engine(None) == LocalEngine()
    assert chosen_engine(3) == LocalEngine(3)


def test_a_cluster_is_given_the_resources_of_the_recipe() -> None:
    resources = ResourceParams(train=TaskResources(gpus=0.25))
    assert chosen_engine(None, "ray", resources) == RayEngine(None, resources)
    there = chosen_engine(None, "ray://there:10001", resources)
    assert there == RayEngine("ray://there:10001", resources)


def test_an_unknown_engine_is_refused_with_the_choices() -> None:
    with pytest.raises(EarmarkError, match=r"local, ray or ray://HOST:PORT, got 'spark'"):
        chosen_engine(None, "spark")


def test_workers_are_not_a_clusters() -> None:
    with pytest.raises(EarmarkError, match=r"\[resources\] in the recipe"):
        chosen_engine(2, "ray")


def test_the_next_command_can_be_pasted_where_a_path_has_spaces(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "my sounds")
    assert after_import(workspace) == f"earmark score '{workspace.root}'"


def test_without_sound_or_frames_scores_come_from_elsewhere(tmp_path: Path) -> None:
    workspace = imported(tmp_path, "clip_id,label\na,dog\nb,cat\n", None).workspace
    assert after_import(workspace) == f"earmark score {workspace.root} --from scores.npy"
