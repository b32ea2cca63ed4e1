from __future__ import annotations

import contextlib
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.scores import ScoreMatrix, detect_scale, files, map_scores, open_score_file

SCORES = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
CLIPS, CLASSES = [f"clip{i}" for i in range(7)], ["a", "b", "c"]
SHARED_FOLDER = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Make every conversion take several blocks."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 8 * 3 * 2)


def loaded(path, scratch, **options):
    file = open_score_file(path, **options)
    return file, np.load(file.write_npy(scratch / "scratch.npy"))


def wide_table(rows=slice(None)):
    return pl.DataFrame({"clip_id": CLIPS[rows]}).with_columns(
        pl.Series(name, SCORES[rows, column]) for column, name in enumerate(CLASSES)
    )


def test_an_npy_is_used_where_it_lies(tmp_path):
    np.save(tmp_path / "s.npy", SCORES)
    file = open_score_file(tmp_path / "s.npy")
    assert (file.shape, file.clip_ids, file.class_ids) == ((7, 3), None, None)
    assert file.write_npy(tmp_path / "never.npy") == tmp_path / "s.npy"
    assert not (tmp_path / "never.npy").exists()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_may_hold_names_beside_the_scores(tmp_path, order, save):
    scores = np.asarray(SCORES, order=order)
    save(tmp_path / "s.npz", logits=scores, clip_ids=CLIPS, class_ids=np.array(CLASSES, "S"))
    file, found = loaded(tmp_path / "s.npz", tmp_path)
    np.testing.assert_array_equal(found, SCORES)
    assert file.clip_ids.to_list() == CLIPS
    assert file.class_ids == tuple(CLASSES)


def test_of_several_matrices_the_named_one_is_taken(tmp_path):
    np.savez(tmp_path / "s.npz", one=SCORES, two=SCORES + 1)
    with pytest.raises(EarmarkError, match="name the one to use"):
        open_score_file(tmp_path / "s.npz")
    np.testing.assert_array_equal(loaded(tmp_path / "s.npz", tmp_path, key="two")[1], SCORES + 1)
    with pytest.raises(EarmarkError, match="no array 'tow'; did you mean 'two'"):
        open_score_file(tmp_path / "s.npz", key="tow")


def test_a_wide_table_names_clips_and_classes(tmp_path):
    wide_table().write_parquet(tmp_path / "s.parquet")
    file, found = loaded(tmp_path / "s.parquet", tmp_path)
    np.testing.assert_array_equal(found, SCORES)
    assert (file.clip_ids.to_list(), file.class_ids) == (CLIPS, tuple(CLASSES))


def test_columns_that_are_numbered_name_no_classes(tmp_path):
    pl.DataFrame(SCORES, schema=["0", "1", "2"]).write_parquet(tmp_path / "s.parquet")
    file, found = loaded(tmp_path / "s.parquet", tmp_path)
    np.testing.assert_array_equal(found, SCORES)
    assert (file.clip_ids, file.class_ids) == (None, None)


def test_a_long_table_in_any_order_makes_the_same_matrix(tmp_path):
    long = wide_table().unpivot(index="clip_id", variable_name="class_id", value_name="logit")
    long = long.sample(fraction=1, shuffle=True, seed=1)
    long.write_parquet(tmp_path / "s.parquet")
    file, found = loaded(tmp_path / "s.parquet", tmp_path)
    rows = [CLIPS.index(clip) for clip in file.clip_ids]
    columns = [CLASSES.index(name) for name in file.class_ids]
    np.testing.assert_array_equal(found, SCORES[np.ix_(rows, columns)])


def test_a_long_table_with_a_gap_or_a_repetition_is_refused(tmp_path):
    long = wide_table().unpivot(index="clip_id", variable_name="class_id", value_name="score")
    gap = long.filter((pl.col("clip_id") != "clip4") | (pl.col("class_id") != "b"))
    gap.write_parquet(tmp_path / "gap.parquet")
    with pytest.raises(EarmarkError, match="'clip4', class 'b' has no score"):
        loaded(tmp_path / "gap.parquet", tmp_path)
    pl.concat([long, long[:1]]).write_parquet(tmp_path / "twice.parquet")
    with pytest.raises(EarmarkError, match="'clip0', class 'a' has more than one score"):
        loaded(tmp_path / "twice.parquet", tmp_path)


