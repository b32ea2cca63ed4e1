"""Commands made from the functions that do their work.

``@offers("pipeline.scan")`` over a function that prints makes a command of both. It has the options
of :func:`earmark.pipeline.scan` (see :mod:`earmark.options`) and those of the function that prints,
which is handed a :class:`Call`. The package that does the work is imported when the command is
called: help lists commands without their options (:class:`CommandGroup`). Parameters that many
functions share by name are described here, once.
"""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import typer
from typer.core import TyperGroup, TyperOption
from typer.main import get_command_from_info
from typer.models import CommandInfo

from earmark.errors import EarmarkError
from earmark.options import SAME, Argument, Fields, Option
from earmark.text import printable

if TYPE_CHECKING:
    from earmark.compute import Engine
    from earmark.config import ResourceParams

_EMPTY = inspect.Parameter.empty


def _hide_progress(context: typer.Context, as_json: bool) -> bool:
    if as_json:
        from earmark.compute import hide_progress

        context.with_resource(hide_progress())
    return as_json


AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as JSON, for programs.",
        callback=_hide_progress,
        metavar="",
    ),
]
Details = Annotated[
    bool, typer.Option("--details", help="Print everything, however long.", metavar="")
]


def _read_columns(pairs: Sequence[str]) -> dict[str, str]:
    """Read ROLE=NAME, which may be repeated."""
    parts = [pair.partition("=") for pair in pairs]
    for role, equals, name in parts:
        if not (role and equals and name):
            raise EarmarkError(
                f"--column is ROLE=NAME, such as class_id=bird, got {role + equals!r}"
            )
    return {role: name for role, _, name in parts}


_SHARED: dict[str, Any] = {
    "root": Annotated[Path, Argument("The dataset's folder.", "ROOT")],
    "recipe": Annotated[str, Option("A shipped recipe's name or a TOML file; the last one used.")],
    "columns": Annotated[
        list[str],
        Option("ROLE=NAME where a guess would be wrong; repeatable.", "--column"),
    ],
    "separator": Annotated[
        str, Option("Between labels in one cell.", read=lambda text: text or None)
    ],
    "zeros": Annotated[
        Literal["implicit", "absent"],
        Option("What 0 means in a multi-hot table: implicit or absent."),
    ],
    "replace": Annotated[bool, Option("Put it in the place of another dataset in WORK.")],
    "allow": Annotated[
        list[Path], Option("Another folder that paths and links of sound may lead into.")
    ],
    "remote": Annotated[bool, Option("Fetch sound that https://, s3:// and gs:// name.")],
}
_WORK = Annotated[Path, Argument("The workspace folder.", "WORK")]
_NEW_WORK = Annotated[Path, Option("The workspace folder to write.")]
_WORKERS = Annotated[int, Option("Processes; all cores.", low=1)]
_ENGINE = Annotated[str, Option("Where work runs: local, ray, ray://HOST:PORT.")]
_METAVARS: dict[Any, str] = {
    bool: "",
    int: "N",
    float: "NUMBER",
    str: "TEXT",
    list[str]: "TEXT",
    Path: "PATH",
    list[Path]: "PATH",
}
_READING = ("columns", "separator", "zeros")
"""What is said of how a table of labels is to be read, which some functions take as one."""


