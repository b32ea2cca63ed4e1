from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.cli.app import app
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.review import JudgementStore
from listening import tone_workspace
from reviews import judgement

NAMES = {"raven": "all.txt", "audacity": "labels", "dcase": "all.tsv"}
SPANS = [("clip000", "hum", 0.5, 1.75), ("clip001", "siren", 0.0, 2.001), ("clip002", "hum", 3, 4)]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Three answers, each with a span."""
    made = tone_workspace(tmp_path / "w", n_clips=6, seconds=5)
    with JudgementStore(made.judgements_path) as store:
        for number, (clip_id, class_id, start, end) in enumerate(SPANS):
            span = {"span_start": start, "span_end": end}
            store.add(judgement(number, clip_id=clip_id, class_id=class_id, **span))
    return made


def earmark(work: Path, *arguments: object) -> dict:
    done = CliRunner().invoke(app, ["answers", *map(str, (work, *arguments)), "--json"])
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def unheard(workspace: Workspace, root: Path) -> Workspace:
    """Return a copy of a workspace without its answers."""
    shutil.copytree(workspace.root, root, ignore=shutil.ignore_patterns("review"))
    return Workspace(root)


@pytest.mark.parametrize("written_as", NAMES)
def test_spans_go_out_and_come_back(workspace: Workspace, tmp_path: Path, written_as: str) -> None:
    path = tmp_path / NAMES[written_as]
    told = earmark(workspace.root, "--export", path, "--format", written_as)
    assert (told["wrote"], told["rows"]) == (str(path), 3)
    other = unheard(workspace, tmp_path / "other")
    assert earmark(other.root, "--import", path, "--rater", "eve")["new"] == 3
    assert (
        earmark(other.root, "--import", path, "--format", written_as, "--rater", "eve")["new"] == 0
    )
    with JudgementStore(other.judgements_path) as store:
        found = store.current().select("clip_id", "class_id", "span_start", "span_end", "answer")
    assert sorted(found.rows()) == [(*span, "present") for span in SPANS]


def test_an_unknown_format_lists_the_choices(workspace: Workspace, tmp_path: Path) -> None:
    for option in ("--export", "--import"):
        with pytest.raises(EarmarkError, match="raven, audacity or dcase, got 'praat'"):
            earmark(workspace.root, option, tmp_path / "a.txt", "--format", "praat")


def test_nothing_is_imported_of_a_file_with_one_wrong_line(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.tsv"
    header = "filename\tonset\toffset\tevent_label\n"
    path.write_text(header + "clip000.wav\t1\t2\tHum\nclip001.wav\t1\t2\tHumm\n")
    other = unheard(workspace, tmp_path / "other")
    with pytest.raises(EarmarkError, match="line 3: no class is called 'Humm'; did you mean 'Hum'"):
        earmark(other.root, "--import", path)
    with JudgementStore(other.judgements_path) as store:
        assert store.rows().is_empty()
