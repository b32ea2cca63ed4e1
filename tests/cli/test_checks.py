from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from checked import checkable_workspace, hear_all
from earmark import pipeline
from verbs import Outcome, run_verb


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, missing = checkable_workspace(tmp_path_factory.mktemp("cli") / "w")
    pipeline.write_flags(workspace)
    hear_all(workspace, missing)
    pipeline.correct_labels(workspace)
    return workspace.root


def ran(*words: object) -> Outcome:
    outcome = run_verb([str(word) for word in words])
    lines = outcome.stdout.splitlines()
    is_json = outcome.stdout.startswith("{")
    told = [line for line in lines if not line.startswith(("next: ", "wrote: "))]  # paths are long
    assert is_json or all(len(line) <= 80 for line in told), outcome.stdout
    assert len(lines) <= 24
    return outcome


def test_a_check_without_limits_reports_and_passes(work: Path) -> None:
    done = ran("check", work)
    assert done.code == 0, done.stderr
    known = pipeline.check_workspace(work).evidence.estimates
    assert known.describe() in " ".join(done.stdout.split())
    assert "Answers by 1 rater" in done.stdout
    assert done.stdout.splitlines()[-1] == f"next: earmark report {work} --card CARD.md"


def test_a_failed_limit_exits_with_one_and_a_mistake_with_two(work: Path, tmp_path: Path) -> None:
    kept = ran("check", work, "--most-missing-low", 0.99)
    assert (kept.code, kept.stdout.startswith("passed: share of missing labels, low end")) == (
        0,
        True,
    )
    failed = ran("check", work, "--most-missing-low", 0, "--least-precision", 0.01)
    assert failed.code == 1
    assert failed.stdout.startswith("FAILED: share of missing labels, low end at most 0.0 %: ")
    assert "\npassed: precision of the flags left at least 1.0 %: " in failed.stdout
    assert ran("check", tmp_path / "nowhere").code == 2
    assert ran("check").code == 2
    assert ran("check", work, "--most-missing", 20).code == 2
    assert ran("check", work, "--clips", "clips.csv").code == 2


def test_json_has_the_classes_where_they_are_asked_for(work: Path) -> None:
    done = ran("check", work, "--json", "--most-missing-low", 0, "--by-class")
    facts = json.loads(done.stdout)
    assert (done.code, facts["verdict"], len(facts["classes"])) == (1, "failed", 5)
    facts = json.loads(ran("check", work, "--json").stdout)
    assert (facts["verdict"], facts["next"]) == ("passed", f"earmark report {work} --card CARD.md")


def test_a_difference_is_told_and_exits_as_asked(work: Path, tmp_path: Path) -> None:
    out = tmp_path / "changes.csv"
    words = ("diff", "given", "corrected", "--work", work)
    done = ran(*words, "--out", out)
    assert done.code == 0, done.stderr
    assert "implicit -> present: " in done.stdout
    assert "by ear, ann " in done.stdout
    assert f"wrote: {out}" in done.stdout
    assert set(pl.read_csv(out)["kind"]) == {"added", "changed"}
    assert ran(*words, "--exit-code").code == 1
    same = ran("diff", work, work, "--exit-code")
    assert (same.code, "No difference" in same.stdout) == (0, True)
    told = json.loads(ran(*words, "--json").stdout)
    assert told["added"] == sum(one["added"] for one in told["classes"]) > 0
    assert ran("diff", "given", "nobody", "--work", work).code == 2


def test_a_card_is_written_where_it_is_asked_for(work: Path, tmp_path: Path) -> None:
    done = ran("report", work, "--card", tmp_path / "CARD.md", "--name", "Street")
    assert done.code == 0, done.stderr
    assert f"wrote: {tmp_path / 'CARD.md'}" in done.stdout
    assert "not said: licence, url, citation, version" in done.stdout
    assert (tmp_path / "CARD.md").read_text().startswith("# Street\n")