def test_a_folder_of_earmark_s_own_scores_is_used_where_it_lies(tmp_path):
    np.save(tmp_path / "logits.npy", SCORES)
    np.save(tmp_path / "best_patches.npy", np.zeros((7, 3), np.uint16))
    pl.DataFrame({"clip_id": CLIPS}).write_parquet(tmp_path / "clips.parquet")
    (tmp_path / "meta.json").write_text(json.dumps({"class_ids": CLASSES, "digest": "0"}))
    file = open_score_file(tmp_path)
    assert file.npy == tmp_path / "logits.npy"
    assert file.class_ids == tuple(CLASSES)


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_a_table_that_cannot_be_used_leaves_nothing_behind(tmp_path, name):
    rows = {"clip_id": ["a", "a", "b"], "class_id": ["x", "y", "x"], "score": [1.0, 2.0, 3.0]}
    table = pl.DataFrame(rows)
    table.write_csv(tmp_path / name) if name == "s.csv" else table.write_parquet(tmp_path / name)
    (tmp_path / "out").mkdir()
    with pytest.raises(EarmarkError, match="has no score"):
        open_score_file(tmp_path / name).write_npy(tmp_path / "out" / "s.npy")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_truncated_npy_is_refused(tmp_path):
    np.save(tmp_path / "s.npy", SCORES)
    content = (tmp_path / "s.npy").read_bytes()
    (tmp_path / "s.npy").write_bytes(content[:-4])
    with pytest.raises(EarmarkError, match="cut short"):
        open_score_file(tmp_path / "s.npy")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((2, 3, 1)), r"shape \(2, 3, 1\)"),
        (np.zeros((2, 3), int), "float16, float32 or float64, got int64"),
        (np.zeros((2, 3), np.longdouble), "got "),
    ],
)
def test_other_arrays_are_refused(tmp_path, scores, message):
    np.save(tmp_path / "s.npy", scores)
    with pytest.raises(EarmarkError, match=message):
        open_score_file(tmp_path / "s.npy")


def test_a_folder_that_earmark_did_not_write_is_refused(tmp_path):
    np.save(tmp_path / "1.npy", SCORES)
    with pytest.raises(EarmarkError, match="join parts first"):
        open_score_file(tmp_path)


def test_names_must_be_as_many_as_the_scores_and_unique(tmp_path):
    np.savez(tmp_path / "s.npz", scores=SCORES, clip_ids=CLIPS[:6])
    with pytest.raises(EarmarkError, match="6 clip names for 7"):
        open_score_file(tmp_path / "s.npz")
    np.savez(tmp_path / "s.npz", scores=SCORES, class_ids=["a", "b", "a"])
    with pytest.raises(EarmarkError, match="class 'a' is listed twice"):
        open_score_file(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("name", "delimiter"), [("s.csv", ","), ("s.tsv", "\t"), ("s.csv", ";"), ("s.csv", "|")]
)
def test_a_wide_csv_names_clips_and_classes(tmp_path, name, delimiter):
    wide_table().write_csv(tmp_path / name, separator=delimiter, include_bom=True)
    file, found = loaded(tmp_path / name, tmp_path)
    np.testing.assert_allclose(found, SCORES, rtol=1e-6)
    assert (file.clip_ids.to_list(), file.class_ids) == (CLIPS, tuple(CLASSES))
    assert [path.name for path in tmp_path.glob("scratch*")] == ["scratch.npy"]


