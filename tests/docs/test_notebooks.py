"""Notebooks are kept without what they print, and name commands that there are.

``make docs`` runs them, and looks at what they show.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from documents import INLINE, ROOT
from tests.docs.test_command_lines import assert_understood, check_mention, lines

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[str]:
    found = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_python_and_says_what_it_needs(path: Path) -> None:
    for text in cells(path, "code"):
        ast.parse(text)
    assert "pip install 'earmark[" in cells(path, "markdown")[0]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_commands_in_notebooks_are_understood(path: Path) -> None:
    told = [
        (path.stem, line)
        for text in cells(path, "markdown")
        for code in INLINE.findall(text)
        for line in lines(code)
    ]
    assert told
    assert_understood(told, check_mention)
