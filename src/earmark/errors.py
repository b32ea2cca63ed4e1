"""The one family of users' mistakes, and how things are named in messages and at a prompt.

Raise :class:`EarmarkError` where a person can put things right: say what was expected, what came
(value, shape, path, line), the likely cause and the next step. The command line prints the message
without a traceback and exits with 2. A number that is computed but doubtful is announced with
:class:`EarmarkWarning`.
"""

from __future__ import annotations

import difflib
import errno
import functools
import importlib
import importlib.util
import inspect
import itertools
import reprlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from earmark.memory import OutOfMemory, describe_memory_error, format_bytes, is_memory_error

P = ParamSpec("P")
Result = TypeVar("Result")

_N_NAMED = 3
"""Names that a message lists before it counts the rest."""

_LONGEST = 60
"""Characters of one value of a result at a prompt."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST
_SHORT.maxlevel = 2


EXTRAS = {
    "av": "audio",
    "soundfile": "audio",
    "soxr": "audio",
    "torch": "train",
    "safetensors": "train",
    "tensorboard": "train",
    "PIL": "report",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "tflite": "pretrained",
    "h5py": "pretrained",
    "platformdirs": "pretrained",
    "ai_edge_litert": "tflite",
    "transformers": "huggingface",
    "starlette": "review",
    "uvicorn": "review",
    "ray": "cluster",
    "fsspec": "cluster",
    "accelerate": "examples",
    "pytorch_lightning": "examples",
}
"""The optional libraries, and the extra of earmark that brings each."""


class EarmarkError(Exception):
    """Something in the user's files, options or data has to change before the work can go on."""


class EarmarkWarning(UserWarning):
    """A result was computed, but there is a reason to doubt it."""


class Stopped(SystemExit):
    """SIGTERM came and what was done is saved: the process ends with 143, as shells expect."""

    def __init__(self, code: int = 143) -> None:
        super().__init__(code)


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'epochs'?`` or the list of choices.

    >>> nearest("epoch", ["epochs", "seed"])
    "; did you mean 'epochs'?"
    """
    choices = list(choices)
    close = difflib.get_close_matches(word, choices, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; the choices are {', '.join(choices)}"


def first_few(names: Iterable[object]) -> str:
    """Name the first few of some clips or classes, and how many more there are.

    >>> first_few(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    names = names if isinstance(names, Sized) else list(names)  # a column may have millions
    more = f" and {len(names) - _N_NAMED:,} more" if len(names) > _N_NAMED else ""
    return ", ".join(repr(name) for name in itertools.islice(names, _N_NAMED)) + more


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number and what it counts; the plural of the noun has an s unless it is given.

    >>> counted(1, "clip"), counted(2_000, "clip"), counted(2, "class", "classes")
    ('1 clip', '2,000 clips', '2 classes')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {plural or noun + 's'}"


def quoted(word: object) -> str:
    """Return a path or name as a word of a command that can be pasted into a shell.

    >>> print(f"earmark score {quoted('my sounds')}")
    earmark score 'my sounds'
    """
    return shlex.quote(str(word))


def short_repr(result: Any) -> str:
    """Return a dataclass on one line: arrays and tables by their sizes, long values cut short.

    A dataclass that holds arrays or tables has ``__repr__ = short_repr`` in its body.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass
    ... class Found:
    ...     name: str
    ...     scores: np.ndarray
    ...     __repr__ = short_repr
    >>> Found("dogs", np.zeros((400, 3)))
    Found(name='dogs', scores=<float64 400 x 3>)
    """
    shown = (f"{one.name}={_shown(getattr(result, one.name))}" for one in fields(result))
    return f"{type(result).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if hasattr(value, "columns") and hasattr(value, "height"):
        return f"<{value.height:,} x {value.width} table>"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        size = " x ".join(f"{length:,}" for length in value.shape)
        return f"<{value.dtype} {size or 'number'}>"
    if isinstance(value, Path):
        return repr(str(value))
    if is_dataclass(value):
        return f"<{type(value).__name__}>"
    text = _SHORT.repr(value)
    if len(text) <= _LONGEST:
        return text
    is_many = isinstance(value, Mapping | tuple | list | set | frozenset)
    return f"<{len(value):,} items>" if is_many else text


_DAMAGED = "is it damaged, cut short, or another kind of file?"
_LONGEST_REASON = 200

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What the disk cannot do is not the fault of a file that is read."""


@contextmanager
def reading(path: object, what: str, advice: str = _DAMAGED) -> Iterator[None]:
    """Turn whatever is raised over bytes from elsewhere into an error that names their file.

    The boundary where foreign bytes enter: every reader of files stands behind it, here or by
    :func:`reader`, and so needs to know only those mistakes that it can explain better. Libraries
    raise errors of any kind over damaged bytes, and those written in Rust panic, which Python does
    not even count among its ``Exception``. What passes is our own, what a user or a scheduler
    sends (Ctrl-C, an exit), a full disk, and a library that is not installed. Where memory ran out,
    :class:`~earmark.memory.OutOfMemory` names the file.

    >>> with reading("a.json", "JSON"):
    ...     [][0]
    Traceback (most recent call last):
    earmark.errors.EarmarkError: a.json: cannot be read as JSON (IndexError: list index out of \
range); is it damaged, cut short, or another kind of file?
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, OutOfMemory) and is_memory_error(error):
            size = Path(str(path)).stat().st_size if Path(str(path)).is_file() else 0
            purpose = f"reading {path}, {format_bytes(size)}" if size else f"reading {path}"
            raise OutOfMemory(describe_memory_error(error, purpose)) from error
        if not _is_about_bytes(error):
            raise
        raise EarmarkError(
            f"{path}: cannot be read as {what} ({told_briefly(error)}); {advice}"
        ) from error


