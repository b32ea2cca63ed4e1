from __future__ import annotations

from pathlib import Path

import typer

from documents import DOCUMENTS
from earmark import datasets
from earmark.cli.data import import_app
from earmark.datasets import ImportSummary
from scenes import band_workspace


def test_every_importer_has_a_verb_and_a_line_in_the_docs() -> None:
    group = typer.main.get_command(import_app)
    verbs = set(group.commands)  # type: ignore[attr-defined]
    assert len(verbs) == sum(name.startswith("import_") for name in datasets.__all__) + 1  # scenes
    for verb in verbs:
        assert any(f"earmark import {verb}" in path.read_text() for path in DOCUMENTS), verb


def test_a_summary_adds_up_and_says_so(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    n_clips = len(workspace.clips)
    summary = ImportSummary(workspace, n_clips, n_clips - 2, 2, ("Two were lost.",))
    assert sum(summary.split_counts.values()) == n_clips
    listed, splits, note = summary.lines()
    assert listed == f"{n_clips:,} clips listed = {n_clips - 2:,} found + 2 missing"
    assert splits.startswith("train ")
    assert note == "Two were lost."
