"""Names that strangers gave do nothing on a terminal, in Markdown and in a spreadsheet."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from markdown_it import MarkdownIt

from earmark.compute import Display
from earmark.config import FrontEndParams, NetworkParams
from earmark.models import ModelCard, card_text
from earmark.text import markdown, printable, without_formulas

ESCAPES = "dog\x1b]owned\x07\x1b[2J\x9b31m\u202egod\u2066"
"""It names the window, clears the screen, writes in red and from right to left."""

MARKUP = (
    "<script>alert(1)</script>",
    "<img src=http://a.example/x onerror=alert(1)>",
    "![x](http://a.example/x.png)",
    "[x](javascript:alert(1))",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)",
    "a\n\n<svg onload=alert(1)>",
    "\\<script>alert(1)\\</script>",
    "http://a.example/<script>alert(1)</script>",
    'https://a.example/">x<b',
    "&lt;script&gt; `code` *star* | cell",
)


@pytest.mark.parametrize("name", MARKUP)
@pytest.mark.parametrize("line", ["# {}", "- {}", "| a |\n|---|\n| {} |", "{}"])
def test_names_are_text_in_markdown(name: str, line: str) -> None:
    page = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(
        line.format(markdown(name))
    )
    tags = set(re.findall(r"<([a-z0-9]+)", page))
    assert tags <= {"h1", "ul", "li", "p", "a", "table", "thead", "tbody", "tr", "th", "td"}
    assert all(link.startswith("http") for link in re.findall(r'href="([^"]*)"', page))
    assert page.count("<td>") == line.count("{} |")


def test_a_model_card_holds_names_as_text() -> None:
    card = ModelCard(
        network=NetworkParams(name="teacher"),
        class_ids=("a", "b"),
        class_names=(MARKUP[0], MARKUP[3]),
        n_inputs=64,
        patch_frames=96,
        n_students=1,
        front_end=FrontEndParams(),
        metrics={},
        versions={"earmark": "<b>1"},
        digest="0",
    )
    page = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(card_text(card))
    assert "<script" not in page
    assert "<b>" not in page
    assert "<a " not in page


def test_control_characters_are_shown_and_not_sent() -> None:
    shown = printable(ESCAPES)
    assert shown.isprintable()
    assert shown.startswith("dog\\x1b]owned\\x07")
    assert printable("Frösche 鳥 👩‍🔬") == "Frösche 鳥 👩‍🔬"


@pytest.mark.parametrize(
    "arguments", [(f"--{ESCAPES}",), ("check", f"--{ESCAPES}"), ("check", "a", "b", ESCAPES)]
)
def test_what_was_typed_is_quoted_without_control_characters(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "earmark", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "\\x1b" in done.stderr
    assert not re.search("[\x07\x1b\x9b\u202e\u2066]", done.stderr)


def test_progress_shows_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_terminal in (False, True):
        if is_terminal:
            monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
            monkeypatch.setenv("TERM", "xterm")
        with Display() as display:
            display.job(ESCAPES, 1, "clips").advance(1, ESCAPES)
        told = capsys.readouterr().err
        assert "dog" in told
        assert not re.search("\x07|\x1b]|\x1b\\[2J|\x9b|\u202e|\u2066", told)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Labels and scores whose classes and clips have names that would do something."""
    rng = np.random.default_rng(0)
    names = [ESCAPES, "=HYPERLINK(0)", "+SUM(1)", "@SUM(1)"]
    clips = [f"-{n:03d}x" for n in range(400)]
    truth = rng.random((400, 4)) < 0.3
    given = truth & (rng.random((400, 4)) < 0.7)
    table = {"clip_id": [], "class_id": []}
    for row, column in zip(*given.nonzero(), strict=True):
        table["clip_id"].append(clips[row])
        table["class_id"].append(names[column])
    pl.DataFrame(table).write_csv(tmp_path / "labels.csv")
    scores = rng.normal(size=(400, 4)) + 4 * truth - 3
    columns = {name: scores[:, place] for place, name in enumerate(names)}
    pl.DataFrame({"clip_id": clips, **columns}).write_parquet(tmp_path / "scores.parquet")
    return tmp_path


def earmark(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "earmark", *words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        check=False,
        encoding="utf-8",
    )


def scan(folder: Path, out: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = ("scan", "--labels", "labels.csv", "--scores", "scores.parquet", "--out", out)
    return earmark(folder, *words, **environment)


def test_a_scan_of_hostile_names(hostile: Path) -> None:
    done = scan(hostile, ESCAPES)
    assert done.returncode == 0, done.stderr
    assert "dog" in done.stdout
    for told in (done.stdout, done.stderr):
        assert all(line.isprintable() for line in told.splitlines())
    for name in ("flags.csv", "classes.csv", "wrong_positives.csv"):
        rows = csv.reader(io.StringIO((hostile / ESCAPES / name).read_text()))
        cells = {cell for row in rows for cell in row}
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
        assert {"'=HYPERLINK(0)", "'@SUM(1)", "'+SUM(1)"} <= cells
    flags = pl.read_csv((hostile / ESCAPES / "flags.csv").read_bytes())
    assert flags["clip_id"].str.starts_with("-").all()  # no formula can be as plain as that
    kept = pl.read_parquet((hostile / ESCAPES / "classes.parquet").read_bytes())
    assert "=HYPERLINK(0)" in {*kept["class_id"]}  # for programs


def test_an_error_names_a_hostile_column(tmp_path: Path) -> None:
    (tmp_path / f"{ESCAPES}.csv").write_text(f"{ESCAPES},a\n1,2\n")
    done = earmark(tmp_path, "scan", "--labels", f"{ESCAPES}.csv", "--scores", "none.npy")
    assert done.returncode == 2
    assert all(line.isprintable() for line in done.stderr.splitlines())
    assert "dog\\x1b" in done.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX"},
    ],
)
def test_output_that_cannot_hold_all_letters(hostile: Path, environment: dict[str, str]) -> None:
    done = scan(hostile, "Frösche", **environment)
    assert done.returncode == 0, done.stderr
    assert "Fr" in done.stdout
    helped = earmark(hostile, "--help", **environment)
    assert helped.returncode == 0, helped.stderr


def test_a_table_for_spreadsheets_has_no_formulas() -> None:
    texts = [
        "=1+1",
        "@x",
        "\tx",
        "\rx",
        "-1+cmd|' /C calc'!A0",
        "+x y",
        "\uff1d1",
        "-0RWZT-miFs_30",
        "a=b",
    ]
    within = {
        "dog;=1+1;-x": "dog;'=1+1;'-x",
        "=1;@x": "'=1;'@x",
        "a\t +x\n=1": "a\t '+x\n'=1",
        "a;b": "a;b",
    }
    table = pl.DataFrame({"name": [*texts, *within, None], "score": [-1.0] * 14})
    changed = without_formulas(table)
    expected = [*(f"'{text}" for text in texts[:7]), *texts[7:], *within.values(), None]
    assert changed["name"].to_list() == expected
    assert changed["score"].to_list() == table["score"].to_list()
