"""Inputs that are plausible and wrong: each is read rightly, or refused with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.datasets import import_table
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.pipeline import ScanResult, check_labels, scan

N_CLIPS, IDS = 400, ("cat", "dog", "owl")
CLIPS = [f"clip{number}" for number in range(N_CLIPS)]


@pytest.fixture(scope="module")
def states() -> np.ndarray:
    """Every clip has a label, and half of them two."""
    rng = np.random.default_rng(0)
    states = np.zeros((N_CLIPS, 3), np.int8)
    states[np.arange(N_CLIPS), rng.integers(0, 3, N_CLIPS)] = 1
    states[::2] |= rng.random((N_CLIPS // 2, 3)) < 0.3
    return states


@pytest.fixture(scope="module")
def logits(states: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(1).normal(-3, 1, states.shape)
    return (noise + 4 * states).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray) -> Path:
    """Scores that name neither clips nor classes, and lists of both."""
    np.save(tmp_path / "scores.npy", logits)
    (tmp_path / "classes.txt").write_text("\n".join(IDS))
    (tmp_path / "clips.txt").write_text("\n".join(CLIPS))
    return tmp_path


def long_rows(states: np.ndarray) -> pl.DataFrame:
    return LabelSet.from_dense(states, CLIPS, IDS).rows()


def write_long(folder: Path, states: np.ndarray) -> Path:
    rows = long_rows(states).sample(fraction=1, shuffle=True, seed=2)
    rows.write_csv(folder / "long.csv")
    return folder / "long.csv"


def write_multi_hot(folder: Path, states: np.ndarray) -> Path:
    table = pl.DataFrame({"clip_id": CLIPS}).with_columns(
        pl.Series(name, states[:, column]) for column, name in enumerate(IDS)
    )
    table.write_csv(folder / "hot.csv")
    return folder / "hot.csv"


def write_lists(folder: Path, states: np.ndarray) -> Path:
    cells = [";".join(np.array(IDS)[row == 1]) for row in states]
    pl.DataFrame({"filename": CLIPS, "labels": cells}).write_csv(folder / "l.tsv", separator="\t")
    return folder / "l.tsv"


def scanned(folder: Path, labels: Path, **options: object) -> ScanResult:
    given = {"classes": folder / "classes.txt", **options}
    return scan(labels, folder / "scores.npy", **given)  # type: ignore[arg-type]


def test_several_rows_for_a_clip_do_not_pair_by_position(folder: Path, states: np.ndarray) -> None:
    labels = write_long(folder, states)
    with pytest.raises(EarmarkError, match=r"several rows for a clip.*\(--clips FILE\)"):
        scanned(folder, labels)
    listed = scanned(folder, labels, clips=folder / "clips.txt")
    assert listed.notes == ()
    hot = scanned(folder, write_multi_hot(folder, states))
    assert listed.findings.flags.equals(hot.findings.flags)


@pytest.mark.parametrize("write", [write_multi_hot, write_lists])
def test_one_row_for_a_clip_pairs_by_position_and_says_so(
    folder: Path, states: np.ndarray, write: Callable[[Path, np.ndarray], Path]
) -> None:
    labels = write(folder, states)
    result = scanned(folder, labels)
    told = (
        "The first row of scores.npy is taken for clip 'clip0', the last for 'clip399', as in "
        f"{labels.name}."
    )
    assert told in result.notes
    assert told in result.lines()
    by_name = scanned(folder, labels, clips=folder / "clips.txt")
    assert told not in by_name.notes
    assert by_name.findings.flags.equals(result.findings.flags)


def test_columns_that_pair_by_position_are_told(folder: Path, states: np.ndarray) -> None:
    result = scan(write_multi_hot(folder, states), folder / "scores.npy", out=folder / "out")
    told = (
        "The first column of scores.npy is taken for class 'cat', the last for 'owl', as in "
        "hot.csv."
    )
    assert told in result.notes
    assert "taken for class" in (folder / "out" / "index.html").read_text()


def test_matrices_pair_by_position_and_say_so(folder: Path, states: np.ndarray) -> None:
    np.save(folder / "labels.npy", states)
    told = "The first row of scores.npy is taken for the first of labels.npy, and so on."
    assert scanned(folder, folder / "labels.npy").notes == (told,)


def test_a_list_of_clips_must_be_the_labels(folder: Path, states: np.ndarray) -> None:
    labels = write_long(folder, states)
    for text, message in (
        ("\n".join([*CLIPS[:-1], CLIPS[0]]), "clip 'clip0' is listed twice"),
        ("\n".join(CLIPS[:-1]), "399 clips for 400 rows of scores"),
        ("\n".join(f"{name}_a" for name in CLIPS), r"no row for any of its clips.*clip0_a"),
    ):
        (folder / "clips.txt").write_text(text)
        with pytest.raises(EarmarkError, match=message):
            scanned(folder, labels, clips=folder / "clips.txt")


@pytest.mark.parametrize("name", ["clips.csv", "clips.parquet", "clips.lst"])
def test_clips_may_be_listed_in_any_file(folder: Path, states: np.ndarray, name: str) -> None:
    table = pl.DataFrame({"filename": CLIPS, "seconds": [10] * N_CLIPS})
    if name.endswith("parquet"):
        table.write_parquet(folder / name)
    elif name.endswith("csv"):
        table.write_csv(folder / name)
    else:
        (folder / name).write_text("\n".join(CLIPS))
    result = scanned(folder, write_long(folder, states), clips=folder / name)
    assert result.findings.classes["n_positives"].to_list() == (states == 1).sum(axis=0).tolist()


def test_transposed_scores_are_called_so(
    folder: Path, states: np.ndarray, logits: np.ndarray
) -> None:
    np.save(folder / "scores.npy", logits.T)
    np.save(folder / "labels.npy", states)
    hot, long = write_multi_hot(folder, states), write_long(folder, states)
    for labels, given in (
        (folder / "labels.npy", {}),
        (hot, {}),
        (hot, {"classes": folder / "classes.txt"}),
        (long, {"classes": folder / "classes.txt", "clips": folder / "clips.txt"}),
    ):
        with pytest.raises(EarmarkError, match="transposed"):
            scan(labels, folder / "scores.npy", **given)  # type: ignore[arg-type]


def test_more_columns_than_classes_are_refused(
    folder: Path, states: np.ndarray, logits: np.ndarray
) -> None:
    np.save(folder / "scores.npy", np.hstack([logits, logits]))
    with pytest.raises(EarmarkError, match=r"6 columns, but .*hot\.csv has 3 classes.*--classes"):
        scan(write_multi_hot(folder, states), folder / "scores.npy")


def test_a_gap_in_an_array_names_no_scratch_file(states: np.ndarray, logits: np.ndarray) -> None:
    holes = logits.copy()
    holes[9, 1] = np.nan
    with pytest.raises(EarmarkError, match=r"^scores: clip 'clip9' \(row 9\), class 'dog'"):
        scan(LabelSet.from_dense(states, CLIPS, IDS), holes)


def test_swapped_labels_are_named_beside_named_scores(
    folder: Path, states: np.ndarray, logits: np.ndarray
) -> None:
    rows = long_rows(states).rename({"clip_id": "class_id", "class_id": "clip_id"})
    rows.write_csv(folder / "swapped.csv")
    with pytest.raises(EarmarkError, match="are the columns swapped"):
        scanned(folder, folder / "swapped.csv", clips=folder / "clips.txt")
    np.savez(folder / "few.npz", scores=logits[:9], clip_ids=CLIPS[:9], class_ids=IDS)
    rows.filter(pl.col("class_id").is_in(CLIPS[:9])).write_csv(folder / "few.csv")
    with pytest.raises(EarmarkError, match="are clips and classes swapped in the labels"):
        scan(folder / "few.csv", folder / "few.npz")


@pytest.mark.parametrize("text", ["clip_id,class_id,present\n", "clip_id,cat,dog\na,0,0\n"])
def test_labels_without_one_label_are_refused_by_every_verb(folder: Path, text: str) -> None:
    labels = folder / "labels.csv"
    labels.write_text(text)
    for work in (
        lambda: scanned(folder, labels, clips=folder / "clips.txt"),
        lambda: check_labels(labels),
        lambda: import_table(None, labels, folder / "w"),
    ):
        with pytest.raises(EarmarkError, match="not one label"):
            work()


def test_states_without_one_label_are_refused(folder: Path, logits: np.ndarray) -> None:
    np.save(folder / "labels.npy", np.zeros((N_CLIPS, 3), np.int8))
    with pytest.raises(EarmarkError, match="not one explicit label"):
        scanned(folder, folder / "labels.npy")
    with pytest.raises(EarmarkError, match="not one explicit label"):
        scan(LabelSet.from_dense(np.zeros((N_CLIPS, 3))), logits)


def test_every_verb_has_one_rule_for_repeated_labels(folder: Path) -> None:
    labels = folder / "labels.csv"
    labels.write_text("filename,label\nclip0,cat\nclip1,dog\nclip0,cat\nclip2,owl\n")
    note = "1 label given twice, counted once"
    assert note in scanned(folder, labels, clips=folder / "clips.txt").notes
    assert note in import_table(None, labels, folder / "w").notes
    checked = check_labels(labels)
    assert [finding.kind for finding in checked.findings] == [
        "duplicate row", "no explicit negatives"
    ]  # fmt: skip
    assert not checked.has_errors


def test_every_verb_has_one_rule_for_what_is_contradicted(folder: Path) -> None:
    labels = folder / "labels.csv"
    labels.write_text("filename,label,present\nclip0,cat,1\nclip1,dog,1\nclip0,cat,no\n")
    told = r"line 4: contradicts line 2 \(clip 'clip0', class 'cat'\)"
    with pytest.raises(EarmarkError, match=told):
        scanned(folder, labels, clips=folder / "clips.txt")
    with pytest.raises(EarmarkError, match=told):
        import_table(None, labels, folder / "w")
    assert check_labels(labels).has_errors


def test_columns_separators_and_zeros_can_be_given(folder: Path) -> None:
    (folder / "hot.csv").write_text("what,cat,dog\nclip0,1,0\nclip1,0,1\n")
    given = {"columns": {"clip_id": "what"}, "zeros": "absent", "clips": folder / "clips.txt"}
    result = scanned(folder, folder / "hot.csv", **given)
    assert result.findings.classes["n_negatives"].to_list() == [1, 1, 0]
    (folder / "lists.csv").write_text("clip_id,label\nclip0,cat + dog\nclip1,owl\n")
    result = scanned(folder, folder / "lists.csv", separator="+", clips=folder / "clips.txt")
    assert result.findings.classes["n_positives"].to_list() == [1, 1, 1]


def test_clips_and_classes_without_scores_are_left_out_and_told(
    folder: Path, states: np.ndarray, logits: np.ndarray
) -> None:
    holes = logits.copy()
    holes[:7], holes[:, 2] = np.nan, np.nan
    np.save(folder / "scores.npy", holes)
    result = scanned(folder, write_multi_hot(folder, states))
    told = "\n".join(result.warnings)
    assert "7 of 400 clips have no scores (NaN in every class, such as 'clip0'" in told
    assert "there are no scores (NaN throughout): 'owl'" in told
    rest = LabelSet.from_dense(states[7:, :2], CLIPS[7:], IDS[:2])
    expected = scan(rest, logits[7:, :2]).findings.flags
    keys = ["clip_id", "class_id", "logit", "rank"]
    assert result.findings.flags.select(keys).equals(expected.select(keys))
    in_memory = scan(LabelSet.from_dense(states, CLIPS, IDS), holes)
    assert in_memory.findings.flags.equals(result.findings.flags)


def test_scores_may_come_as_csv(folder: Path, states: np.ndarray, logits: np.ndarray) -> None:
    rows = np.random.default_rng(3).permutation(N_CLIPS)
    table = pl.DataFrame(logits[rows].astype(np.float64), schema=list(IDS))
    table.insert_column(0, pl.Series("filename", CLIPS)[rows]).write_csv(folder / "scores.csv")
    labels = write_long(folder, states)
    result = scan(labels, folder / "scores.csv")
    plain = scanned(folder, labels, clips=folder / "clips.txt")
    keys = ["clip_id", "class_id", "rank"]
    assert (
        result.findings.flags.sort(keys)
        .select(keys)
        .equals(plain.findings.flags.sort(keys).select(keys))
    )


def test_a_clip_with_a_row_and_no_label_is_not_said_to_lack_a_row(
    folder: Path, states: np.ndarray
) -> None:
    bare = states.copy()
    bare[::3] = 0
    for write in (write_multi_hot, write_lists):
        result = scanned(folder, write(folder, bare), clips=folder / "clips.txt")
        assert not [text for text in result.warnings if "have no row" in text]
    lines = (folder / "hot.csv").read_text().splitlines()
    (folder / "hot.csv").write_text("\n".join(lines[:-1]))
    result = scanned(folder, folder / "hot.csv", clips=folder / "clips.txt")
    assert [text for text in result.warnings if "have no row" in text] == [
        "1 of 400 clips have no row in hot.csv (such as 'clip399'): all their labels are implicit"
    ]


@pytest.mark.parametrize("ending", ["{}.wav", "2024/{}.FLAC"])
def test_clips_are_matched_without_the_endings_of_sound_files(
    folder: Path, states: np.ndarray, ending: str
) -> None:
    labels = write_long(folder, states)
    plain = scanned(folder, labels, clips=folder / "clips.txt")
    named = [ending.format(name) for name in CLIPS]
    (folder / "clips.txt").write_text("\n".join(named))
    result = scanned(folder, labels, clips=folder / "clips.txt")
    assert any(text.startswith("Clips are matched without their") for text in result.lines())
    flags = plain.findings.flags.with_columns(pl.format(ending, "clip_id").alias("clip_id"))
    assert result.findings.flags.equals(flags)
