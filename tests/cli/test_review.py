from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from earmark import pipeline
from earmark.cli.app import app
from earmark.config import Recipe, ReviewParams, keep_recipe
from earmark.datasets import Workspace, read_relabelled, write_dataset
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.pipeline import open_judgements, open_queue
from earmark.review import (
    JudgementStore,
    ReviewQueue,
    read_queue,
    relabel,
)
from earmark.review.server.figures import Figures
from earmark.review.server.session import open_review_session
from earmark.scores import write_score_folder
from listening import tone_workspace
from reviews import answer_all
from scenes import FOLDS, PROBE, band_workspace, scored_workspace

MEASURE = ReviewParams(aim="measure")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Clips with a teacher's scores that know the truth, more or less."""
    return score_by_truth(band_workspace(tmp_path / "w", n_clips=240))


def score_by_truth(made: Workspace) -> Workspace:
    assert made.truth is not None
    rows = made.rows("train")
    noise = np.random.default_rng(0).normal(0, 1, (len(rows), 3))
    logits = (made.truth.states(rows) + noise).astype(np.float32)
    write_score_folder(
        made.scores_folder("teacher"),
        made.clips["clip_id"].gather(rows),
        made.ontology.class_ids,
        logits,
        np.zeros(logits.shape, np.uint16),
        out_of_fold=True,
        digest="scores",
    )
    return made


