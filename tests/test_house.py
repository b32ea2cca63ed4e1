"""The architecture: what each package may import, and which need no extra.

That a room imports only rooms below it, and that its files have no cycles, import-linter checks
(pyproject.toml).
"""

from __future__ import annotations

import ast
import importlib
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from documents import ROOT
from extras import (
    CORE_IS_ENOUGH,
    CORE_ROOMS,
    LIBRARIES,
    NEEDS_MORE,
    OPTIONAL,
    run_without,
)
from tests.conftest import LONGEST

HOUSE = ROOT / "src" / "earmark"
ROOMS = sorted(path.parent for path in HOUSE.glob("*/__init__.py"))
LIGHT_ROOMS = [
    "storage",
    "config",
    "compute",
    "labels",
    "scores",
    "metrics",
    "audio",
    "flags",
    "datasets",
]
HEAVY_ROOMS = ["models", "models/pretrained", "training", "experiments"]
LAZY_ROOMS = [*HEAVY_ROOMS, "storage", "config", "compute", "datasets", "report", "pipeline"]

LOAD_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""

TOOLS = {"all", "demo", "find", "test", "dev", "docs", "release", "bench"}
"""Extras that bring no library of earmark's own: other extras, or what developers use."""


def modules_of(room: str) -> list[str]:
    return [
        ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((HOUSE / room).glob("**/*.py"))
    ]


def public_names(path: Path) -> set[str]:
    """Return the functions and classes that a file defines for others."""
    found = ast.parse(path.read_text()).body
    named = [node.name for node in found if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {name for name in named if not name.startswith("_")}


def test_a_room_says_what_it_is_for() -> None:
    for room in ROOMS:
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room.name


def test_a_name_means_one_thing() -> None:
    """Stages and verbs are called as what they do, and so are named like functions below them."""
    rooms_of = defaultdict(set)
    for room in ROOMS:
        if room.name not in ("cli", "pipeline"):
            for path in room.glob("**/*.py"):
                for name in public_names(path):
                    rooms_of[name].add(room.name)
    assert {name: rooms for name, rooms in rooms_of.items() if len(rooms) > 1} == {}


@cache
def imported_by(path: Path) -> set[str]:
    """Return the modules of earmark that a file imports from."""
    nodes = ast.walk(ast.parse(path.read_text()))
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {module for module in named if module.startswith("earmark.")}


@pytest.mark.parametrize("room", [r for r in ROOMS if r.name != "cli"], ids=lambda room: room.name)
def test_others_come_in_by_the_door(room: Path) -> None:
    """Pretrained networks have a door of their own, and so has the page's server."""
    inside = f"earmark.{room.name}."
    others = [path for path in HOUSE.glob("**/*.py") if room not in path.parents]
    taken = {
        (str(path.relative_to(HOUSE)), module)
        for path in others
        for module in imported_by(path)
        if module.startswith(inside)
        and module != "earmark.models.pretrained"
        and not module.startswith("earmark.review.server")
    }
    assert taken == set()


def test_what_reduced_environments_test_is_there() -> None:
    """A misspelt file would run nowhere, or last, and nobody would be told."""
    for name in (*CORE_IS_ENOUGH, *NEEDS_MORE, *LONGEST):
        assert (ROOT / "tests" / name).is_file(), name
    assert {name.partition("/")[0] for name in NEEDS_MORE} <= CORE_ROOMS


@pytest.mark.parametrize("room", LAZY_ROOMS)
def test_a_door_that_opens_when_asked_names_no_file(room: str) -> None:
    """A file that is imported becomes an attribute of its room, and would hide a name like it."""
    stub = ast.parse((HOUSE / room / "__init__.pyi").read_text())
    names = {
        alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    files = {path.stem for path in (HOUSE / room).glob("*.py")}
    assert names
    assert names & files == set()


def test_the_door_of_metrics_gives_lwlrap_and_not_its_file() -> None:
    """It opens when asked as others do, but for this name, which users write."""
    importlib.import_module("earmark.metrics.evaluation")  # which loads the file
    assert callable(importlib.import_module("earmark.metrics").lwlrap)


@pytest.mark.parametrize("room", LAZY_ROOMS)
def test_a_door_holds_what_it_promises(room: str) -> None:
    door = importlib.import_module(f"earmark.{room.replace('/', '.')}")
    assert all(hasattr(door, name) for name in door.__all__)


def test_tests_stand_in_the_same_rooms() -> None:
    others = {"benchmarks", "browser", "docs", "frozen"}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    assert folders - others == {room.name for room in ROOMS}


def test_light_rooms_need_no_extra() -> None:
    """One Python loads them all: what it cannot find, no room can have found for another."""
    rooms = [*LIGHT_ROOMS, "review", "report", "pipeline", "cli"]
    names = [name for room in rooms for name in modules_of(room)]
    loads = [name for name in names if not name.startswith("earmark.review.server.")]
    result = run_without(OPTIONAL, ["-c", LOAD_EACH, *loads])
    assert (result.returncode, result.stdout) == (0, ""), result.stdout + result.stderr


def test_importing_earmark_is_light() -> None:
    heavy = {"numpy", "scipy", "polars", "pydantic", *OPTIONAL}
    loads = f"import earmark, sys; print(*sorted({heavy} & set(sys.modules)))"
    result = run_without([], ["-c", loads])
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr


SCAN = """
import sys, numpy as np, earmark
rng = np.random.default_rng(0)
states = (rng.random((200, 4)) < 0.3).astype(np.int8)
scores = (4 * states - 3 + rng.normal(size=states.shape)).astype(np.float32)
earmark.scan(earmark.LabelSet.from_dense(states), scores, out=sys.argv[1])
print(*sorted({"scipy.stats", "sklearn", "pydantic"} & set(sys.modules)))
"""


def test_a_scan_does_without_libraries_that_take_longer_to_load(tmp_path: Path) -> None:
    result = run_without([], ["-c", SCAN, str(tmp_path / "out")])
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr
    assert (tmp_path / "out" / "index.html").exists()


def test_the_core_brings_no_optional_library() -> None:
    """A library that the core and an extra both need would make a test without it wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {name.partition(">")[0].lower() for name in project["dependencies"]}
    assert not core & {name.lower() for name in OPTIONAL}
    extras = set(project["optional-dependencies"]) - TOOLS
    assert extras == set(LIBRARIES)
