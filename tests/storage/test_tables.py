from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.storage import LINE, SourceTable, read_source, tables


def write(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("id,n\n007,1\na, b \n", [2, 3]),
        ("id;n\n007;1\na; b \n", [2, 3]),
        ("id|n\n007|1\na| b \n", [2, 3]),
        ("id\tn\n007\t1\na\t b \n", [2, 3]),
        (b"\xef\xbb\xbfid,n\r\n007,1\r\na,b\r\n", [2, 3]),
        ('"id","n"\n"007","1"\n"a","b"', [2, 3]),
        ('id, "n"\n007, "1"\na, "b"\n', [2, 3]),
        ("\n id ,n\n\n007,1\n\n\na,b\n\n", [4, 7]),
        ("id,n\r007,1\ra,b\r", [2, 3]),
        (",id,n\n0,007,1\n1,a,b\n", [2, 3]),
    ],
    ids=[
        "comma",
        "semicolon",
        "bar",
        "tab",
        "bom",
        "quotes",
        "late-quotes",
        "blank",
        "cr",
        "pandas",
    ],
)
def test_text_stays_text_and_lines_are_known(
    tmp_path: Path, text: str | bytes, lines: list[int]
) -> None:
    table = read_source(write(tmp_path, text))
    assert table.columns == ["id", "n"]
    assert table.rows.select("id", "n").rows() == [("007", "1"), ("a", "b")]
    assert table.rows[LINE].to_list() == lines
    assert table.at(lines[1]) == f"{tmp_path}/t.csv, line {lines[1]}"


def test_cells_may_hold_delimiters_quotes_and_newlines(tmp_path: Path) -> None:
    text = 'id,n\n"a, b",""\n"c ""d""\ne",2\nf,\n'
    table = read_source(write(tmp_path, text))
    assert table.rows.select(LINE, "id", "n").rows() == [
        (2, "a, b", None),
        (3, 'c "d"\ne', "2"),
        (5, "f", None),
    ]


def test_a_file_without_a_header_is_given_one(tmp_path: Path) -> None:
    for text in ("1,a\n2,b\n", '1,a\n2,"b"\n'):
        table = read_source(write(tmp_path, text), header=("n", "id"))
        assert table.rows.select(LINE, "n", "id").rows() == [(1, "1", "a"), (2, "2", "b")]


def test_a_table_without_rows_has_columns(tmp_path: Path) -> None:
    for text in ("id,n\n", "id,n", "id,n\r\n\r\n"):
        table = read_source(write(tmp_path, text))
        assert (table.columns, len(table.rows)) == (["id", "n"], 0)
        assert table.rows.schema["id"] == pl.String


def test_parquet_is_taken_as_it_is_and_rows_are_counted(tmp_path: Path) -> None:
    pl.DataFrame({"id": [7, 8], "on": [True, None]}).write_parquet(tmp_path / "t.parquet")
    table = read_source(tmp_path / "t.parquet")
    assert table.rows.select(LINE, "id", "on").rows() == [(1, 7, True), (2, 8, None)]
    assert table.at_first(table.rows["on"].is_null()) == f"{tmp_path}/t.parquet, row 2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,n\na,1\nb\n", r"t\.csv, line 3: 1 fields where the header has 2"),
        ("id,n\na,1\nb,1,2\n", r"line 3: 3 fields where the header has 2"),
        ("id,n\na\nb,1,2\n", r"line 2: 1 fields where the header has 2"),
        ('id,n\na,"1\nb,2\n', r"line 2: wrong quoting"),
        ('id,n\na,"1"2\n', r"line 2: wrong quoting"),
        ("id,id\na,1\n", r"line 1: two columns are called 'id'"),
        ("id,,n\na,1,2\n", r"line 1: column 2 of 3 has no name"),
        ("a.WAV,1\nb.wav,2\n", r"line 1: the header seems to be missing: 'a.WAV'"),
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (b"id,n\na,\xff\n", "not text in UTF-8"),
        (b"id,\xff\na,b\n", "not text in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, text: str | bytes, told: str
) -> None:
    with pytest.raises(EarmarkError, match=told):
        read_source(write(tmp_path, text))


def test_files_that_are_not_there_and_no_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"no\.csv: no such file"):
        read_source(tmp_path / "no.csv")
    with pytest.raises(EarmarkError, match="a folder, not a file"):
        read_source(tmp_path)
    with pytest.raises(EarmarkError, match=r"t\.parquet: cannot be read as Parquet"):
        read_source(write(tmp_path, "id,n\n", "t.parquet"))


@pytest.mark.parametrize("odd", ["", "\nlast,row\n"], ids=["in-bulk", "line-by-line"])
def test_many_rows_keep_their_lines(tmp_path: Path, odd: str) -> None:
    rows = "".join(f"clip{i},dog\n" for i in range(120_000))
    table = read_source(write(tmp_path, "clip_id,label\n" + rows + odd))
    assert len(table.rows) == 120_000 + bool(odd)
    assert table.rows[LINE][[0, 60_000, 119_999]].to_list() == [2, 60_002, 120_001]
    assert table.rows["clip_id"][119_999] == "clip119999"


def test_rows_in_memory_are_counted_like_lines() -> None:
    table = SourceTable.of(pl.DataFrame({"id": ["a", None]}), "labels")
    assert table.at_first(table.rows["id"].is_null()) == "labels, line 3"


CELLS = st.sampled_from(["", "a", " b", "007", '"c"', '"d,e"', '""', 'f"', '"g', "h\r", "é", '"""'])
LINES = st.lists(CELLS, max_size=3).map(",".join)
TEXTS = st.builds(
    lambda header, lines, ends: header + "".join(map("".join, zip(lines, ends, strict=False))),
    st.sampled_from(["x,y\n", "x\r\n", '"x",y,z\n']),
    st.lists(LINES, max_size=6),
    st.lists(st.sampled_from(["\n", "\n", "\r\n", ""]), min_size=6, max_size=6),
)


ODD = st.text(alphabet='ab, "\n\r;\t!\v\x1f\x85\xa0', max_size=25)
PLAIN = st.text(alphabet="ab,\n", max_size=25)


def outcome(path: Path, header: list[str] | None) -> object:
    try:
        return read_source(path, header).rows.to_dict(as_series=False)
    except EarmarkError as error:
        return str(error)


@given(
    TEXTS | ODD.map("x,y\n".__add__) | PLAIN.map("x,y\n".__add__) | PLAIN.map("x\n".__add__),
    st.sampled_from([None, ["x"], ["x", "y"]]),
)
def test_what_is_read_in_bulk_is_what_is_read_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, header: list[str] | None
) -> None:
    path = write(tmp_path_factory.getbasetemp(), text)
    in_bulk = outcome(path, header)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_read_in_bulk", lambda *_: None)
        assert in_bulk == outcome(path, header)