@dataclass(frozen=True)
class _Offered:
    """A parameter as a shell gives it."""

    name: str
    kind: Any
    option: Option
    default: Any
    choices: tuple[str, ...] = ()
    record: str = ""
    """The parameter that is a record with this field."""

    @classmethod
    def of(cls, name: str, hint: Any, default: Any, record: str = "") -> _Offered:
        kind, option = typing.get_args(hint)[0], _note(hint, Option)
        if option.default is not SAME:
            default = option.default
        found, choices = (str, ()) if option.read else _shell_kind(kind)
        return cls(name, found, option, default, choices, record)

    @property
    def spelling(self) -> str:
        """The name on the command line."""
        if isinstance(self.option, Argument):
            return self.option.name or self.name.upper()
        return self.option.name or f"--{self.name.replace('_', '-')}"

    def parameter(self) -> inspect.Parameter:
        """Return it as Typer takes it."""
        option = self.option
        limits: dict[str, Any] = {"help": option.help, "min": option.low, "max": option.high}
        default = None if self.default == () else self.default
        if isinstance(option, Argument):
            info: Any = typer.Argument(metavar=self.spelling, **limits)
        elif self.kind is bool and self.default:  # --name and --no-name
            info = typer.Option(*filter(None, [option.name]), **limits)
        else:
            info = typer.Option(self.spelling, metavar=_METAVARS.get(self.kind), **limits)
        kind = self.kind if default is _EMPTY else self.kind | None
        by_name = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(
            self.name, by_name, default=default, annotation=Annotated[kind, info]
        )

    def read(self, value: Any) -> Any:
        """Return what the function takes for what the shell gave."""
        if self.name == "columns":
            return _read_columns(value or ())
        if value is None:
            return () if self.default == () else None
        try:
            if self.option.read is not None and isinstance(value, str):
                return self.option.read(value)
        except EarmarkError as error:
            raise EarmarkError(f"{self.spelling}: {error}") from None
        return one_of(self.spelling, value, self.choices) if self.choices else value


def _note(hint: Any, kind: type[Any]) -> Any:
    """Return what a hint has noted of some kind; None if nothing."""
    notes = getattr(hint, "__metadata__", ())
    return next((note for note in notes if isinstance(note, kind)), None)