def test_a_long_csv_makes_the_same_matrix(tmp_path):
    long = wide_table().unpivot(index="clip_id", variable_name="label", value_name="score")
    long.rename({"clip_id": "filename"}).write_csv(tmp_path / "s.csv")
    file, found = loaded(tmp_path / "s.csv", tmp_path)
    np.testing.assert_allclose(found, SCORES, rtol=1e-6)
    assert (file.clip_ids.to_list(), file.class_ids) == (CLIPS, tuple(CLASSES))
    long[1:].write_csv(tmp_path / "gap.csv")
    with pytest.raises(EarmarkError, match="'clip0', class 'a' has no score"):
        loaded(tmp_path / "gap.csv", tmp_path)


def test_the_row_numbers_of_pandas_are_no_scores(tmp_path):
    lines = [f"{row},{clip},0.5,{row}" for row, clip in enumerate(CLIPS)]
    (tmp_path / "s.csv").write_text("\n".join([",file,007,08", *lines]))
    file, found = loaded(tmp_path / "s.csv", tmp_path)
    assert (file.clip_ids.to_list(), file.class_ids) == (CLIPS, ("007", "08"))
    np.testing.assert_array_equal(found[:, 1], range(7))
    (tmp_path / "s.csv").write_text(",a,b\nclip0,1,2\n")
    with pytest.raises(EarmarkError, match="column 1 has no name; if it holds the clips"):
        open_score_file(tmp_path / "s.csv")


def test_what_is_empty_or_nan_in_a_csv_is_nan(tmp_path):
    (tmp_path / "s.csv").write_text("clip_id,a,b\nx,,1\ny,NaN,-inf\n")
    found = loaded(tmp_path / "s.csv", tmp_path)[1]
    np.testing.assert_array_equal(found, [[np.nan, 1], [np.nan, -np.inf]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clip_id,a,b\nx,1,2\ny,1,two\n", r"line 3: b must be a score, .* got 'two'"),
        ("clip_id;a;b\nx;1;2\ny;1;0,5\n", r"line 3: b must be a score, .* got '0,5'"),
        ("clip_id,a,b\nx,1,2\ny,1,2,3\n", r"line 3: 4 fields where the header has 3"),
        ("clip_id,a,b\nx,1,2\n,1,2\n", "clip_id is empty in row 2"),
        ("what,a,b\nx,1,2\n", r"line 2: what must be a score.*if the column names the clips"),
        ("clip_id,a,a\nx,1,2\n", "two columns are called 'a'"),
        ("clip_id,a,b\nx,1,2\nx,1,2\n", "clip 'x' is listed twice"),
        ("", "the file is empty"),
    ],
)
def test_says_what_is_wrong_with_a_csv(tmp_path, text, message):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(EarmarkError, match=message):
        loaded(tmp_path / "s.csv", tmp_path)


def test_text_in_a_wide_table_is_named(tmp_path):
    wide_table().with_columns(b=pl.lit("x")).write_parquet(tmp_path / "s.parquet")
    with pytest.raises(EarmarkError, match="column 'b' holds String"):
        open_score_file(tmp_path / "s.parquet")


def try_to_read(path, scratch):
    with contextlib.suppress(EarmarkError):
        file = open_score_file(path)
        npy = file.write_npy(scratch / "scratch.npy")
        detect_scale(ScoreMatrix(map_scores(npy), npy))


@SHARED_FOLDER
@given(st.binary(max_size=300), st.sampled_from(["npy", "npz", "parquet", "csv"]))
def test_random_bytes_are_read_or_refused_but_never_crash(tmp_path, content, ending):
    path = tmp_path / f"fuzz.{ending}"
    path.write_bytes(content)
    try_to_read(path, tmp_path)


@SHARED_FOLDER
@given(st.data(), st.sampled_from(["npy", "npz", "parquet", "csv"]))
def test_damaged_files_are_read_or_refused_but_never_crash(tmp_path, data, ending):
    path = tmp_path / f"damaged.{ending}"
    {
        "npy": lambda: np.save(path, SCORES),
        "npz": lambda: np.savez_compressed(path, scores=SCORES, clip_ids=CLIPS),
        "parquet": lambda: wide_table().write_parquet(path),
        "csv": lambda: wide_table().write_csv(path),
    }[ending]()
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try_to_read(path, tmp_path)