def reader(
    what: str, advice: str = _DAMAGED, *, at: int = 0
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Put a function behind :func:`reading`; its argument ``at`` is the file or folder it reads."""

    def behind(read: Callable[P, Result]) -> Callable[P, Result]:
        name = list(inspect.signature(read).parameters)[at]

        @functools.wraps(read)
        def reads(*args: P.args, **options: P.kwargs) -> Result:
            with reading(options[name] if name in options else args[at], what, advice):
                return read(*args, **options)

        return reads

    return behind


@contextmanager
def about(path: object) -> Iterator[None]:
    """Put the name of a file before an error of ours that was raised over what it holds."""
    try:
        yield
    except EarmarkError as error:
        if type(error) is not EarmarkError or str(path) in str(error):
            raise
        raise EarmarkError(f"{path}: {error}") from error


def told_briefly(error: BaseException) -> str:
    """Return the kind of an error and the beginning of its message, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    message = " ".join(str(error).split())[:_LONGEST_REASON]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _is_about_bytes(error: BaseException) -> bool:
    """Tell whether an error may be the fault of the bytes that were read."""
    if isinstance(error, EarmarkError | EarmarkWarning | OutOfMemory):
        return False
    if isinstance(error, OSError):
        return error.errno not in _NO_ROOM
    if isinstance(error, ModuleNotFoundError):
        return missing_library(error) is None
    # A panic of Rust's: its class cannot be imported, and each library has one of its own.
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def check_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if not path.is_file():
        raise EarmarkError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")


def load_library(name: str, purpose: str, extra: str) -> Any:
    """Import an optional library; where it is missing, say what for and how to install it.

    ``purpose`` begins the message ("reading audio"), ``extra`` is the part of earmark that brings
    the library.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        if is_memory_error(error):
            raise
        is_missing = isinstance(error, ModuleNotFoundError) and name.startswith(error.name or name)
        why = "" if is_missing else f", which cannot be loaded ({error})"
        raise EarmarkError(
            f"{purpose} needs the library {name!r}{why}; "
            f"install it with: pip install 'earmark[{extra}]'"
        ) from None


def check_libraries(purpose: str, *names: str, extra: str = "") -> None:
    """Refuse work for which optional libraries are missing, before any of it is done.

    ``extra`` is the one to install, where one brings them all.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise _to_install(purpose, missing, extra)


def missing_library(error: ModuleNotFoundError, purpose: str = "this") -> EarmarkError | None:
    """Turn a failed import of an optional library into a message; None for any other module."""
    name = (error.name or "").partition(".")[0]
    return _to_install(purpose, [name]) if name in EXTRAS else None


def _to_install(purpose: str, names: Sequence[str], extra: str = "") -> EarmarkError:
    """Return the message that names libraries and the extras that bring them.

    >>> print(_to_install("a whole run", ["torch", "soundfile"]))
    a whole run needs torch and soundfile: pip install 'earmark[audio,train]'
    """
    extras = extra or ",".join(sorted({EXTRAS[name] for name in names}))
    return EarmarkError(f"{purpose} needs {' and '.join(names)}: pip install 'earmark[{extras}]'")
