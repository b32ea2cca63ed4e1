"""What a verb loads before it has anything to do: the list of verbs is instant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from earmark.cli.app import app
from earmark.cli.verbs import only
from extras import OPTIONAL, run_without

OURS = {
    "earmark",
    "earmark.cli",
    "earmark.errors",
    "earmark.memory",
    "earmark.options",
    "earmark.text",
}
"""The rooms that options and printing are made of."""

HELP = """
import contextlib, io, json, sys
from earmark.cli.app import app
from earmark.cli.verbs import only
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        only(app, words or ["--help"])([*words, "--help"], standalone_mode=False)
print(*sorted(sys.modules))
"""


def test_the_list_of_commands_loads_no_library_and_no_room() -> None:
    """Names and sentences alone are read; typer itself brings rich."""
    result = run_without([], ["-c", HELP, json.dumps([[], ["import"]])])
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    heavy = {"numpy", "scipy", "polars", "pydantic", "sklearn", "jinja2", *OPTIONAL}
    assert loaded & heavy == set()
    rooms = {".".join(name.split(".")[:2]) for name in loaded if name.split(".")[0] == "earmark"}
    assert rooms <= OURS


def test_the_help_of_a_command_needs_no_extra() -> None:
    verbs = [[name] for name in get_command(app).commands]  # type: ignore[attr-defined]
    assert ["scan"] in verbs
    result = run_without([], ["-c", HELP, json.dumps(verbs)])
    assert result.returncode == 0, result.stderr
    assert set(result.stdout.split()) & OPTIONAL == set()


def options(command: Any) -> list[tuple[str, str]]:
    """Return the options of a verb, or those of all its verbs."""
    if hasattr(command, "commands"):
        return [pair for name in command.commands for pair in options(command.commands[name])]
    return [(command.name, option.name) for option in command.params]


def named(group: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield the words of every verb of a group, and the verb."""
    for name, verb in group.commands.items():
        if hasattr(verb, "commands"):
            yield from named(verb, [*words, name])
        else:
            yield [*words, name], verb


def test_a_verb_alone_is_the_same_verb() -> None:
    """So that none has to be set up but the one that is asked for."""
    for words, verb in named(get_command(app), []):
        ((found, alone),) = named(get_command(only(app, words)), [])
        assert found == words
        assert options(alone) == options(verb)


@pytest.mark.parametrize("words", [[], ["--help"], ["scn"]])
def test_all_verbs_are_there_to_be_listed(words: list[str]) -> None:
    verbs: Any = get_command(app)
    listed: Any = get_command(only(app, words))
    assert list(listed.commands) == list(verbs.commands)
    for name, verb in verbs.commands.items():
        assert listed.commands[name].get_short_help_str() == verb.get_short_help_str()
        assert set(options(listed.commands[name])) <= set(options(verb))


@pytest.mark.parametrize("words", [["--"], ["--version"]])
def test_a_verb_after_an_option_has_its_own_options(words: list[str]) -> None:
    assert only(app, words) is app


def test_a_scan_loads_no_stage_but_its_own() -> None:
    """Nor what makes reports, figures, cards and queues."""
    loads = "import earmark.pipeline, sys; earmark.pipeline.scan; print(*sorted(sys.modules))"
    result = run_without([], ["-c", loads])
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    others = ("finding", "teachers", "teaching", "study", "report", "models", "whole", "listening")
    assert loaded & {f"earmark.pipeline.{name}" for name in others} == set()
    pages = ("page", "figures", "charts", "verdict", "missing.card", "missing.demo_page")
    assert loaded & {f"earmark.report.{name}" for name in pages} == set()
