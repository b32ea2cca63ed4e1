"""Public signatures and the help of every command are as they were.

Signatures are stored without annotations, which mypy checks, and help without its frames.
"""

from __future__ import annotations

import enum
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import earmark
from earmark.cli.app import app

FRAME = re.compile(r"[─-╿]+")


def test_public_signatures(frozen) -> None:
    packages = [module.name for module in pkgutil.iter_modules(earmark.__path__) if module.ispkg]
    others = ["earmark.models.pretrained", "earmark.losses"]
    modules = ["earmark", *(f"earmark.{name}" for name in packages), *others]
    frozen.sections("signatures", {name: "\n".join(_signatures(name)) for name in modules})


def _signatures(module_name: str) -> Iterator[str]:
    module = import_module(module_name)
    for name in sorted(getattr(module, "__all__", None) or _defined_names(module)):
        yield from _signature(name, getattr(module, name))


def _defined_names(module: Any) -> list[str]:
    public = [name for name in dir(module) if not name.startswith("_")]
    values = {name: getattr(module, name) for name in public}
    return [name for name, value in values.items() if _module_of(value) == module.__name__]


def _module_of(value: Any) -> str:
    return str(getattr(value, "__module__", ""))


def _signature(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        yield f"{name}: {', '.join(f'{member.name}={member.value!r}' for member in value)}"
    elif inspect.isclass(value):
        yield f"{name}{_arguments(value)}"
        for method_name, method in sorted(vars(value).items()):
            if not method_name.startswith("_"):
                function = getattr(method, "__func__", method)
                is_called = inspect.isfunction(function)
                yield f"  .{method_name}{_arguments(function) if is_called else ''}"
    elif inspect.isroutine(value):
        yield f"{name}{_arguments(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _arguments(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except ValueError:  # written in C
        return "(...)"
    bare = [
        parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def test_the_help_of_every_command(frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    commands = list(_commands(typer.main.get_command(app), ()))
    frozen.sections("help", {" ".join(("earmark", *words)): _help(words) for words in commands})


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, part in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(part, (*words, name))


def _help(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="earmark")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80, result.stdout
    lines = [re.sub(" +", " ", FRAME.sub("", line)).strip() for line in result.stdout.splitlines()]
    return "\n".join(filter(None, lines))
