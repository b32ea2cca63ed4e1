"""Docstrings as the site shows them: examples as code, references as names."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", re.MULTILINE)
_REFERENCE = re.compile(r":(?:\w+):`~?(?P<name>[\w.]+)`")


class PlainDocstrings(griffe.Extension):
    """Turn doctests into blocks of code, and ``:func:`name``` into the name."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite a docstring once it is read."""
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)


def shown(docstring: str) -> str:
    """Return a docstring as Markdown."""
    named = _REFERENCE.sub(lambda found: f"`{found['name'].removeprefix('earmark.')}`", docstring)
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", named)
