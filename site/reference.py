"""The reference of public names: where each is defined, as the doors of the rooms say."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"

_NAMED = re.compile(r"^::: (earmark[\w.]*)$", re.MULTILINE)
_ALL_OF = re.compile(r"^::: (functions|classes) of (earmark[\w.]*)$", re.MULTILINE)


def with_definitions(markdown: str) -> str:
    """Let ``::: earmark.flag`` name the place of the definition, under the public name.

    ``::: functions of earmark.pipeline`` stands for all public functions of a room.
    """
    listed = _ALL_OF.sub(lambda found: "\n\n".join(_listed(found[1], found[2])), markdown)
    return _NAMED.sub(lambda found: _entry(found[1]), listed)


def public_names(room: str) -> list[str]:
    """Return the names that a room's door offers, modules apart."""
    offered = _offered(room)
    return [
        name
        for name, origin in _imports(room).items()
        if origin != f"{room}.{name}" and (not offered or name in offered)
    ]


def definition(name: str) -> str:
    """Return where a public name is defined, through as many doors as it takes."""
    room, _, last = name.rpartition(".")
    origin = _imports(room).get(last)
    return name if origin in (None, name) else definition(origin)


def _listed(kind: str, room: str) -> list[str]:
    is_class = kind == "classes"
    names = sorted(name for name in public_names(room) if name[0].isupper() == is_class)
    return [f"::: {room}.{name}" for name in names]


def _entry(name: str) -> str:
    public = name.removeprefix("earmark.").removeprefix("pipeline.")
    options = f"{{heading: {public}, toc_label: {public}}}"
    return f"::: {definition(name)}\n    options: {options}"


@cache
def _imports(module: str) -> dict[str, str]:
    """Return the names that a package imports, each with its origin; nothing of other modules."""
    found = {}
    for node in _door(module):
        if isinstance(node, ast.ImportFrom) and (node.level or _is_ours(node)):
            origin = ".".join(filter(None, [module if node.level else "", node.module]))
            found |= {alias.name: f"{origin}.{alias.name}" for alias in node.names}
    return found


def _offered(module: str) -> set[str]:
    """Return what a package names in ``__all__``; nothing where it is made elsewhere."""
    for node in _door(module):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _door(module: str) -> list[ast.stmt]:
    folder = SOURCES.joinpath(*module.split("."))
    for path in (folder / "__init__.pyi", folder / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text(encoding="utf-8")).body
    return []


def _is_ours(node: ast.ImportFrom) -> bool:
    return (node.module or "").startswith("earmark")
