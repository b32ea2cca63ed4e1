from __future__ import annotations

import warnings
import webbrowser
from pathlib import Path

import pytest
import uvicorn
from typer.testing import CliRunner

from earmark.cli.review import review_app
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.review.judgements import JudgementStore
from earmark.review.queues.stored import read_queue
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
    done = CliRunner().invoke(review_app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_every_rater_gets_an_address_and_loopback_needs_no_warning(root: Path) -> None:
    told = review(root, "--raters", "ann, bob")
    ann, bob = (line.split("token=")[1] for line in told.splitlines()[:2])
    assert ann != bob
    assert "network" not in told
    assert f"next: earmark precision {root}" in told


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
    done = CliRunner().invoke(review_app, arguments, catch_exceptions=False)
    ((address, page, rights),) = opened
    token = done.output.splitlines()[0].split("token=")[1]
    assert token not in address
    assert f"token={token}" in page
    assert rights == 0o600
    assert not Path(address.removeprefix("file://")).exists()
    assert "Stopped; 0 answers are kept." in done.output
