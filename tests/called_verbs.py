"""Verbs called in this process, as from a shell: what they print, and what they refuse."""

from __future__ import annotations

import os
import re
from typing import Any
from unittest import mock

import typer
from typer.testing import CliRunner, Result

from earmark.cli.app import app
from earmark.cli.printing import MOST_LINES, WIDTH
from earmark.errors import EarmarkError

_PATH = re.compile(r"[^\s']*/[^\s']+")
_LONG = ("--json", "--details", "--help")


def earmark(*arguments: object, code: int = 0) -> Result:
    """Run ``earmark ARGUMENTS``, which has to end with a code and to fit a terminal.

    It sees one core: processes of its own would take seconds to start.
    """
    words = [str(argument) for argument in arguments]
    with mock.patch.object(os, "sched_getaffinity", return_value={0}):
        done = CliRunner().invoke(app, words)
    assert done.exit_code == code, (done.output, done.exception)
    if not any(word in _LONG for word in words):
        assert_fits(done.stdout)
    return done


def assert_fits(printed: str, most_lines: int = MOST_LINES) -> None:
    """Assert that what a verb printed is short, and its lines too, paths aside."""
    lines = printed.splitlines()
    assert len(lines) <= most_lines, printed
    wide = [line for line in lines if len(_PATH.sub("PATH", line)) > WIDTH]
    assert not wide, "\n".join(wide)


def refusal(*arguments: object) -> str:
    """Run a command that a user got wrong; return what they are told."""
    done = earmark(*arguments, code=1)
    assert isinstance(done.exception, EarmarkError), done.exception
    return str(done.exception)


def with_options(group: Any) -> Any:
    """Return a group whose commands have their options, as each has when it is called."""
    for name in group.commands:
        _, command, _ = group.resolve_command(typer.Context(group), [name])
        group.commands[name] = with_options(command) if hasattr(command, "commands") else command
    return group
