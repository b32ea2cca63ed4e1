from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import typer

from documents import DOCUMENTS
from earmark.cli.imports import import_app
from earmark.datasets import IMPORTERS, Importer, ImportSummary
from earmark.errors import EarmarkError
from scenes import band_workspace

by_name = pytest.mark.parametrize("importer", IMPORTERS, ids=lambda importer: importer.name)


def verbs() -> dict[str, str]:
    """Return the verbs of ``earmark import`` and the help of each."""
    group = typer.main.get_command(import_app)
    return {name: verb.help for name, verb in group.commands.items()}  # type: ignore[attr-defined]


def test_the_command_line_has_exactly_the_importers_of_the_table() -> None:
    assert verbs() == {importer.name: importer.help for importer in IMPORTERS}


@by_name
def test_an_importer_is_where_the_table_says(importer: Importer) -> None:
    function = importer.load()
    assert function.__doc__
    parameters = inspect.signature(function).parameters
    assert "progress" in parameters
    if importer.name != "scenes":  # made, not found: nothing can be missing
        assert inspect.signature(function).return_annotation == "ImportSummary"


@by_name
def test_the_docs_tell_of_every_importer(importer: Importer) -> None:
    mention = f"earmark import {importer.name}"
    assert any(mention in path.read_text() for path in DOCUMENTS), mention


def test_a_summary_adds_up_and_says_so(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    n_clips = len(workspace.clips)
    summary = ImportSummary(workspace, n_clips, n_clips - 2, 2, ("Two were lost.",))
    assert sum(summary.split_counts.values()) == n_clips
    listed, splits, note = summary.lines()
    assert listed == f"{n_clips:,} clips listed = {n_clips - 2:,} found + 2 missing"
    assert splits.startswith("train ")
    assert note == "Two were lost."


def test_a_summary_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="do not add up"):
        ImportSummary(band_workspace(tmp_path), 3, 1, 1)
