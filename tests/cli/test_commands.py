"""Options come from the signature of the function that does the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import pytest
import typer
from typer.testing import CliRunner

from earmark.cli.commands import Call, Command, chosen_engine
from earmark.compute import HERE, Engine, LocalEngine, RayEngine
from earmark.config import ResourceParams, TaskResources
from earmark.errors import EarmarkError
from earmark.labels import GUESSED, Reading
from earmark.options import Argument, Fields, Option, read_names, read_numbers


@dataclass(frozen=True)
class Size:
    width: Annotated[int, Option("Of the picture.", low=1)] = 3
    height: Annotated[int, Option()] = 4
    depth: int = 5


class Colours(TypedDict, total=False):
    red: Annotated[float, Option("A share.")]
    is_loud: Annotated[bool, Option(name="--loud")]


def draw(
    work: Path,
    names: Annotated[Sequence[str], Argument("Who is on it.", "NAME...")],
    *,
    scale: Annotated[Literal["small", "large"], Option()] = "small",
    points: Annotated[Sequence[float] | None, Option(read=read_numbers)] = None,
    raters: Annotated[Sequence[str], Option(read=read_names)] = (),
    size: Annotated[Size | None, Fields()] = None,
    reading: Reading = GUESSED,
    engine: Engine = HERE,
    hidden: int = 7,
    **colours: Unpack[Colours],
) -> dict[str, Any]:
    return {**locals(), **colours}


def erase(work: Path, *, out: Annotated[str | Path | None, Option()] = None) -> str:
    return f"{work} {out}"


def ran(*words: str, prints: Callable[[Call], None]) -> Any:
    """Run a command of both functions as from a shell."""
    command = Command(prints, [])
    command.functions = lambda: [draw, erase]  # type: ignore[method-assign]
    app = typer.Typer()
    app.command("draw")(command)
    app.command("other")(lambda: None)
    done = CliRunner().invoke(app, ["draw", *words])
    if isinstance(done.exception, EarmarkError):
        raise done.exception
    return done


def drawn(*words: str) -> dict[str, Any]:
    """Return what the function was given."""
    given: dict[str, Any] = {}
    done = ran("W", "ann", *words, prints=lambda call: given.update(call("draw")))
    assert done.exit_code == 0, done.output
    return given


def test_what_is_not_said_is_the_functions_default() -> None:
    given = drawn()
    assert (given["work"], given["names"], given["scale"]) == (Path("W"), ["ann"], "small")
    assert (given["points"], given["raters"], given["size"]) == (None, (), None)
    assert given["reading"] == GUESSED
    assert (given["colours"], given["hidden"]) == ({}, 7)


def test_values_have_the_functions_types() -> None:
    given = drawn(
        "bob", "--scale", "large", "--points", "1,2.5", "--raters", "x, y", "--width", "9",
        "--column", "class_id=bird", "--zeros", "absent", "--red", "0", "--loud",
        "--workers", "2",
    )  # fmt: skip
    assert given["names"] == ["ann", "bob"]
    assert (given["scale"], given["points"]) == ("large", [1, 2.5])
    assert given["raters"] == ("x", "y")
    assert given["size"] == Size(width=9)
    assert given["reading"] == Reading({"class_id": "bird"}, None, "absent")
    assert given["colours"] == {"red": 0.0, "is_loud": True}
    assert given["engine"] == LocalEngine(2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--scale", "huge"], "--scale is small or large, got 'huge'"),
        (["--points", "1;2"], "--points: expected numbers with commas between, got '1;2'"),
        (["--column", "bird"], "--column is ROLE=NAME"),
        (["--engine", "cloud"], "--engine is local, ray"),
        (["--out", "x"], "--out does not go with a picture"),
    ],
)
def test_mistakes_name_the_option(words: list[str], complaint: str) -> None:
    with pytest.raises(EarmarkError, match=complaint):
        ran("W", "ann", *words, prints=lambda call: call("draw", because="a picture"))


def test_what_is_not_annotated_is_not_offered() -> None:
    for option in ("--hidden", "--depth"):
        done = ran("W", "ann", option, "1", prints=lambda call: call("draw"))
        assert done.exit_code == 2
        assert "No such option" in done.output


def test_a_command_says_what_was_given_of_a_record() -> None:
    fields: list[set[str]] = []
    ran("W", "ann", "--width", "2", prints=lambda call: fields.append(call.given("size")))
    assert fields == [{"width"}]


def test_work_runs_here_unless_a_cluster_is_asked_for() -> None:
    assert chosen_engine(None) == LocalEngine()
    assert chosen_engine(3) == LocalEngine(3)


def test_a_cluster_is_given_the_resources_of_the_recipe() -> None:
    resources = ResourceParams(train=TaskResources(gpus=0.25))
    assert chosen_engine(None, "ray", resources) == RayEngine(None, resources)
    there = chosen_engine(None, "ray://there:10001", resources)
    assert there == RayEngine("ray://there:10001", resources)


def test_an_unknown_engine_is_refused_with_the_choices() -> None:
    with pytest.raises(EarmarkError, match=r"local, ray or ray://HOST:PORT, got 'spark'"):
        chosen_engine(None, "spark")


def test_workers_are_not_a_clusters() -> None:
    with pytest.raises(EarmarkError, match=r"\[resources\] in the recipe"):
        chosen_engine(2, "ray")
