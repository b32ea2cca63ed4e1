from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.datasets import CHANGE_SCHEMA, CONFLICT_SCHEMA, read_relabelled
from earmark.errors import EarmarkError
from earmark.flags import flag
from earmark.labels import LabelSet, Ontology
from earmark.review import (
    ANSWERS,
    JUDGEMENT_SCHEMA,
    item_id,
    make_queue,
    relabel,
    without_cleared,
    write_relabelled,
)
from earmark.storage import read_json
from reviews import SMALL, answer_all, judgement, make_scores, table
from scenes import band_workspace

LABELS = LabelSet.from_dense([[0, 1], [0, -1], [0, 0]], ["c0", "c1", "c2"], ["x", "y"])


def _say(number: int, clip_id: str, class_id: str, answer: str, **changes: object):
    names = {"clip_id": clip_id, "class_id": class_id, "item": item_id(clip_id, class_id)}
    return judgement(number, answer, **names, **changes)


@pytest.mark.parametrize(
    ("answer", "whole_clip", "after", "state"),
    [
        ("present", False, "present", 1),
        ("present", True, "present", 1),
        ("not_present", True, "not_present", -1),
        ("not_present", False, "cleared", 0),
        ("unsure", True, "ignored", 0),
    ],
)
def test_what_becomes_of_an_implicit_label(
    answer: str, whole_clip: bool, after: str, state: int
) -> None:
    result = relabel(LABELS, table(_say(7, "c1", "x", answer, whole_clip=whole_clip)))
    expected = LABELS.states()
    expected[1, 0] = state
    assert np.array_equal(result.labels.states(), expected)
    (change,) = result.changes.iter_rows(named=True)
    assert (change["clip_id"], change["class_id"]) == ("c1", "x")
    assert (change["before"], change["after"], change["rater"]) == ("implicit", after, "ann")
    assert change["at"] == "2026-03-01T12:00:07.000000+00:00"
    assert change["item"] == item_id("c1", "x")
    ruling = {"cleared": -1, "ignored": 1}.get(after, 0)
    assert result.rulings.states()[1, 0] == ruling
    assert np.count_nonzero(result.rulings.states()) == abs(ruling)
    assert result.n_by_outcome[after] == 1


def test_raters_vote_and_ties_are_unsure() -> None:
    votes = table(
        _say(1, "c0", "x", "present", rater="ann"),
        _say(2, "c0", "x", "present", rater="bob"),
        _say(3, "c0", "x", "not_present", rater="cyd"),
        _say(4, "c1", "x", "present", rater="ann"),
        _say(5, "c1", "x", "not_present", rater="bob"),
        _say(6, "c2", "x", "not_present", rater="ann"),
        _say(7, "c2", "x", "not_present", rater="bob", whole_clip=True),
    )
    result = relabel(LABELS, votes)
    assert result.changes["after"].to_list() == ["present", "ignored", "not_present"]
    assert result.changes["rater"].to_list() == ["ann,bob,cyd", "ann,bob", "ann,bob"]


def test_a_whole_clip_heard_by_the_minority_does_not_count() -> None:
    votes = table(
        _say(1, "c0", "x", "not_present", rater="ann"),
        _say(2, "c0", "x", "not_present", rater="bob"),
        _say(3, "c0", "x", "present", rater="cyd", whole_clip=True),
    )
    assert relabel(LABELS, votes).changes["after"].to_list() == ["cleared"]


def test_explicit_labels_stay_and_contradictions_are_listed() -> None:
    answers = table(
        _say(1, "c0", "y", "not_present"), _say(2, "c1", "y", "not_present"),
        _say(3, "c2", "y", "cannot_play"),
    )  # fmt: skip
    result = relabel(LABELS, answers)
    assert result.labels.digest == LABELS.digest
    assert result.changes.is_empty()
    (conflict,) = result.conflicts.iter_rows(named=True)
    assert (conflict["clip_id"], conflict["label"]) == ("c0", "present")
    assert conflict["answer"] == "not_present"


def test_no_judgements_change_nothing() -> None:
    result = relabel(LABELS, pl.DataFrame(schema=JUDGEMENT_SCHEMA))
    assert result.labels.digest == LABELS.digest
    assert result.changes.schema == CHANGE_SCHEMA
    assert result.conflicts.schema == CONFLICT_SCHEMA
    assert not result.rulings.states().any()


