from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
import webbrowser
from pathlib import Path

import pytest
import uvicorn
from typer.testing import CliRunner

from earmark.cli.app import app
from earmark.datasets import Workspace
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.review import JudgementStore, read_queue
from listening import open_tones
from reviews import judgement


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose page stops as soon as it is served."""
    open_tones(tmp_path, n_clips=20).judgements.close()
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    return tmp_path


def review(root: Path, *options: str) -> str:
    arguments = ["review", str(root), "--port", "0", "--no-open", *options]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_every_rater_gets_an_address_in_a_file_that_only_they_can_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output that is no terminal may be read by anybody."""
    read: list[str] = []

    def run(server: object, sockets: object) -> None:
        (path,) = (root / "review").glob("addresses_*.txt")
        assert path.stat().st_mode & 0o777 == 0o600
        read.extend(path.read_text().splitlines())

    monkeypatch.setattr(uvicorn.Server, "run", run)
    told = review(root, "--raters", "ann, bob")
    ann, bob = (line.split("token=")[1] for line in read)
    assert ann != bob
    assert "token" not in told
    assert "addresses_" in told
    assert "network" not in told
    assert f"next: earmark answers {root}" in told
    assert not list((root / "review").glob("addresses_*.txt"))


def test_addresses_are_printed_on_a_terminal_and_sigterm_ends_the_page(root: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "earmark", "review", str(root), "--port", "0", "--no-open"]
    with subprocess.Popen([*command, "--raters", "ann"], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        told = b""
        while b"next: " not in told:
            told += os.read(ours, 4096)
        process.terminate()
    assert process.returncode == 143
    os.close(ours)
    assert re.search(rb"ann: http://127\.0\.0\.1:\d+/\?token=\S{32}\s", told)


def test_another_host_is_told_what_it_means(root: Path) -> None:
    told = review(root, "--host", "0.0.0.0", "--raters", "ann")
    assert "anyone in this network" in told
    assert "not encrypted" in told.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--raters", "ann,ann"), "named twice"), (("--classes", "Sirens"), "did you mean 'Siren'")],
)
def test_mistakes_are_named_before_the_page_opens(
    root: Path, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(EarmarkError, match=message):
        review(root, *options)


def test_a_rater_goes_on_where_they_stopped_or_is_told_who_they_were(root: Path) -> None:
    workspace = Workspace(root)
    names = read_queue(workspace).items["item"].head(3)
    with JudgementStore(workspace.judgements_path) as store:
        store.add_all(judgement(place, item=item) for place, item in enumerate(names))
    with warnings.catch_warnings():
        warnings.simplefilter("error", EarmarkWarning)
        review(root, "--raters", "ann")
    with pytest.warns(EarmarkWarning, match=r"by ann: 3; none by .*--raters ann"):
        review(root)


def test_the_browser_is_given_a_file_that_leads_to_the_page(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lists processes sees the file's name, and may not read it."""
    opened: list[tuple[str, str, int]] = []

    def note(address: str) -> bool:
        path = Path(address.removeprefix("file://"))
        opened.append((address, path.read_text(), path.stat().st_mode & 0o777))
        return True

    monkeypatch.setattr(webbrowser, "open", note)
    arguments = ["review", str(root), "--port", "0", "--raters", "ann"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    ((address, page, rights),) = opened
    (token,) = re.findall(r"token=(\S+)\"", page)
    assert token not in address
    assert token not in done.output
    assert rights == 0o600
    assert not Path(address.removeprefix("file://")).exists()
    assert "Stopped; 0 answers are kept." in done.output
