"""The examples in docstrings say what the code does."""

from __future__ import annotations

import doctest
import importlib
from types import ModuleType

import pytest

from documents import ROOT

SOURCES = ROOT / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES.glob("earmark/**/*.py")
    if path.name != "__main__.py"
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    failed, _ = doctest.testmod(load(name))
    assert not failed, capsys.readouterr().out


def load(name: str) -> ModuleType:
    """Import a module; one that needs a library that is not installed here is skipped."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "earmark":
            raise
        pytest.skip(f"{name} needs {missing}, which is not installed")


def test_examples_are_found() -> None:
    found = doctest.DocTestFinder().find(load("earmark.errors"))
    assert any(test.examples for test in found)
