from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from checked import CLASS_IDS, checkable_workspace, hear_all
from earmark import pipeline
from earmark.config import ReviewParams
from earmark.datasets import Workspace
from earmark.flags import LEAST_ANSWERS
from earmark.review import HeardLabels, read_heard


@pytest.fixture
def made(tmp_path: Path) -> tuple[Workspace, np.ndarray]:
    return checkable_workspace(tmp_path / "w")


def heard(workspace: Workspace) -> HeardLabels:
    found = read_heard(workspace, workspace.labels)
    assert found is not None
    return found


def answer(workspace: Workspace, *answers: tuple[str, str, str, str]) -> None:
    """Import answers: clip, class, answer, rater."""
    names = ("clip_id", "class_id", "answer", "rater")
    path = workspace.root / "some.parquet"
    pl.DataFrame(answers, schema=names, orient="row").write_parquet(path)
    pipeline.import_judgements(workspace, path)


def implicit(workspace: Workspace, n: int) -> list[tuple[str, str]]:
    rows, columns = np.nonzero(workspace.labels.states() == 0)
    chosen = np.linspace(0, len(rows) - 1, n).astype(int)
    clips = workspace.labels.clip_ids
    return [(clips[int(rows[i])], CLASS_IDS[columns[i]]) for i in chosen]


def test_nothing_was_heard(made: tuple[Workspace, np.ndarray]) -> None:
    assert read_heard(made[0], made[0].labels) is None


def test_a_random_queue_stands_for_every_label(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, missing = made
    hear_all(workspace, missing)
    answers = heard(workspace).answers
    assert answers.is_sampled.all()
    assert answers.stands_for.sum() == pytest.approx(workspace.labels.n_implicit.sum())
    assert np.array_equal(answers.present > 0.5, missing[answers.rows, answers.columns])


def test_a_queue_that_was_begun_stands_for_all_of_its_bands(
    made: tuple[Workspace, np.ndarray],
) -> None:
    workspace, _ = made
    params = ReviewParams(aim="measure", flags_per_block=20, blocks_per_class=2)
    items = pipeline.draw_queue(workspace, params=params).queue.items
    first = items.filter(pl.col("block") < 2, pl.col("kind").is_in(["flag", "unflagged"]))
    pairs = first.select("clip_id", "class_id").unique(maintain_order=True).rows()
    answer(workspace, *((clip, name, "present", "ann") for clip, name in pairs))
    answers = heard(workspace).answers
    assert answers.is_sampled.all()
    bands = items.filter(pl.col("kind").is_in(["flag", "unflagged"]))["band_high"].unique()
    assert len(np.unique(answers.stands_for)) <= len(bands)
    assert answers.stands_for.sum() > 2 * len(answers)


def test_raters_at_odds_are_between_and_gone_clips_are_left_out(
    made: tuple[Workspace, np.ndarray],
) -> None:
    workspace, _ = made
    (first, second, third) = implicit(workspace, 3)
    answer(
        workspace,
        (*first, "present", "ann"), (*first, "not_present", "bob"),
        (*second, "unsure", "ann"), (*third, "present", "ann"),
        ("gone", third[1], "present", "ann"), (third[0], "/m/gone", "present", "ann"),
    )  # fmt: skip
    found = heard(workspace)
    assert sorted(found.answers.present) == [0.5, 0.5, 1.0]
    assert (found.n_at_odds, found.n_gone) == (2, 2)
    assert not found.answers.is_sampled.any()
    assert found.told == (
        "by ear 1 of 3 labels were there, raters unsure or at odds about 2; 2 of clips or classes "
        f"that are gone are left out; chances learn from {LEAST_ANSWERS} on"
    )


def test_few_answers_change_nothing_and_twenty_do(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, _ = made
    before = pipeline.write_flags(workspace).flags
    pairs = implicit(workspace, LEAST_ANSWERS)
    answer(workspace, *((*pair, "not_present", "ann") for pair in pairs[1:]))
    assert pipeline.write_flags(workspace).flags.equals(before)
    answer(workspace, (*pairs[0], "not_present", "ann"))
    after = pipeline.write_flags(workspace)
    assert not after.flags.equals(before)
    assert "all alike, so that they teach little" in after.findings.data_told


def test_what_is_explicit_is_no_answer(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, _ = made
    row, column = np.argwhere(workspace.labels.states() > 0)[0]
    clip = workspace.labels.clip_ids[int(row)]
    answer(workspace, (clip, CLASS_IDS[column], "not_present", "ann"))
    assert read_heard(workspace, workspace.labels) is None


def test_a_label_that_was_settled_no_longer_stands_for_itself(
    made: tuple[Workspace, np.ndarray],
) -> None:
    workspace, missing = made
    hear_all(workspace, missing)
    given = heard(workspace).answers
    pipeline.correct_labels(workspace)
    corrected = pipeline.write_flags(workspace, labels="corrected").findings
    assert corrected.total is not None
    before = pipeline.write_flags(workspace).findings.total
    assert before is not None
    n_found = int((given.present > 0.5).sum())
    assert corrected.total[1] == pytest.approx(before[1] - n_found, rel=0.35)
