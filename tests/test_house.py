"""The house keeps its order: rooms and files of a size to hold in mind, light where they must be.

That a room imports only rooms below it, and that its files have no cycles, import-linter checks
(pyproject.toml).
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from documents import ROOT
from extras import LIBRARIES, OPTIONAL, run_without

HOUSE = ROOT / "src" / "earmark"
ROOMS = sorted(path.parent for path in HOUSE.glob("*/__init__.py"))
LIGHT_ROOMS = ["runs", "labels", "scores", "metrics", "audio", "flags", "datasets"]

MOST_IN_A_ROOM = 14
LONGEST_FILE = 400

# What does not hold yet: these lists only ever get shorter.
CROWDED_ROOMS: set[str] = set()
LONG_FILES: set[str] = set()
SHARED_NAMES = {"class_table", "agreement"}


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


def test_a_room_has_few_files() -> None:
    own = ("__init__.py", "__pycache__")
    sizes = {room.name: sum(path.name not in own for path in room.iterdir()) for room in ROOMS}
    assert {name for name, size in sizes.items() if size > MOST_IN_A_ROOM} <= CROWDED_ROOMS


def test_a_file_is_short() -> None:
    files = {path: len(path.read_text().splitlines()) for path in HOUSE.glob("**/*.py")}
    too_long = {str(path.relative_to(HOUSE)) for path, n in files.items() if n > LONGEST_FILE}
    assert too_long <= LONG_FILES


def test_a_room_says_what_it_is_for() -> None:
    for room in ROOMS:
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room.name


def test_a_name_means_one_thing() -> None:
    """Stages and verbs are called as what they do, and so are named like functions below them."""
    rooms_of = defaultdict(set)
    for room in ROOMS:
        if room.name not in ("cli", "stages"):
            for path in room.glob("**/*.py"):
                for name in public_names(path):
                    rooms_of[name].add(room.name)
    assert {name for name, rooms in rooms_of.items() if len(rooms) > 1} <= SHARED_NAMES


def test_tests_stand_in_the_same_rooms() -> None:
    others = {"benchmarks", "browser", "docs"}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    assert folders - others == {room.name for room in ROOMS}


@pytest.mark.parametrize("room", LIGHT_ROOMS)
def test_a_light_room_needs_no_extra(room: str) -> None:
    loads = f"import importlib; [importlib.import_module(name) for name in {modules_of(room)}]"
    result = run_without(OPTIONAL, ["-c", loads])
    assert result.returncode == 0, result.stderr


def test_importing_earmark_is_light() -> None:
    heavy = {"numpy", "scipy", "polars", "numba", "pydantic", *OPTIONAL}
    loads = f"import earmark, sys; print(*sorted({heavy} & set(sys.modules)))"
    result = run_without([], ["-c", loads])
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr


def test_the_core_brings_no_optional_library() -> None:
    """A library that the core and an extra both need would make a test without it wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {name.partition(">")[0].lower() for name in project["dependencies"]}
    assert not core & {name.lower() for name in OPTIONAL}
    extras = set(project["optional-dependencies"]) - {"all", "test", "dev", "bench"}
    assert extras == set(LIBRARIES)
