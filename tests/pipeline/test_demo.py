"""The demo, on few scenes: whole, again, after an interrupt, and with a page to hear."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.cli.app import app
from earmark.compute import SILENT
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.metrics import Interval
from earmark.pipeline import Demo, draw_queue, run_demo
from earmark.report import demo_told, scenes_told
from earmark.storage import read_table
from made_up import check_policy

SMALL = {"n_scenes": 400, "n_draws": 2, "progress": SILENT}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo(tmp_path_factory.mktemp("demo") / "work", **SMALL)


def test_flags_are_better_than_chance_and_counted_by_the_truth(done: Demo) -> None:
    found, workspace = done.found, done.workspace
    assert found.times_better > 2
    train = workspace.rows("train")
    truth, states = workspace.truth.states(train) > 0, workspace.labels.states(train)
    assert found.n_missing == (truth & (states == 0)).sum()
    assert (found.n_clips, found.n_present) == (250, truth.sum())
    clips = workspace.clips["clip_id"].to_list()
    flags = read_table(workspace.flags_path).select("clip_id", "class_id").rows()
    is_right = [
        bool(workspace.truth.states([clips.index(clip)])[0, workspace.ontology.index[name]] > 0)
        for clip, name in flags
    ]
    assert sorted(is_right) == sorted(found.right.tolist())


def test_it_says_three_things_in_few_lines(done: Demo) -> None:
    told = demo_told(done.found)
    assert len(told) == 3
    verdict = list(told.values())[1][0]
    assert re.match(r"(Yes|No|Cannot tell|Only in part|Unsure): ", verdict)
    assert "made-up scenes" in scenes_told(done.found)
    for gain in (done.found.students.chosen.gain, done.found.students.heard.gain):
        assert isinstance(gain, Interval)
        assert gain.low <= gain.value <= gain.high


def test_a_scripted_rater_finds_more_than_chance(done: Demo) -> None:
    heard = done.found.students.heard
    assert heard.n_answers == 100
    assert heard.n_found > 2 * heard.n_found_at_random


def test_the_page_plays_flags_and_needs_no_other_file(done: Demo) -> None:
    page = done.page.read_text()
    assert page.count("<audio") == page.count("data:audio/wav;base64,") == 12
    assert page.count("<canvas") == 12
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "earmark review" in page
    check_policy(page)


def test_numbers_are_there_for_programs(done: Demo) -> None:
    facts = json.loads(done.page.with_name("demo.json").read_text())
    assert facts["n_right"] == done.found.n_right
    assert facts["students"]["chosen"]["gain"][0] == done.found.students.chosen.gain.value


def test_what_is_left_is_a_workspace_with_a_queue_to_hear(done: Demo, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(done.workspace.root, copied)
    assert Workspace.open(copied).has_sound()
    queue = draw_queue(copied, progress=SILENT)
    assert queue.n_candidates


def test_an_interrupted_demo_goes_on_finds_the_same_and_prints_few_lines(
    done: Demo, tmp_path: Path
) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(done.workspace.root, copied)
    kept = sorted((copied / "pooled").iterdir())
    kept[-1].unlink()
    (copied / "audio" / "scene-000150.wav").unlink()
    times = [path.stat().st_mtime_ns for path in kept[:-1]]
    asked = ["demo", "--work", str(copied), "--scenes", "400", "--draws", "2", "--workers", "1"]
    lines = CliRunner().invoke(app, asked).stdout.splitlines()
    assert [path.stat().st_mtime_ns for path in kept[:-1]] == times
    for path in (done.page, done.page.with_name("demo.json")):
        again = copied / path.relative_to(done.workspace.root)
        before = path.read_text().replace(str(done.workspace.root), "W")
        assert again.read_text().replace(str(copied), "W") == before
    own = [line for line in lines if str(copied) not in line]
    assert len(lines) <= 15
    assert max(map(len, own)) <= 80
    assert lines[-1] == f"next: earmark review {copied}"
    assert sum(line[:2] in ("1.", "2.", "3.") for line in lines) == 3


def test_another_seed_does_not_mix_with_what_is_there(done: Demo) -> None:
    with pytest.raises(EarmarkError, match="holds scenes of other parameters"):
        run_demo(done.workspace.root, seed=1, **SMALL)


@pytest.mark.parametrize(
    ("asked", "told"),
    [({"n_scenes": 20}, "needs 400 scenes at least"), ({"n_draws": 1}, "2 of them at least")],
)
def test_too_little_is_refused(tmp_path: Path, asked: dict[str, int], told: str) -> None:
    with pytest.raises(EarmarkError, match=told):
        run_demo(tmp_path / "work", **{**SMALL, **asked})
    assert not (tmp_path / "work").exists()
