"""How a function that does a command's work describes its parameters to a command line.

The function says it in its signature, once: ``clips: Annotated[Path, Option("All clips.")]``.
:mod:`earmark.cli.commands` makes options of it. Nothing here needs a library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from earmark.errors import EarmarkError

SAME = object()
"""A default that is the function's own."""


@dataclass(frozen=True)
class Option:
    """What a command line has to know of a parameter that it offers as an option.

    ``name`` is how it is spelled where that differs from the parameter, ``low`` and ``high`` are
    the least and the most of a number. ``read`` makes the value of a text. ``default`` is what a
    command gives where nothing is said, if that is not the function's default.
    """

    help: str = ""
    name: str = ""
    low: float | None = None
    high: float | None = None
    read: Callable[[str], Any] | None = None
    default: Any = SAME


@dataclass(frozen=True)
class Argument(Option):
    """The same of a parameter that has a place and no name; ``name`` is what help calls it."""


@dataclass(frozen=True)
class Fields:
    """Says of a parameter that is a record that its fields are the options.

    A field is offered if it has an :class:`Option`. Only those that are given make the record;
    where none is, the function's default holds.
    """


def read_numbers(text: str) -> list[float]:
    """Read numbers with commas between.

    >>> read_numbers("0.5, 1")
    [0.5, 1.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise EarmarkError(f"expected numbers with commas between, got {text!r}") from None


def read_whole_numbers(text: str) -> list[int]:
    """Read whole numbers with commas between.

    >>> read_whole_numbers("0,1,2")
    [0, 1, 2]
    """
    return [int(number) for number in read_numbers(text)]


def read_shares(text: str) -> dict[str, float]:
    """Read the shares of train, tune and eval; only their proportions count.

    >>> read_shares("80,10,10")
    {'train': 0.8, 'tune': 0.1, 'eval': 0.1}
    """
    given = read_numbers(text)
    if len(given) != 3 or min(given) <= 0:
        raise EarmarkError(f"expected three numbers above 0, such as 80,10,10, got {text!r}")
    return {name: n / sum(given) for name, n in zip(("train", "tune", "eval"), given, strict=True)}


def read_names(text: str) -> tuple[str, ...]:
    """Split a list of names at its commas; AudioSet's names contain some, so use ; for those.

    >>> read_names("Bark; Male speech, man speaking"), read_names("Bark, Meow")
    (('Bark', 'Male speech, man speaking'), ('Bark', 'Meow'))
    """
    parts = text.split(";" if ";" in text else ",")
    return tuple(name.strip() for name in parts if name.strip())


def read_share_or_mean(text: str) -> float | str:
    """Read a share such as 0.25, or the word mean."""
    if text == "mean":
        return text
    try:
        return float(text)
    except ValueError:
        raise EarmarkError(f"expected a share such as 0.25, or mean; got {text!r}") from None