def _shell_kind(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the type by which a shell gives a parameter, and its choices if there are some."""
    origin, kinds = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return str, kinds
    if origin in (typing.Union, types.UnionType):
        known = [_shell_kind(kind) for kind in kinds if kind is not types.NoneType]
        preferred = (Path, bool, int, float)
        return next((one for one in known if one[0] in preferred), known[0])
    if origin is not None and issubclass(origin, Sequence):
        return list[_shell_kind(kinds[0])[0]], ()  # type: ignore[misc]
    return hint, ()


def _hints(function: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the hint and the default of every parameter."""
    names = inspect.unwrap(function).__globals__
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if isinstance(hint, str):
            try:
                alone = types.SimpleNamespace(__annotations__={name: hint})
                hint = typing.get_type_hints(alone, names, include_extras=True)[name]
            except NameError:  # a type that is imported for mypy alone, and not offered
                hint = None
        yield name, hint, parameter.default


def _record_type(name: str, hint: Any) -> Any:
    """Return the type of a parameter whose fields are options; None of others."""
    if typing.get_origin(hint) is Unpack:
        return typing.get_args(hint)[0]
    if _note(hint, Fields):
        kind = typing.get_args(hint)[0]
        return next((one for one in typing.get_args(kind) if one is not types.NoneType), kind)
    return hint if name == "reading" else None


def _offered(function: Callable[..., Any]) -> Iterator[_Offered]:
    """Yield what a function's signature offers to a shell."""
    for place, (name, hint, default) in enumerate(_hints(function)):
        record = _record_type(name, hint)
        if name == "reading":
            for one in _READING:
                yield _Offered.of(one, _SHARED[one], "implicit" if one == "zeros" else None, name)
        elif record is not None:
            for field, of_field in typing.get_type_hints(record, include_extras=True).items():
                if _note(of_field, Option):
                    yield _Offered.of(field, of_field, None, name)
        elif _note(hint, Option):
            yield _Offered.of(name, hint, default)
        elif name == "work":
            yield _Offered.of(name, _NEW_WORK if place else _WORK, default)
        elif name == "engine":
            if default is not None:
                yield _Offered.of("workers", _WORKERS, None)
            yield _Offered.of("engine", _ENGINE, "local")
        elif name in _SHARED:
            yield _Offered.of(name, _SHARED[name], default)


def _offered_by(functions: Sequence[Callable[..., Any]]) -> dict[str, _Offered]:
    """Return what several functions offer, by name; the first of them describes what they share."""
    offered: dict[str, _Offered] = {}
    for function in functions:
        for one in _offered(function):
            offered.setdefault(one.name, one)
    return offered


def _is_given(value: object) -> bool:
    """Tell a value from an option that was not given; 0 is a value."""
    return value is not None and value is not False


class Call:
    """The work of a command, not yet done, with what the shell gave for it.

    ``call["name"]`` is what was given for a parameter. ``call()`` does the work, ``call("NAME")``
    that of one of several functions; options that only the others take are refused then.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], given: dict[str, Any], own: Iterable[str]
    ) -> None:
        self._functions = {function.__name__: function for function in functions}
        self._given, self._own = given, set(own)
        self._offered = _offered_by(functions)

    @property
    def name(self) -> str:
        """The name of the function, of the first where there are several."""
        return next(iter(self._functions))

    def given(self, record: str) -> set[str]:
        """Return the names of the fields of a record that were given."""
        return {
            offered.name
            for function in self._functions.values()
            for offered in _offered(function)
            if offered.record == record and _is_given(self._given[offered.name])
        }

    def fields(self, record: str) -> dict[str, Any]:
        """Return the fields of a record that were given, by name."""
        return {name: self[name] for name in sorted(self.given(record))}

    def __getitem__(self, name: str) -> Any:
        return self._offered[name].read(self._given[name])

    def __call__(self, name: str | None = None, /, because: str = "", **more: Any) -> Any:
        """Do the work; ``because`` is the option that chose the function, for what is refused."""
        function = self._functions[name or self.name]
        offered = list(_offered(function))
        if because:
            self._refuse_others({*more, *self._own, *(option.name for option in offered)}, because)
        values = self._values(function, offered) | more
        progress = inspect.signature(function).parameters.get("progress")
        if progress is None or progress.default is not None:
            return function(**values)
        from earmark.compute import Display

        with Display() as display:
            return function(**values, progress=display)

    def _refuse_others(self, names: set[str], because: str) -> None:
        """Refuse options that were given and are for other functions."""
        for name, offered in self._offered.items():
            if name not in names and self._given[name] not in (None, offered.default):
                raise EarmarkError(f"{offered.spelling} does not go with {because}")

    def _values(self, function: Callable[..., Any], offered: list[_Offered]) -> dict[str, Any]:
        """Return what was given, by the function's parameters."""
        parameters = inspect.signature(function).parameters
        read = {one.name: one.read(self._given[one.name]) for one in offered if not one.record}
        values = {
            name: value
            for name, value in read.items()
            if value is not None or name not in parameters or parameters[name].default is _EMPTY
        }
        for name, hint, _ in _hints(function):
            record = _record_type(name, hint)
            fields = {} if record is None else self.fields(name)
            if fields and typing.get_origin(hint) is Unpack:
                values |= fields
            elif fields:
                values[name] = getattr(record, "checked", record)(**fields)
        if "engine" in values:
            values["engine"] = self._engine(values.pop("workers", None))
        return values

    def _engine(self, workers: int | None) -> Engine | None:
        engine = self._given["engine"]
        if engine == "local" and "workers" not in self._offered:
            return None  # in this process, which passes over scores fastest
        return chosen_engine(workers, engine, None if engine == "local" else self._resources())

    def _resources(self) -> ResourceParams | None:
        """Return what a task takes on a cluster, by the recipe."""
        from earmark import pipeline

        if "work" not in self._given or "recipe" not in self._given:
            return None
        return pipeline.choose_recipe(self["work"], self["recipe"]).resources


def chosen_engine(
    workers: int | None, engine: str = "local", resources: ResourceParams | None = None
) -> Engine:
    """Return the engine asked for: processes on this machine, one for each core, or a cluster.

    On a cluster the recipe's ``resources`` say how many tasks fit, in place of ``workers``.
    """
    from earmark.compute import LocalEngine, RayEngine
    from earmark.config import ResourceParams

    if engine == "local":
        return LocalEngine() if workers is None else LocalEngine(workers)
    if engine != "ray" and not engine.startswith("ray://"):
        raise EarmarkError(f"--engine is local, ray or ray://HOST:PORT, got {engine!r}")
    if workers is not None:
        raise EarmarkError(
            "--workers counts processes on this machine; on a cluster [resources] in the recipe "
            "says what a task takes, and as many run at once as fit"
        )
    return RayEngine(None if engine == "ray" else engine, resources or ResourceParams())


def one_of(option: str, value: str | None, choices: tuple[str, ...]) -> Any:
    """Return the value of an option, or refuse it and list the choices."""
    if value is not None and value not in choices:
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise EarmarkError(f"{option} is {listed}, got {value!r}")
    return value


class Command:
    """A function that prints, as a command with the options of the functions that do the work."""

    def __init__(self, prints: Callable[..., None], works: Sequence[str]) -> None:
        self._prints, self._works = prints, works
        self.__name__, self.__doc__ = prints.__name__, prints.__doc__
        self.__annotations__: dict[str, Any] = {}

    def functions(self) -> list[Callable[..., Any]]:
        """Import the functions that do the work."""
        paths = [work.rpartition(".") for work in self._works]
        return [
            getattr(importlib.import_module(f"earmark.{package}"), name)
            for package, _, name in paths
        ]

    @property
    def _own(self) -> dict[str, inspect.Parameter]:
        """The options of the function that prints."""
        parameters = inspect.signature(self._prints, eval_str=True).parameters.values()
        by_name = inspect.Parameter.KEYWORD_ONLY
        return {option.name: option.replace(kind=by_name) for option in list(parameters)[1:]}

    @property
    def __signature__(self) -> inspect.Signature:
        offered, own = _offered_by(self.functions()), self._own
        work = [option.parameter() for name, option in offered.items() if name not in own]
        return inspect.Signature([*work, *own.values()])

    def __call__(self, **given: Any) -> None:
        """Do the work with what a shell gave, and print what came of it."""
        own = {name: given[name] for name in self._own}
        self._prints(Call(self.functions(), given, own), **own)

    def without_options(self) -> Callable[[], None]:
        """Return a function by which Typer can list the command; it cannot be called."""

        def listed() -> None:
            raise AssertionError("CommandGroup calls the command itself")

        listed.__name__, listed.__doc__ = self.__name__, self.__doc__
        listed.command = self  # type: ignore[attr-defined]
        return listed


def offers(*works: str) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function that prints, with the options of those that do the work."""
    return lambda prints: Command(prints, works)


class CommandGroup(TyperGroup):
    """Commands whose options are set up when they are called: those of all take a second."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that is called, with its options."""
        name, listed, rest = super().resolve_command(ctx, args)
        command = getattr(getattr(listed, "callback", None), "command", None)
        if command is None:
            return name, listed, rest
        info = CommandInfo(name=name, callback=command)
        mode = self.rich_markup_mode
        whole = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=mode)
        return name, whole, rest

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of commands in the order in which they were added."""
        del ctx
        return list(self.commands)

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        """Return the option, off by default: an unset one makes Typer load pydantic."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the options before the command."""
        with _printable_messages():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the command's options and run it."""
        with _printable_messages():
            return super().invoke(ctx)


@contextmanager
def _printable_messages() -> Iterator[None]:
    """Escape control characters in Typer's own messages, which quote what was typed."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):
            lines = error.format_message().expandtabs().split("\n")
            message = "\n".join(map(printable, lines))
            error.format_message = lambda: message
        raise
