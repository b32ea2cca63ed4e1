"""The verbs as a whole, and one alone: what a command does not need is not set up."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from typer import Typer
from typer.core import TyperGroup, TyperOption
from typer.main import get_command_name
from typer.models import CommandInfo


class Verbs(TyperGroup):
    """All verbs. Whether help was asked for is known without pydantic, which loads slowly."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        """Return the option, which is off where it is not given, rather than nothing at all."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


def only(app: Typer, words: Sequence[str]) -> Typer:
    """Return an app with the one verb that is named first, or else all verbs without their options.

    To list verbs, or to refuse what is none, takes their names and what they are for; to set up the
    options of all of them takes longer than to set up ``scan``.
    """
    alone = copy.copy(app)
    apps = list(_apps(app))
    alone.registered_commands = [
        one for each in apps for one in each.registered_commands if _name(one) in words
    ]
    alone.registered_groups = [
        one for each in apps for one in each.registered_groups if one.name in words
    ]
    if alone.registered_commands or alone.registered_groups:
        return alone
    is_option = words[:1] != ["--help"] and any(word.startswith("-") for word in words[:1])
    return app if is_option else _listed(app)  # a verb may follow the option


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


def _apps(app: Typer) -> Iterator[Typer]:
    """Yield an app, and the apps that were added to it without a name."""
    yield app
    for group in app.registered_groups:
        if group.typer_instance is not None and not isinstance(group.name, str):
            yield from _apps(group.typer_instance)


def _name(command: CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))
