"""Every ``earmark ...`` line in docs and messages is one that the command line understands."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from called_verbs import with_options
from documents import DOCUMENTS, ROOT, blocks, inline_code
from earmark.cli.app import app
from earmark.config import shipped_recipes
from earmark.flags import POLICIES
from extras import is_installed

ENDS = {"&&", "||", "|", ";", "&"}
SOURCES = sorted((ROOT / "src").glob("earmark/**/*.py"))
OPTIONS_OF_OTHERS = {"--shutdown-timeout"}  # torchrun's
NEEDS_TORCH = pytest.mark.skipif(not is_installed("torch"), reason="strategies need torch")
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9]*")


def test_commands_in_blocks_are_understood() -> None:
    told = [
        (str(block), line)
        for path in DOCUMENTS
        for block in blocks(path)
        for line in lines(block.text)
    ]
    assert len(told) > 10
    assert_understood(told, check)


def test_commands_in_sentences_are_understood() -> None:
    told = [
        (str(code), line)
        for path in DOCUMENTS
        for code in inline_code(path)
        for line in lines(code.text)
    ]
    assert len(told) > 30
    assert_understood(told, check_mention)


def test_options_in_sentences_exist() -> None:
    own = {option for verb in verbs(command_line()) for option in options_of(verb)}
    known = own | OPTIONS_OF_OTHERS
    for path in DOCUMENTS:
        for code in inline_code(path):
            if code.text.startswith("--"):
                option = re.split(r"[ =]", code.text)[0]
                assert option in known, f"{code}: no verb has the option {option}"


def test_commands_that_the_program_names_are_understood() -> None:
    told = [
        (f"{path.relative_to(ROOT)}:{number}", line)
        for path in SOURCES
        for number, text in texts(path)
        for code in commands_named(text)
        for line in lines(code)
    ]
    assert len(told) > 30
    assert_understood(told, check_mention)


def test_paths_in_commands_can_be_pasted_into_a_shell() -> None:
    """A path with a space would be two words: whatever is filled in goes through quoted()."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(part.value)}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr)
        for part in filled_into_commands(node)
        if not re.match(r"quoted\(|verb$|[A-Z_]+$|'[a-z]+' if", ast.unparse(part.value))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("flog W", "no verb"),
        ("import tables L --work W", "no verb"),
        ("flag", "[Mm]issing argument"),
        ("flag W --percent 1", "[Nn]o such option"),
        ("flag W --discard-percent 101", "less than or equal to 100"),
        ("import table clips.csv labels.csv --work W", "unexpected extra argument"),
        ("run audioset --work W", "no recipe"),
        pytest.param("compare W --strategy maske", "maske", marks=NEEDS_TORCH),
        ("scan --labels L --scores S --policy best", "no policy"),
    ],
)
def test_a_wrong_line_is_found_out(line: str, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        check(shlex.split(line))


def test_a_mention_may_leave_out_what_a_command_needs() -> None:
    check_mention(["export"])
    check_mention(["review", "--overlap"])
    with pytest.raises(Exception, match=r"[Nn]o such option"):
        check_mention(["review", "--overlaps"])
    with pytest.raises(Exception, match=r"[Mm]issing"):
        check_mention(["export", "W"])


def assert_understood(
    told: list[tuple[str, list[str]]], check_line: Callable[[list[str]], None]
) -> None:
    """Hold all lines against the command line, and list those that it refuses."""
    wrong = []
    for place, line in told:
        try:
            check_line(line)
        except Exception as error:
            wrong.append(f"{place}: earmark {shlex.join(line)}: {error}")
    assert not wrong, "\n".join(wrong)


def check(words: list[str]) -> None:
    """Raise if the command line, which parses but does not run it, refuses the words."""
    verb, rest = verb_of(words)
    try:
        context = verb.make_context(verb.name, list(rest))
    except typer.TyperException as error:
        raise AssertionError(error.format_message()) from None
    for name, value in context.params.items():
        check_value(verb.name, name, value)


def check_mention(words: list[str]) -> None:
    """As ``check``, but a verb alone or with bare options (``review --overlap``) passes too."""
    verb, rest = verb_of(words, may_be_group=True)
    if not all(word.startswith("--") for word in rest):
        return check(words)
    unknown = [word for word in rest if word not in options_of(verb)]
    assert not unknown, f"no such option: {unknown[0]}"
    return None


def check_value(verb: str, name: str, value: Any) -> None:
    """Check the values that verbs look up by themselves, unless a placeholder such as NAME."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if one is not None and not PLACEHOLDER.fullmatch(str(one)):
            check_name(verb, name, str(one))


def check_name(verb: str, name: str, value: str) -> None:
    if name == "recipe" and not value.endswith(".toml"):
        assert value in shipped_recipes(), f"no recipe is called {value!r}"
    if name == "strategies" and is_installed("torch"):
        from earmark.experiments import parse_strategy

        parse_strategy(value, [1.0])
    if name == "policy" and verb == "scan":
        assert value in POLICIES, f"no policy is called {value!r}"


def verb_of(words: list[str], *, may_be_group: bool = False) -> tuple[Any, list[str]]:
    """Return the command that the first words name, and the other words."""
    verb, rest = command_line(), list(words)
    while hasattr(verb, "commands"):
        if may_be_group and not rest and verb.name:
            return verb, rest
        assert rest, "no verb is given"
        assert rest[0] in verb.commands, f"no verb is called {rest[0]!r}"
        verb = verb.commands[rest.pop(0)]
    return verb, rest


def verbs(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from verbs(command) if hasattr(command, "commands") else [command]


def options_of(verb: Any) -> set[str]:
    return {option for param in verb.params for option in (*param.opts, *param.secondary_opts)}


@cache
def command_line() -> Any:
    return with_options(typer.main.get_command(app))


def lines(text: str) -> Iterator[list[str]]:
    """Yield the words after each ``earmark`` that stands where a program's name stands."""
    for line in text.replace("\\\n", " ").splitlines():
        words = split(line)
        for place, word in enumerate(words):
            starts = place == 0 or words[place - 1] in (*ENDS, "-m") or "=" in words[place - 1]
            if word != "earmark" or not starts or place + 1 == len(words):
                continue
            end = next((i for i in range(place, len(words)) if words[i] in ENDS), len(words))
            yield words[place + 1 : end]


def split(line: str) -> list[str]:
    """Split as a shell does; a line of other things that is no shell's has no words."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a Python file, with W in place of what is filled in later."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "W" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def filled_into_commands(text: ast.JoinedStr) -> Iterator[ast.FormattedValue]:
    """Yield what is filled into the commands of a formatted text."""
    before = ""
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            if re.search(r"(^|`|next: )(earmark|open) [^`]*$", before):
                yield part
            before += "W"
        elif isinstance(part, ast.Constant):
            before += str(part.value)


def commands_named(text: str) -> Iterator[str]:
    """Yield what stands in backticks, and a text that is nothing but a command."""
    for code in re.findall(r"`+(earmark [^`]+)`", text):
        yield " ".join(code.split())
    if re.match(r"earmark [a-z]", text) and not re.search(r"[.:]|\d", text):
        yield text
