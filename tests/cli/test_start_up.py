"""What a verb loads before it has anything to do: the list of verbs is instant."""

from __future__ import annotations

import json

from typer.main import get_command

from earmark.cli.app import app
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
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        app([*words, "--help"], standalone_mode=False)
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


def test_a_scan_loads_no_stage_but_its_own() -> None:
    """Nor what makes reports, figures, cards and queues."""
    loads = "import earmark.pipeline, sys; earmark.pipeline.scan; print(*sorted(sys.modules))"
    result = run_without([], ["-c", loads])
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    others = ("finding", "teaching", "study", "report", "models", "demo", "running", "listening")
    assert loaded & {f"earmark.pipeline.{name}" for name in others} == set()
    pages = ("page", "figures", "charts", "verdict", "missing.card", "missing.demo_page")
    assert loaded & {f"earmark.report.{name}" for name in pages} == set()
