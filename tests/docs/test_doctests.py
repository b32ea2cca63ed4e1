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
def test_the_examples_of_a_module_hold(name: str) -> None:
    module = load(name)
    for test in doctest.DocTestFinder().find(module):
        run(test)


def run(test: doctest.DocTest) -> None:
    """Run the examples of a docstring; an error in one is raised as it is."""
    try:
        doctest.DebugRunner().run(test)
    except doctest.UnexpectedException as unexpected:
        raise unexpected.exc_info[1] from None
    except doctest.DocTestFailure as failure:
        line = (test.lineno or 0) + failure.example.lineno + 1
        where = f"{test.filename}:{line}: {failure.example.source}"
        pytest.fail(f"{where}expected {failure.example.want}got {failure.got}")


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
