"""From several raters' answers to an adjudicator's, by the verbs of a review."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from called_verbs import earmark, refusal
from earmark import pipeline
from earmark.datasets import PAIR, Workspace, read_relabelled
from earmark.review import ADJUDICATED, JudgementStore, item_id
from earmark.scores import write_score_folder
from reviews import judgement
from scenes import band_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Clips with a teacher's scores that know the truth, more or less."""
    made = band_workspace(tmp_path / "w", n_clips=240)
    assert made.truth is not None
    rows = made.rows("train")
    noise = np.random.default_rng(0).normal(0, 1, (len(rows), 3))
    write_score_folder(
        made.scores_folder("teacher"),
        made.clips["clip_id"].gather(rows),
        made.ontology.class_ids,
        (made.truth.states(rows) + noise).astype(np.float32),
        np.zeros(noise.shape, np.uint16),
        out_of_fold=True,
        digest="scores",
    )
    return made


def truth_of(workspace: Workspace) -> pl.DataFrame:
    """Return the truth of scored labels that nobody was asked about."""
    assert workspace.truth is not None
    clips = workspace.clips.filter(split="train").select("clip_id")
    truth = workspace.truth.rows().join(clips, on="clip_id", how="semi").sort(PAIR)
    return truth.join(workspace.labels.rows(), on=PAIR, how="anti", maintain_order="left")


def listen(
    workspace: Workspace, labels: pl.DataFrame, rater: str, right: float, suffix: str = ""
) -> None:
    """Store a rater's answers, a share of which is right."""
    rng = np.random.default_rng([*rater.encode(), int(100 * right)])
    with JudgementStore(workspace.judgements_path) as store:
        first = len(store.rows())
        is_right = rng.random(len(labels)) < right
        store.add_all(
            judgement(
                first + number,
                "present" if present == is_right[number] else "not_present",
                rater=rater,
                clip_id=clip_id,
                class_id=class_id,
                item=item_id(clip_id, class_id) + suffix,
                whole_clip=True,
            )
            for number, (clip_id, class_id, present) in enumerate(
                labels.select(*PAIR, "present").iter_rows()
            )
        )


def told(*arguments: object) -> dict:
    return json.loads(earmark(*arguments, "--json").stdout)


def listen_all(workspace: Workspace, names: Sequence[str] = ("ann", "bob", "eve")) -> None:
    labels = truth_of(workspace).head(150)
    for name, right in zip(names, (0.95, 0.9, 0.6), strict=False):
        listen(workspace, labels, name, right)


def test_raters_in_twenty_lines(workspace: Workspace) -> None:
    listen_all(workspace)
    shown = earmark("answers", workspace.root, "--with-teacher").stdout
    lines = shown.splitlines()
    assert len(lines) <= 20
    assert max(map(len, (line for line in lines if str(workspace.root) not in line))) <= 80
    assert [line.split()[:2] for line in lines[4:7]] == [[n, "150"] for n in ("ann", "bob", "eve")]
    assert "teacher: a high score multiplies the odds" in shown
    assert "nan" not in shown


def test_the_raters_with_most_answers_are_shown(workspace: Workspace) -> None:
    labels = truth_of(workspace).head(40)
    for number in range(12):
        listen(workspace, labels, f"rater{number:02}", 0.9)
    lines = earmark("answers", workspace.root).stdout.splitlines()
    assert "and 7 more" in lines
    assert len(earmark("answers", workspace.root, "--details").stdout.splitlines()) > len(lines)


def test_what_is_written_is_what_is_told(workspace: Workspace) -> None:
    listen_all(workspace)
    found = told("answers", workspace.root)
    assert found["teacher"] is None
    raters = pl.read_csv(found["raters_file"])
    assert raters["rater"].to_list() == [row["rater"] for row in found["raters"]]
    assert raters["sensitivity"].to_list() == [row["sensitivity"] for row in found["raters"]]
    labels = pl.read_parquet(found["labels_file"])
    assert len(labels) == found["labels"] == 150
    assert labels["is_disputed"].sum() == found["disputed"] > 0
    assert found["next"] == f"earmark review {workspace.root} --aim adjudicate --write-only"
    again = told("answers", workspace.root)
    assert again == found


def test_the_teacher_changes_chances_and_no_rater(workspace: Workspace) -> None:
    listen_all(workspace)
    alone = told("answers", workspace.root)
    chances = pl.read_parquet(alone["labels_file"])
    helped = told("answers", workspace.root, "--with-teacher")
    assert helped["raters"] == alone["raters"]
    assert helped["teacher"][0]["odds"] < 1 < helped["teacher"][-1]["odds"]
    assert not pl.read_parquet(helped["labels_file"])["chance"].equals(chances["chance"])


def test_one_rater_alone_is_told_what_is_missing(workspace: Workspace) -> None:
    listen_all(workspace, ["ann"])
    shown = earmark("answers", workspace.root).stdout
    assert "Nothing can be said of how good these raters are" in shown
    assert "unknown" in shown
    assert f"next: earmark relabel {workspace.root}" in shown


def test_an_adjudicator_hears_disputes_and_decides(workspace: Workspace) -> None:
    listen_all(workspace)
    advised = shlex.split(told("answers", workspace.root)["next"])
    drawn = told(*advised[1:])
    disputed = pl.read_parquet(workspace.weighed_path).filter("is_disputed")
    items = pl.read_parquet(workspace.queue_path)
    assert drawn["items"] == len(items) == len(disputed)
    assert set(items.select(PAIR).rows()) == set(disputed.select(PAIR).rows())
    truth = truth_of(workspace).join(items, on=PAIR, how="semi", maintain_order="left")
    listen(workspace, truth, "zoe", 1.0, ADJUDICATED)
    after = told("answers", workspace.root)
    assert after["disputed"] == 0
    assert after["next"] == f"earmark relabel {workspace.root}"
    assert [row["rater"] for row in after["raters"]] == ["ann", "bob", "eve"]
    earmark("relabel", workspace.root)
    corrected = read_relabelled(workspace, "corrected").labels.rows()
    decided = truth.join(corrected, on=PAIR, suffix="_corrected")
    assert len(decided) == len(truth)
    changes = read_relabelled(workspace, "corrected").changes.join(items, on=PAIR, how="semi")
    assert set(changes["rater"]) == {"zoe"}
    assert changes["score"].null_count() == 0
    assert decided["present"].equals(decided["present_corrected"], check_names=False)
    assert "at odds about no label" in refusal("review", workspace.root, "--aim", "adjudicate")


def test_the_most_doubtful_can_be_asked_for_alone(workspace: Workspace) -> None:
    listen_all(workspace)
    drawn = pipeline.draw_adjudication(workspace, n_items=3, flags_per_block=2)
    expected = pipeline.weigh_raters(workspace).weighed.disputed.head(3)
    assert set(drawn.queue.items.select(PAIR).rows()) == set(expected.select(PAIR).rows())


def test_without_judgements_there_are_no_raters(workspace: Workspace) -> None:
    assert "no judgements there yet" in refusal("answers", workspace.root)
