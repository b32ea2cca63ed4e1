"""Names of modules, functions and files in README and docs are those of the code."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents import DOCUMENTS, ROOT, Piece, inline_code

DOTTED = re.compile(r"(earmark(?:\.\w+)+)(?:\(.*\))?")
FILE = re.compile(r"(?:python )?((?:src|tests|benchmarks|docs|earmark)/[\w./-]+\.\w+)( .*)?")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def mentions(pattern: re.Pattern[str]) -> Iterator[tuple[Piece, str]]:
    for path in DOCUMENTS:
        for code in inline_code(path):
            if found := pattern.fullmatch(code.text):
                yield code, found[1]


def resolve(name: str) -> object:
    """Import the module that a dotted name begins with, and walk on by attributes."""
    parts = name.split(".")
    for n_parts in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:n_parts]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("earmark"):
                pytest.skip(f"{name} needs {error.name}, which is not installed")
            continue
        for attribute in parts[n_parts:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(name)


def test_dotted_names_exist() -> None:
    named = [*mentions(DOTTED)]
    assert len(named) > 3
    for code, name in named:
        try:
            resolve(name)
        except AttributeError as error:
            pytest.fail(f"{code}: {name}: {error}")


def test_files_exist() -> None:
    places = (ROOT, ROOT / "src")
    lost = [
        f"{code}: there is no file {name}"
        for code, name in mentions(FILE)
        if "NAME" not in name and not any((place / name).exists() for place in places)
    ]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), f"{path.name}: there is no {target}"
