"""The verbs as a whole, and one alone: what a command does not need is not set up."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from typer import Typer
from typer.core import TyperGroup, TyperOption
from typer.main import get_command_name
from typer.models import CommandInfo, TyperInfo

from earmark.text import printable

PANELS = {
    "Owners": (
        "demo", "find", "scan", "review", "answers", "relabel", "export", "check", "diff", "report",
    ),
    "Trainers": ("import", "features", "score", "flag", "train", "tag", "evaluate", "teachers"),
    "Researchers": ("run", "sweep", "compare"),
}  # fmt: skip
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


class Verbs(TyperGroup):
    """All verbs. Whether help was asked for is known without pydantic, which loads slowly."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        """Return the option, which is off where it is not given, rather than nothing at all."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the options before the verb."""
        with _printable_messages():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the verb's options and run it."""
        with _printable_messages():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of commands, those that help groups in its order."""
        del ctx
        order = [name for names in PANELS.values() for name in names]
        return sorted(self.commands, key=lambda name: order.index(name) if name in order else 0)


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


def only(app: Typer, words: Sequence[str]) -> Typer:
    """Return an app with the one verb that is named first, or else all verbs without their options.

    To list verbs, or to refuse what is none, takes their names and what they are for; to set up the
    options of all of them takes longer than to set up ``scan``.
    """
    alone = copy.copy(app)
    apps = list(_apps(app))
    alone.registered_commands = [
        one for each in apps for one in each.registered_commands if _name(one) in words[:1]
    ]
    alone.registered_groups = [
        _alone(one, words[1:])
        for each in apps
        for one in each.registered_groups
        if one.name in words[:1]
    ]
    if alone.registered_commands or alone.registered_groups:
        return alone
    is_option = words[:1] != ["--help"] and any(word.startswith("-") for word in words[:1])
    return app if is_option else _listed(app)  # a verb may follow the option


def _alone(group: TyperInfo, words: Sequence[str]) -> TyperInfo:
    """Return a group of verbs with the one that is named, or with all that can be listed."""
    alone = copy.copy(group)
    if group.typer_instance is not None:
        alone.typer_instance = only(group.typer_instance, words)
    return alone


def _listed(app: Typer) -> Typer:
    """Return an app whose verbs can be listed, but not called."""
    listed = copy.copy(app)
    listed.registered_commands = [_without_options(one) for one in app.registered_commands]
    listed.registered_groups = [copy.copy(one) for one in app.registered_groups]
    for group in listed.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance = _listed(group.typer_instance)
    return listed


def _without_options(command: CommandInfo) -> CommandInfo:
    def verb() -> None:
        raise AssertionError("a verb that is named is never without its options")

    verb.__doc__ = getattr(command.callback, "__doc__", None)
    bare = copy.copy(command)
    bare.name, bare.callback = _name(command), verb
    return bare


def group_by_panels(app: Typer) -> None:
    """Have help list every command with those for the same people."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    for part in _apps(app):
        for command in part.registered_commands:
            command.rich_help_panel = panel_of[_name(command)]
        for group in part.registered_groups:
            if isinstance(group.name, str):
                group.rich_help_panel = panel_of[group.name]


def _apps(app: Typer) -> Iterator[Typer]:
    """Yield an app, and the apps that were added to it without a name."""
    yield app
    for group in app.registered_groups:
        if group.typer_instance is not None and not isinstance(group.name, str):
            yield from _apps(group.typer_instance)


def _name(command: CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))