def earmark(*arguments: object) -> dict:
    """Run a verb and return what it prints as JSON."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def listen(workspace: Workspace, **kwargs: object) -> pl.DataFrame:
    """Answer the whole queue from the truth, and store it."""
    assert workspace.truth is not None
    judgements = answer_all(read_queue(workspace).items, workspace.truth, **kwargs)
    path = workspace.root.parent / "answers.parquet"
    judgements.write_parquet(path)
    earmark("answers", workspace.root, "--import", path)
    return judgements


def test_from_a_queue_to_corrected_labels(workspace: Workspace) -> None:
    work = workspace.root
    told = earmark(
        "review",
        "--write-only",
        work,
        "--aim",
        "measure",
        "--flags-per-block",
        20,
        "--classes",
        "low, high",
    )
    queue = read_queue(workspace)
    assert told["items"] == len(queue.items)
    assert told["next"] == f"earmark answers {work} --import FILE"  # there is nothing to hear
    assert set(queue.items["class_id"]) == {"low", "high"}

    judgements = listen(workspace, whole_clip=True)
    assert earmark("answers", work, "--import", work.parent / "answers.parquet")["new"] == 0
    told = earmark("answers", work)
    assert told["failed_blocks"] == 0
    assert told["n_judged"] > 20
    assert 0 <= told["low"] <= told["precision_low"] <= told["high"] <= 1
    table = pl.read_csv(work / "review" / "precision.csv")
    assert set(table["scope"]) == {"cell", "flags", "all"}

    told = earmark("relabel", work)
    corrected = read_relabelled(workspace, "corrected")
    expected = relabel(workspace.labels, judgements, queue)
    assert corrected.labels.digest == expected.labels.digest
    assert told["present"] == (expected.changes["after"] == "present").sum() > 0
    assert told["conflicts"] == 0
    assert told["next"] == f"earmark sweep {work} --labels corrected"


def test_tables_for_people_name_classes_and_raters(workspace: Workspace) -> None:
    pipeline.draw_queue(workspace, params=MEASURE)
    listen(workspace)
    done = CliRunner().invoke(app, ["answers", str(workspace.root)])
    assert pipeline.summarize_answers(workspace).estimates.describe() in " ".join(
        done.stdout.split()
    )
    assert "middle" in done.stdout
    assert "repeats, ann again: 1.00 alike" in done.stdout
    assert "nan" not in done.stdout


def test_answers_go_out_and_come_back(workspace: Workspace, tmp_path: Path) -> None:
    pipeline.draw_queue(workspace, params=MEASURE)
    judgements = listen(workspace)
    told = earmark("answers", workspace.root, "--export", tmp_path / "out.csv")
    assert told["rows"] == len(judgements)
    other = Workspace(tmp_path / "other")
    for path in ("clips.parquet", "classes.parquet", "labels.parquet"):
        (other.root / path).parent.mkdir(exist_ok=True)
        (other.root / path).write_bytes((workspace.root / path).read_bytes())
    assert earmark("answers", other.root, "--import", tmp_path / "out.csv")["new"] == len(
        judgements
    )
    merged = earmark("answers", other.root, "--import", workspace.judgements_path)
    assert merged["new"] == 0
    with JudgementStore(other.judgements_path) as store:
        assert store.rows().equals(judgements.sort("at", "id"))


def test_failed_blocks_can_be_left_out(workspace: Workspace) -> None:
    pipeline.draw_queue(workspace, params=MEASURE)
    listen(workspace, slip=lambda answer: "not_present")
    everything = earmark("answers", workspace.root)
    assert everything["failed_blocks"] > 0
    passed = earmark("answers", workspace.root, "--drop-failed-blocks")
    assert passed["n_judged"] < everything["n_judged"]
    assert passed["failed_blocks"] == 0
    n_changed = [
        earmark("relabel", workspace.root, "--out", "x", *more)["cleared"]
        for more in ((), ("--drop-failed-blocks",))
    ]
    assert n_changed[1] < n_changed[0]


def test_a_queue_is_kept_until_other_parameters_are_asked_for(workspace: Workspace) -> None:
    first = pipeline.draw_queue(workspace, params=MEASURE).queue
    written = workspace.queue_path.stat().st_mtime_ns
    earmark("review", "--write-only", workspace.root, "--aim", "measure")
    assert workspace.queue_path.stat().st_mtime_ns == written
    earmark("review", "--write-only", workspace.root, "--aim", "measure", "--seed", 1)
    assert pipeline.draw_queue(workspace).queue.digest != first.digest


SMALL = Recipe.model_validate(
    {
        "students": [PROBE],
        "cross_fit": FOLDS,
        "sweep": {"discard_percents": [0, 20], "n_resamples": 100, "ignored_percent": 30},
    }
)


def test_the_evaluation_splits_can_be_listened_to_and_then_judge_students(tmp_path: Path) -> None:
    workspace, _ = scored_workspace(tmp_path / "w")
    keep_recipe(workspace.root, SMALL)
    earmark("review", "--write-only", workspace.root, "--aim", "measure", "--held-out")
    queue = read_queue(workspace)
    heard = workspace.clips.join(queue.items, on="clip_id", how="semi")
    assert set(heard["split"]) == {"tune", "eval"}
    with open_judgements(workspace) as store:
        session = open_review_session(workspace, SMALL, ReviewQueue(queue, store, ["ann"]))
        assert session.scores.folder.name == "teacher-held-out"
        assert session.block("ann", 0)["items"]
    listen(workspace)
    assert earmark("answers", workspace.root)["n_judged"] > 0
    assert earmark("relabel", workspace.root)["present"] > 0
    CliRunner().invoke(app, ["sweep", str(workspace.root), "--workers", "1"])
    results = pl.read_parquet(workspace.sweep_table_path("summary"))
    own = results.filter(metric="map", split="eval", discard_percent=20.0)
    value = dict(own.select("labels", "value").iter_rows())
    assert value["corrected"] == value["truth"]  # every implicit label was heard
    assert len({value["given"], value["ignored"], value["corrected"]}) == 3
    # What was heard of the evaluation splits alone is no sample of all clips.
    assert earmark("answers", workspace.root)["missing"]["total"] is None
    earmark("review", "--write-only", workspace.root, "--aim", "measure")
    heard = workspace.clips.join(read_queue(workspace).items, on="clip_id", how="semi")
    assert set(heard["split"]) == {"train", "tune", "eval"}


def test_the_command_that_relabel_advises_works(tmp_path: Path) -> None:
    workspace, _ = scored_workspace(tmp_path / "w")
    keep_recipe(workspace.root, SMALL)
    earmark("review", "--write-only", workspace.root, "--aim", "measure")
    listen(workspace)
    advised = shlex.split(earmark("relabel", workspace.root, "--out", "mine")["next"])
    assert advised == ["earmark", "sweep", str(workspace.root), "--labels", "mine"]
    done = CliRunner().invoke(app, [*advised[1:], "--workers", "1"])
    assert done.exit_code == 0, done.output
    kinds = pl.read_parquet(workspace.sweep_table_path("summary"))["kind"]
    assert {"corrected", "corrected+mask"} <= set(kinds)


def test_answers_survive_another_dataset_and_those_about_lost_clips_are_left_out(
    workspace: Workspace,
) -> None:
    earmark("review", "--write-only", workspace.root, "--aim", "measure")
    listen(workspace)
    n_answers = len(open_judgements(workspace).current())
    half = np.arange(len(workspace.clips) // 2)
    assert workspace.truth is not None
    write_dataset(
        workspace.root,
        workspace.clips[half],
        workspace.ontology,
        workspace.labels.select(half),
        workspace.truth.select(half),
        replace=True,
    )
    assert len(open_judgements(workspace).current()) == n_answers
    with pytest.raises(EarmarkError, match="whose clips changed since; run `earmark review"):
        earmark("relabel", workspace.root)
    shutil.rmtree(workspace.scores_folder("teacher"))
    score_by_truth(Workspace(workspace.root))
    earmark("review", "--write-only", workspace.root, "--aim", "measure")
    with pytest.warns(EarmarkWarning, match="no longer has; they are kept, and left out"):
        assert earmark("relabel", workspace.root)["present"] > 0


def test_without_sound_there_is_nothing_to_review(workspace: Workspace) -> None:
    root = workspace.root
    done = CliRunner().invoke(
        app,
        ["review", "--write-only", str(root), "--aim", "measure"],
        catch_exceptions=False,
    )
    assert "sound: none, so `earmark review` cannot play" in done.stdout
    assert f"next: earmark answers {root} --import FILE" in done.stdout
    with pytest.raises(EarmarkError, match=rf"nothing to hear; .*answers {root} --import FILE`"):
        pipeline.serve_review(workspace)
    with pytest.raises(EarmarkError, match=f"no judgements there yet; .* {root} --import FILE`"):
        earmark("relabel", root)


def test_without_splits_corrected_labels_are_flagged_next(tmp_path: Path) -> None:
    workspace = tone_workspace(tmp_path / "w")
    told = earmark("review", "--write-only", workspace.root, "--aim", "measure")
    assert told["next"] == f"earmark review {workspace.root}"
    with pytest.raises(EarmarkError, match=f"make some with `earmark review {workspace.root}`"):
        earmark("answers", workspace.root)
    listen(workspace)
    told = earmark("relabel", workspace.root)
    assert told["next"] == f"earmark flag {workspace.root} --labels corrected"
    pipeline.write_flags(workspace, labels="corrected")
    assert pipeline.export_labels(workspace, tmp_path / "better.csv").n_of("present") > 0


def test_nothing_to_hear_or_to_correct_is_an_error(workspace: Workspace) -> None:
    empty = workspace.root.parent / "empty.csv"
    empty.write_text("clip_id,class_id,answer\n")
    with pytest.raises(EarmarkError, match="not one answer"):
        earmark("answers", workspace.root, "--import", empty)
    earmark("review", "--write-only", workspace.root, "--aim", "measure")
    explicit = workspace.labels.rows().row(0, named=True)
    answer = "present" if explicit["present"] else "not_present"
    empty.write_text(
        f"clip_id,class_id,answer\n{explicit['clip_id']},{explicit['class_id']},{answer}\n"
    )
    earmark("answers", workspace.root, "--import", empty)
    with pytest.raises(EarmarkError, match="nothing changes by 1 answer:"):
        earmark("relabel", workspace.root)


def test_verbs_say_what_has_to_come_first(workspace: Workspace) -> None:
    with pytest.raises(EarmarkError, match=r"make it with `earmark review .* --write-only`"):
        earmark("relabel", workspace.root)
    pipeline.draw_queue(workspace, params=MEASURE)
    for verb in ("answers", "relabel"):
        with pytest.raises(EarmarkError, match=r"bring some: `earmark answers .* --import FILE`"):
            earmark(verb, workspace.root)


def test_flags_follow_the_judged_chance_and_leave_out_what_was_cleared(
    workspace: Workspace,
) -> None:
    likely = {"policy": "precision", "target": 0.3}
    estimated = pipeline.write_flags(workspace, **likely).flags
    pipeline.draw_queue(workspace, params=MEASURE)
    listen(workspace, slip=lambda answer: "not_present")
    judged = pipeline.write_flags(workspace, **likely).flags
    assert judged.is_empty()  # ears found nothing
    assert not estimated.equals(judged)
    earmark("relabel", workspace.root)
    plain = pipeline.write_flags(workspace, discard_percent=20).flags
    left = pipeline.write_flags(workspace, discard_percent=20, labels="corrected").flags
    cleared = read_relabelled(workspace, "corrected").rulings.rows()
    assert len(plain.join(cleared, on=["clip_id", "class_id"], how="semi"))
    assert left.join(cleared, on=["clip_id", "class_id"], how="semi").is_empty()


def test_what_raters_cleared_after_the_flags_is_not_exported_as_ignored(
    workspace: Workspace, tmp_path: Path
) -> None:
    pipeline.draw_queue(workspace, params=MEASURE)
    pipeline.write_flags(workspace, discard_percent=20)
    listen(workspace, slip=lambda answer: "not_present")
    earmark("relabel", workspace.root)
    # Nothing was found present, so the labels, and with them the digest of the flags, stay.
    flagged = pipeline.write_flags(workspace, discard_percent=20, labels="given").flags
    seal = workspace.flags_folder / "meta.json"
    seal.write_text(seal.read_text().replace('"given"', '"corrected"'))
    exported = pipeline.export_labels(workspace, tmp_path / "x.csv")
    cleared = read_relabelled(workspace, "corrected").rulings.rows()
    still = flagged.join(cleared, on=["clip_id", "class_id"], how="anti")
    assert len(still) == exported.n_ignored < len(flagged)


def test_a_page_without_a_recipe_remembers_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    workspace = tone_workspace(tmp_path / "w", n_clips=40)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    pipeline.serve_review(workspace, port=0)
    assert not (workspace.root / "recipe.json").exists()


def test_flags_of_a_chance_are_those_that_are_exported(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["flag", str(workspace.root), "--policy", "precision", "--target", "0.3", "--json"]
    told = json.loads(CliRunner().invoke(app, asked).stdout)
    assert told["next"] == f"earmark report {workspace.root}"
    CliRunner().invoke(app, ["export", str(workspace.root), "labels.csv"], catch_exceptions=False)
    exported = pl.read_csv("labels.csv").filter(state="ignored")
    assert len(exported) == told["flags"] > 0


def test_exported_labels_are_the_corrected_ones(workspace: Workspace, tmp_path: Path) -> None:
    pipeline.draw_queue(workspace, params=MEASURE)
    answers = iter(["present", "unsure", "not_present"] * 1_000)
    judgements = listen(workspace, slip=lambda answer: next(answers))
    earmark("relabel", workspace.root)
    path = tmp_path / "x.csv"
    pipeline.export_labels(workspace, path, discard_percent=20, labels="corrected")
    pairs = ["clip_id", "class_id"]
    states = {(c, k): s for c, k, s in pl.read_csv(tmp_path / "x.csv").iter_rows()}
    changes = relabel(workspace.labels, judgements).changes
    expected = {"present": "present", "ignored": "ignored", "cleared": None}
    for clip_id, class_id, after in changes.select(*pairs, "after").iter_rows():
        assert states.get((clip_id, class_id)) == expected[after]
    assert len(changes["after"].unique()) == 3


def test_the_page_sums_up_the_flags_that_flag_wrote(workspace: Workspace) -> None:
    pipeline.draw_queue(workspace, params=MEASURE)
    listen(workspace)

    def counted() -> tuple[int, int]:
        """Return the flags that the page counts, and those that the terminal counts."""
        with open_judgements(workspace) as store:
            session = open_review_session(workspace, SMALL, open_queue(workspace, store, ["ann"]))
            on_page = sum(row["n_flags"] for row in Figures(session).overview("ann")["classes"])
        return on_page, earmark("answers", workspace.root)["n_labels"]

    n_up_to_the_last = len(pipeline.write_flags(workspace, discard_percent=20).flags)
    assert counted() == (n_up_to_the_last, n_up_to_the_last)
    for asked in ({"discard_percent": 5}, {"policy": "precision", "target": 0.5}):
        n_flags = len(pipeline.write_flags(workspace, **asked).flags)
        assert counted() == (n_flags, n_flags)
        assert n_flags > 0
        done = CliRunner().invoke(app, ["answers", str(workspace.root)])
        printed = " ".join(done.stdout.split())
        assert f"Of {n_flags} flags asked about in 3 classes (the {n_flags} written by" in printed


def test_tasks_of_a_queue_that_learns_are_the_next_blocks_without_an_answer(
    tmp_path: Path,
) -> None:
    workspace = tone_workspace(tmp_path / "w", n_clips=120)
    tasks = tmp_path / "tasks.json"
    asked = [
        "review",
        "--write-only",
        str(workspace.root),
        "--flags-per-block",
        "5",
        "--label-studio",
        str(tasks),
    ]
    done = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert "the next blocks only" in " ".join(done.stdout.split())
    first = [one["data"] for one in json.loads(tasks.read_text())]
    table = pl.DataFrame(first).select("clip_id", "class_id", "item")
    answered = table.head(20).with_columns(answer=pl.lit("present"))
    answered.write_csv(tmp_path / "said.csv")
    earmark("answers", workspace.root, "--import", tmp_path / "said.csv")
    told = earmark(*asked[:1], *asked[1:])
    later = {one["data"]["item"] for one in json.loads(tasks.read_text())}
    assert later.isdisjoint(answered["item"])
    assert set(table["item"][20:]) <= later
    assert told["tasks"] == len(later) > len(table) - 20
    assert earmark(*asked, "--n-items", 10)["tasks"] < 20


def test_a_queue_that_learns_says_what_it_found_and_what_is_left(workspace: Workspace) -> None:
    work = workspace.root
    pipeline.write_flags(workspace, discard_percent=20)
    asked = ["review", "--write-only", str(work), "--sample-share", "0.3"]
    done = CliRunner().invoke(app, asked)
    assert "aim: find" in done.stdout
    assert "30% of every block is a random sample" in " ".join(done.stdout.split())
    pipeline.draw_ahead(workspace, 8)
    listen(workspace)
    told = earmark("answers", work)
    assert told["is_estimate"] is False
    assert told["n_labels"] == told["n_judged"] == told["missing"]["n_answers"]
    total = told["missing"]["total"]
    assert told["missing"]["n_confirmed"] <= total["low"] <= total["value"] <= total["high"]
    printed = " ".join(CliRunner().invoke(app, ["answers", str(work)]).stdout.split())
    assert "interval" not in printed
    gains = pipeline.summarize_answers(workspace).gains
    assert gains is not None
    assert gains.describe() in printed
    assert gains.n_found == told["missing"]["n_confirmed"]
    with pytest.raises(EarmarkError, match="no sample"):
        earmark("answers", work, "--discard-percent", 5)
    assert earmark("relabel", work)["present"] > 0
    with pytest.raises(EarmarkError, match="find, measure, train or adjudicate"):
        earmark("review", "--write-only", work, "--aim", "best")
