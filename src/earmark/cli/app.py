"""The command line: which commands there are, and what happens to mistakes and interrupts.

Every command prints what it wrote and the next command. A user's mistake exits with 2 and one
readable message; an interrupt exits with 130, SIGTERM with 143, and both leave a state from which
the same command goes on.
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import signal
import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console

from earmark import __version__
from earmark.cli.checks import check, diff
from earmark.cli.commands import Command, CommandGroup
from earmark.cli.data import export, features, import_app
from earmark.cli.experiments import compare, demo, report, run, sweep
from earmark.cli.flags import find, flag, scan
from earmark.cli.models import evaluate, score, tag, teachers_app, train
from earmark.cli.printing import wrapped
from earmark.cli.review import answers, relabel, review
from earmark.errors import EarmarkError, EarmarkWarning, Stopped, missing_library
from earmark.memory import describe_memory_error, find_memory_error
from earmark.text import printable

PANELS: dict[str, tuple[Command | typer.Typer, ...]] = {
    "Owners": (demo, find, scan, review, answers, relabel, export, check, diff, report),
    "Trainers": (import_app, features, score, flag, train, tag, evaluate, teachers_app),
    "Researchers": (run, sweep, compare),
}
"""For whom each command is, in the order in which help lists them."""

MOVED = {
    "queue": "earmark review WORK --write-only",
    "precision": "earmark answers WORK",
    "raters": "earmark answers WORK --details",
    "judgements": "earmark answers WORK --import FILE",
    "lint": "earmark check WORK",
    "doctor": "earmark check WORK",
    "card": "earmark report WORK --card CARD.md",
    "export-model": "earmark export WORK FILE --to onnx --model NAME",
    "models": "earmark.models.cost in Python",
    "hide": "earmark import workspace WORK --work OUT --recall 0.3,0.95",
    "subset": "earmark import workspace WORK --work OUT --train-share 0.2",
    "split": "earmark import workspace WORK --splits 80,10,10",
}
"""Commands of earlier versions, and what does their work now."""


class _Commands(CommandGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of commands in the order of their panels."""
        del ctx
        return [_name(command) for panel in PANELS.values() for command in panel]


def _name(command: Command | typer.Typer) -> str:
    return command.__name__ if isinstance(command, Command) else str(command.info.name)


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, Command):
            app.command(rich_help_panel=panel)(command.without_options())
        else:
            app.add_typer(command, rich_help_panel=panel)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print("earmark", __version__)
        raise typer.Exit


@app.callback()
def earmark(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Find the labels your sound dataset is missing, and train models not hurt by them."""
    del version


_AGAIN = "mend that and run the same command again to go on"
_ROOM = "make room and run the same command again to go on"
_OWN = "it has to be yours to read and write"
_DISK = "is the disk well? What is finished is kept: run the same command again to go on"
_STORE = "what was kept is safe; is the disk full, or not yours to write? Mend that and go on"
_ADVICE = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "files may not be as large as that here (ulimit -f); " + _ROOM,
    errno.EROFS: "put it where it can be written",
    errno.EACCES: _OWN,
    errno.EPERM: _OWN,
    errno.EIO: _DISK,
    errno.ESTALE: _DISK,
    errno.ENOTDIR: "a file is where a folder should be; give another name",
    errno.EISDIR: "a folder is where a file should be; give another name",
    errno.EEXIST: "something else is in its place; give another name",
    errno.ENAMETOOLONG: "give shorter names",
    errno.EMFILE: "too many files are open at once; use fewer --workers, or raise ulimit -n",
}
"""What to do about what the system refused."""


_NEW_OBJECTS = 100_000
"""After how many of them Python looks for cycles: modules that are loaded make many, and none."""


class _Interrupted(BaseException):
    """Ctrl-C, under a name that Typer does not turn into an exit of its own."""


def main() -> None:
    """Run a verb; turn mistakes, interrupts and full disks into a message and an exit code."""
    gc.set_threshold(_NEW_OBJECTS)
    # Before numpy is loaded: its threads for products, and scipy's, sleep when they are idle. They
    # would spin at their start and after every product, a quarter of what a small command takes.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    atexit.register(gc.freeze)  # at the end all memory goes; nobody need look for cycles
    warnings.formatwarning = _format_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that it cannot encode is no error
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    name = next(iter(sys.argv[1:]), "")
    if name in MOVED:
        _fail(" ".join(("earmark", name, "is now:", MOVED[name])), 2)
    try:
        app()
    except EarmarkError as error:
        _fail_without_memory(error)
        _fail(f"earmark: {error}", 2)
    except ModuleNotFoundError as error:
        missing = missing_library(error)
        if missing is None:
            raise
        _fail(f"earmark: {missing}", 2)
    except Stopped:
        _fail("earmark: stopped by SIGTERM; run the same command again to go on from here", 143)
    except _Interrupted:
        _fail("earmark: interrupted; run the same command again to go on from here", 130)
    except OSError as error:
        _fail_without_memory(error)
        if error.errno is None:
            raise
        _fail(f"earmark: {error}; {_ADVICE.get(error.errno, _AGAIN)}", 2)
    except BaseException as error:  # a panic of Rust's is no Exception
        _fail_without_memory(error)
        if type(error).__module__ != "sqlite3":
            raise
        _fail(f"earmark: the store of answers or blocks: {error}; {_STORE}", 2)


def _interrupt(signal_number: int, frame: object) -> None:
    del signal_number, frame
    raise _Interrupted


def _terminate(signal_number: int, frame: object) -> None:
    del signal_number, frame
    raise Stopped


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Return our own warnings in words alone; those of libraries as Python has them."""
    if issubclass(category, EarmarkWarning):
        return "\n".join([*wrapped(f"warning: {message}"), ""])
    return printable(f"{filename}:{lineno}: {category.__name__}: {message}") + f"\n{line or ''}"


def _fail_without_memory(error: BaseException) -> None:
    """End with a message where memory ran out, whatever else was made of that on the way."""
    cause = find_memory_error(error)
    if cause is not None and (cause is error or "out of memory" not in str(error)):
        _fail(f"earmark: {describe_memory_error(cause)}; run the same command again", 2)


def _fail(message: str, code: int) -> None:
    lines = "\n".join(line for part in message.splitlines() for line in wrapped(part))
    Console(stderr=True, soft_wrap=True).print(lines, style="red", markup=False, highlight=False)
    sys.exit(code)
