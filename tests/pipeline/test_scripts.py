"""Stages as people call them, in a notebook's cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from small_recipe import SMALL

SCRIPT = """
import earmark
from earmark import pipeline
from earmark.config.recipe import Recipe

recipe = Recipe.model_validate_json({recipe!r})
workspace = pipeline.make_dataset("w", recipe)
features = pipeline.make_features(workspace)
print(features.n_clips, "clips")
scores = pipeline.score(workspace)
flagged = pipeline.write_flags(workspace, discard_percent=5)
print(len(flagged.flags), "flags", len(scores.clip_ids), "scored")
"""


def test_stages_need_no_main_guard_and_show_their_progress(tmp_path: Path) -> None:
    """A cell runs in a module that no other process could import again."""
    pytest.importorskip("soundfile")
    pytest.importorskip("torch")
    script = SCRIPT.format(recipe=SMALL.model_dump_json())
    command = [sys.executable, "-c", f"exec({script!r}, {{'__name__': 'x'}})"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "72 clips" in done.stdout
    assert "40 scored" in done.stdout
    assert "features: " in done.stderr
