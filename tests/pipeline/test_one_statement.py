"""What is known of missing labels is one statement, whichever command, page or card shows it."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from checked import MEASURED, checkable_workspace, hear_all
from earmark import pipeline
from earmark.cli.app import app
from earmark.config import ReviewParams
from earmark.datasets import Workspace
from earmark.flags import LEAST_RANDOM, MissingEstimates
from made_up import Page

COMMANDS = ("relabel", "flag", "answers", "report")
ORDERS = list(itertools.permutations(COMMANDS))[::4]
TOTAL = "labels are missing"


def words(text: str) -> str:
    """Return a text with its lines joined."""
    return " ".join(text.replace("\u00a0", " ").split())


def run(command: str, root: Path, *more: str) -> str:
    """Run a command and return what it prints, or the page or card that it writes."""
    card = root.with_name("CARD.md")
    called = (
        ["report", str(root), "--card", str(card)] if command == "card" else [command, str(root)]
    )
    details = ["--details"] if command in ("flag", "answers", "check") else []
    done = CliRunner().invoke(app, [*called, *details, *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    if command == "report":
        return words(Page((root / "report" / "index.html").read_text()).text)
    return words(card.read_text()).replace("\\", "") if command == "card" else words(done.output)


def known_of(root: Path) -> MissingEstimates:
    return pipeline.check_workspace(root).evidence.estimates


@pytest.fixture(scope="module")
def unheard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, np.ndarray]:
    workspace, missing = checkable_workspace(tmp_path_factory.mktemp("one") / "w", 400)
    pipeline.write_flags(workspace)
    return workspace, missing


@pytest.fixture(scope="module", params=["find", "measure"])
def heard(
    request: pytest.FixtureRequest,
    unheard: tuple[Workspace, np.ndarray],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Workspace, np.ndarray]:
    """A workspace that was listened to, with flags that learnt from the answers."""
    workspace, missing = unheard
    root = tmp_path_factory.mktemp(request.param) / "w"
    shutil.copytree(workspace.root, root)
    workspace = Workspace.open(root)
    is_found = request.param == "find"
    hear_all(workspace, missing, params=ReviewParams(sample_share=0.5) if is_found else MEASURED)
    pipeline.write_flags(workspace)
    return workspace, missing


def test_before_listening_nothing_is_said_of_totals(
    unheard: tuple[Workspace, np.ndarray], tmp_path: Path
) -> None:
    root = tmp_path / "w"
    shutil.copytree(unheard[0].root, root)
    known = known_of(root)
    assert (known.total, known.class_totals, known.n_answers) == (None, {}, 0)
    assert known.n_right is not None
    for command in ("flag", "report", "check", "card"):
        shown = run(command, root)
        assert known.describe() in shown, command
        assert TOTAL not in shown, command
    for command in ("flag", "check"):
        facts = json.loads(CliRunner().invoke(app, [command, str(root), "--json"]).output)
        assert facts["missing"] == json.loads(json.dumps(known.facts()))


@pytest.mark.parametrize("order", ORDERS, ids=["-".join(order) for order in ORDERS])
def test_every_command_says_the_same_in_any_order(
    heard: tuple[Workspace, np.ndarray], tmp_path: Path, order: tuple[str, ...]
) -> None:
    root = tmp_path / "w"
    shutil.copytree(heard[0].root, root)
    expected = known_of(heard[0].root)
    for command in order:
        shown = run(command, root)
        if command != "relabel":
            assert expected.describe() in shown, command
    if order == ORDERS[0]:
        for command in ("check", "card"):
            assert expected.describe() in run(command, root), command
        assert expected.describe() in run("check", root, "--labels", "corrected")


def test_json_has_the_same_numbers(heard: tuple[Workspace, np.ndarray], tmp_path: Path) -> None:
    root = tmp_path / "w"
    shutil.copytree(heard[0].root, root)
    facts = [
        json.loads(CliRunner().invoke(app, [command, str(root), "--json"]).output)["missing"]
        for command in ("check", "answers", "flag")
    ]
    assert facts[0] == facts[1] == facts[2]


def test_a_total_holds_what_was_confirmed_and_its_classes_add_up(
    heard: tuple[Workspace, np.ndarray],
) -> None:
    workspace, missing = heard
    known = known_of(workspace.root)
    assert known.n_random >= LEAST_RANDOM
    assert known.total is not None
    assert known.total.low >= known.n_confirmed > 0
    assert sum(known.class_totals.values()) == pytest.approx(known.total.value)
    assert known.total.low <= missing.sum() <= known.total.high


def test_flags_of_corrected_labels_change_nothing_but_what_is_said_of_flags(
    heard: tuple[Workspace, np.ndarray], tmp_path: Path
) -> None:
    root = tmp_path / "w"
    shutil.copytree(heard[0].root, root)
    before = known_of(root)
    run("relabel", root)
    printed = run("flag", root, "--labels", "corrected")
    after = known_of(root)
    assert after.describe() in printed
    assert after.describe() in run("answers", root)
    names = ("n_answers", "n_confirmed", "n_random", "total", "class_totals", "n_positives")
    for name in names:
        assert getattr(after, name) == getattr(before, name), name
