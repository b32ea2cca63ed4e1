"""The command line: one verb per stage.

Every verb prints what it wrote and the next command. A user's mistake exits with 2 and one
readable message; an interrupt exits with 130, SIGTERM with 143, and both leave a state from which
the same command goes on. Verbs hold printing only; the work is a function of
:mod:`earmark.pipeline`, whose signature has the options, imported when its verb is set up.
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
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from earmark import __version__
from earmark.cli.checks import checks_app
from earmark.cli.commands import Call, offers
from earmark.cli.data import data_app
from earmark.cli.experiments import experiments_app
from earmark.cli.flags import flags_app
from earmark.cli.imports import import_app
from earmark.cli.models import models_app
from earmark.cli.options import (
    AsJson,
    Details,
    tell,
    wrapped,
)
from earmark.cli.review import review_app
from earmark.cli.teachers import teachers_app
from earmark.cli.verbs import MOVED, Verbs, group_by_panels, only
from earmark.errors import EarmarkError, EarmarkWarning, Stopped, missing_library, quoted
from earmark.memory import describe_memory_error, find_memory_error
from earmark.text import printable

if TYPE_CHECKING:
    from earmark.pipeline import Outcome

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


@app.command()
@offers("pipeline.run_demo")
def demo(call: Call, as_json: AsJson = False) -> None:
    """Try it: find hidden labels in simulated scenes, train with and without them."""
    from earmark.report import demo_lines

    done = call()
    facts = done.found.facts if as_json else {}
    following = f"earmark review {quoted(call['work'])}"
    tell(as_json, following, told=demo_lines(done.found), report=done.page, **facts)


@app.command()
@offers("pipeline.run")
def run(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Run a whole experiment from a recipe, from the data to the report."""
    outcome = call()
    if as_json:
        facts: dict[str, Any] = {"report": outcome.report, "n_flags": outcome.n_flags}
        tell(as_json, next_command=_after_run(outcome), **facts)
    else:
        _print_outcome(outcome, details)


app.add_typer(teachers_app)
app.add_typer(import_app, name="import")
app.add_typer(flags_app)
app.add_typer(checks_app)
app.add_typer(data_app)
app.add_typer(models_app)
app.add_typer(experiments_app)
app.add_typer(review_app)
group_by_panels(app)


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
        only(app, sys.argv[1:3])()
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


def _print_outcome(outcome: Outcome, details: bool) -> None:
    """Print what a newcomer wants to see at the end of a run."""
    from earmark.report import detail_lines, summary_lines

    results, flag_percent = outcome.sweep.summary, outcome.recipe.report.flag_percent
    verdict, *sure = summary_lines(results, outcome.judged, flag_percent)
    more = [*sure, *detail_lines(results)] if details else sure
    following = _after_run(outcome)
    tell(False, following, told=[verdict], more=more, details=details, report=outcome.report)


def _after_run(outcome: Outcome) -> str | None:
    """Return the next command: flags with sound are there to be heard."""
    workspace = outcome.workspace
    return f"earmark review {quoted(workspace.root)}" if workspace.has_sound() else None


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
