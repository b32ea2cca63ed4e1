"""Verbs called in this process, as from a shell: what they print, and what they refuse."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from earmark.cli.app import app
from earmark.errors import EarmarkError


def earmark(*arguments: object, code: int = 0) -> Result:
    """Run ``earmark ARGUMENTS``, which has to end with a code."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def refusal(*arguments: object) -> str:
    """Run a command that a user got wrong; return what they are told."""
    done = earmark(*arguments, code=1)
    assert isinstance(done.exception, EarmarkError), done.exception
    return str(done.exception)