def test_judgements_of_another_dataset_are_refused() -> None:
    with pytest.raises(EarmarkError, match="clip 'c9', which the labels do not know"):
        relabel(LABELS, table(_say(1, "c9", "x", "present")))
    with pytest.raises(EarmarkError, match="class 'z'"):
        relabel(LABELS, table(_say(1, "c0", "z", "present")))


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["c0", "c1", "c2"]), st.sampled_from("xy")),
        st.tuples(st.sampled_from(ANSWERS), st.booleans()),
    )
)
def test_relabelling_is_a_function_of_each_label_alone(answers) -> None:
    result = relabel(
        LABELS,
        table(
            *(
                _say(number, *pair, answer, whole_clip=whole)
                for number, (pair, (answer, whole)) in enumerate(answers.items())
            )
        ),
    )
    before, after, rulings = LABELS.states(), result.labels.states(), result.rulings.states()
    for row, clip_id in enumerate(("c0", "c1", "c2")):
        for column, class_id in enumerate("xy"):
            answer, whole = answers.get((clip_id, class_id), (None, False))
            expected = before[row, column], 0
            if expected[0] == 0:
                expected = {
                    "present": (1, 0), "unsure": (0, 1),
                    "not_present": (-1, 0) if whole else (0, -1),
                }.get(answer, (0, 0))  # fmt: skip
            assert (after[row, column], rulings[row, column]) == expected


def test_a_review_answered_from_the_truth_mends_the_labels() -> None:
    labels, truth, scores = make_scores()
    queue = make_queue(labels, scores, Ontology(labels.class_ids), SMALL)
    result = relabel(labels, answer_all(queue.items, truth, whole_clip=True), queue)
    sampled = queue.items.filter(pl.col("kind").is_in(["flag", "unflagged"]))
    assert len(result.changes) == len(sampled)
    assert result.conflicts.is_empty()
    states, true = result.labels.states(), truth.states()
    assert np.array_equal(states[states != 0], true[states != 0])
    assert (states != 0).sum() == (labels.states() != 0).sum() + len(sampled)
    flagged = result.changes.join(sampled, on="item")
    assert (flagged["score"] == flagged["logit"]).all()
    assert (flagged["rank"] == flagged["rank_right"]).all()
    assert (flagged["discard_percent"] == flagged["band_high"]).all()


def test_cleared_labels_are_flagged_no_more() -> None:
    labels, truth, scores = make_scores()
    queue = make_queue(labels, scores, Ontology(labels.class_ids), SMALL)
    refused = answer_all(queue.items, truth, slip=lambda answer: "not_present")
    result = relabel(labels, refused, queue)
    flags = flag(result.labels, scores, discard_percent=20, with_chance=False)
    left = without_cleared(flags, result.rulings)
    cleared = set(result.changes.select("clip_id", "class_id").rows())
    pairs = set(flags.select("clip_id", "class_id").rows())
    assert set(left.select("clip_id", "class_id").rows()) == pairs - cleared
    assert pairs & cleared


def test_corrected_labels_are_stamped_and_read_again(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path)
    clip_id = workspace.labels.clip_ids[int(np.argmin(np.abs(workspace.labels.states()[:, 0])))]
    judgements = table(_say(1, clip_id, "low", "present"))
    result = relabel(workspace.labels, judgements)
    with pytest.raises(EarmarkError, match="earmark relabel"):
        read_relabelled(workspace, "corrected")
    write_relabelled(workspace, "corrected", result, judgements)
    again = read_relabelled(workspace, "corrected")
    assert again.labels.digest == result.labels.digest != workspace.labels.digest
    assert again.changes.equals(result.changes)
    assert again.conflicts.equals(result.conflicts)
    meta = read_json(workspace.relabelled_folder("corrected") / "meta.json")
    assert meta["raters"] == ["ann"]
    assert meta["original_labels"] == workspace.labels.digest
    assert meta["outcomes"]["present"] == 1
    with pytest.raises(EarmarkError, match="did you mean 'corrected'"):
        read_relabelled(workspace, "corected")


@pytest.mark.parametrize("name", ["given", "truth"])
def test_corrected_labels_do_not_take_the_name_of_others(tmp_path: Path, name: str) -> None:
    workspace = band_workspace(tmp_path)
    nothing = pl.DataFrame(schema=JUDGEMENT_SCHEMA)
    with pytest.raises(EarmarkError, match="give another name with --out"):
        write_relabelled(workspace, name, relabel(workspace.labels, nothing), nothing)
