from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from checked import CLASS_IDS, checkable_workspace, hear_all
from earmark import pipeline
from earmark.config import ReviewParams
from earmark.datasets import Workspace
from earmark.flags import LEAST_ANSWERS, MissingEstimates, find_p_missing
from earmark.review import HeardLabels, estimate_from_answers, read_heard
from reviews import judgement


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


def hear_likely(workspace: Workspace, missing: np.ndarray, n_blocks: int = 6) -> None:
    """Answer blocks of a queue that grows from the truth, half of them at random."""
    params = ReviewParams(sample_share=0.5, flags_per_block=25)
    pipeline.draw_queue(workspace, params=params)
    is_present = missing | (workspace.labels.states() > 0)
    rows = {clip_id: row for row, clip_id in enumerate(workspace.clips["clip_id"])}
    number = 0
    with (
        pipeline.open_judgements(workspace) as store,
        pipeline.open_queue(workspace, store, ["ann"]) as queue,
    ):
        for _ in range(n_blocks):
            block = queue.next_block("ann")
            assert block is not None
            for row in block.items.iter_rows(named=True):
                number += 1
                is_there = is_present[rows[row["clip_id"]], CLASS_IDS.index(row["class_id"])]
                said = "present" if is_there else "not_present"
                asked = {name: row[name] for name in ("item", "clip_id", "class_id")}
                store.add(judgement(number, said, rater="ann", **asked))
            queue.drawer.learn()


def estimates(workspace: Workspace) -> MissingEstimates:
    """Return what is known of 40 flags, spread over all implicit labels, and of the total."""
    scores = np.load(workspace.scores_folder("teacher") / "logits.npy")
    flags = pl.DataFrame(implicit(workspace, 40), schema=["clip_id", "class_id"], orient="row")
    p_missing = find_p_missing(workspace.labels, scores)
    judged = read_heard(workspace, workspace.labels)
    if judged is not None:
        p_missing = p_missing.with_answers(judged.answers)
    return estimate_from_answers(workspace, workspace.labels, flags, p_missing)


def test_answers_say_what_is_missing(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, missing = made
    hear_all(workspace, missing)
    answers = heard(workspace).answers
    assert np.array_equal(answers.present > 0.5, missing[answers.rows, answers.columns])


def test_before_answers_nothing_is_said_of_totals(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, _ = made
    known = estimates(workspace)
    assert known.total is None
    assert known.n_right.low < known.n_right.value < known.n_right.high
    assert known.n_flags == known.n_left == 40
    assert "In all" not in known.describe()


def test_a_queue_that_measures_gives_a_total(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, missing = made
    hear_all(workspace, missing)
    known = estimates(workspace)
    assert known.n_labels == workspace.labels.n_implicit.sum()
    assert known.total.low <= missing.sum() <= known.total.high
    assert known.n_confirmed <= known.total.low
    assert sum(known.class_totals.values()) == pytest.approx(known.total.value)


def test_a_queue_that_grows_gives_a_total(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, missing = made
    hear_likely(workspace, missing)
    known = estimates(workspace)
    assert known.n_random >= 20
    assert known.n_answers == len(heard(workspace).answers)
    assert known.n_confirmed == (heard(workspace).answers.present > 0.5).sum()
    assert known.n_confirmed <= known.total.low <= known.total.value <= known.total.high
    assert sum(known.class_totals.values()) == pytest.approx(known.total.value)
    assert known.n_positives == workspace.labels.n_positives.sum()


def test_imported_answers_teach_and_give_no_total(made: tuple[Workspace, np.ndarray]) -> None:
    workspace, missing = made
    rows = {clip_id: row for row, clip_id in enumerate(workspace.labels.clip_ids)}
    is_there = {True: "present", False: "not_present"}
    pairs = implicit(workspace, 60)
    says = [is_there[bool(missing[rows[clip], CLASS_IDS.index(name)])] for clip, name in pairs]
    answer(workspace, *((*pair, said, "ann") for pair, said in zip(pairs, says, strict=True)))
    known = estimates(workspace)
    assert known.n_answers == 60
    assert known.total is None
    assert known.n_confirmed == says.count("present")
    assert known.n_left < known.n_flags


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
    assert found.describe() == (
        f"p_missing learns from {LEAST_ANSWERS} answers on; raters were unsure or disagreed about "
        "2; 2 of clips or classes that are gone are left out"
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
