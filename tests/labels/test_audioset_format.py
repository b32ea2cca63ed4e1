from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from audioset_files import BALANCED, DOG, MUSIC, ROCK, SPEECH, segments_text, write_official
from earmark.errors import EarmarkError
from earmark.labels import CLASSES_FILE, ONTOLOGY_FILE, read_classes, read_ontology, read_segments


def read(tmp_path: Path, text: str | bytes) -> pl.DataFrame:
    path = tmp_path / "eval_segments.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_segments(path)


def test_the_official_layout(tmp_path: Path) -> None:
    segments = read(tmp_path, segments_text(BALANCED))
    assert segments.rows() == [
        ("--PJHxphWEs_30000", "--PJHxphWEs", 30.0, 40.0, [SPEECH, DOG]),
        ("Yabcdefghij_0", "Yabcdefghij", 0.0, 10.0, [SPEECH]),
        ("_abcdefghi__3327", "_abcdefghi_", 3.327, 10.0, [DOG]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + segments_text(BALANCED),
        segments_text(BALANCED).replace("\n", "\r\n"),
        BALANCED,  # no comment lines
        "YTID,start_seconds,end_seconds,positive_labels\n" + BALANCED,
        segments_text(BALANCED).rstrip("\n"),
        segments_text(BALANCED.replace("\n", "\n\n")),
        segments_text(BALANCED.replace('"', "")),  # lists not quoted
        segments_text(BALANCED.replace(' "', ' ""').replace('"\n', '""\n')),
        segments_text(BALANCED.replace('"\n', "\n")),  # a quote that is never closed
        segments_text(BALANCED.replace(", ", ",")),
        "".join(f'"{line.replace(chr(34), chr(34) * 2)}"\n' for line in BALANCED.splitlines()),
    ],
    ids=[
        "bom", "crlf", "no comments", "plain header", "no last newline", "blank lines",
        "no quotes", "doubled quotes", "open quotes", "no spaces", "lines quoted whole",
    ],
)  # fmt: skip
def test_spoilt_files_read_the_same(tmp_path: Path, text: str) -> None:
    expected = read(tmp_path, segments_text(BALANCED))
    assert read(tmp_path, text).equals(expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("too_short, 0.000, 10.000, /m/09x0r", "line 5: expected a video id of 11 characters"),
        ("abcdefghijk, zero, 10.000, /m/09x0r", "line 5: expected a video id"),
        ("abcdefghijk, 0.000", "line 5: expected a video id"),
        ("#NAME?, 30.000, 40.000, /m/09x0r", "line 5: .*got '#NAME"),
        ("abcdefghijk, 10.000, 10.000, /m/09x0r", "line 5: the segment ends before it starts"),
    ],
)
def test_lines_that_are_no_segments_are_refused_by_number(
    tmp_path: Path, line: str, message: str
) -> None:
    first, *others = BALANCED.splitlines()
    with pytest.raises(EarmarkError, match=message):
        read(tmp_path, segments_text("\n".join([first, line, *others])))


def test_a_spreadsheets_first_line_is_no_comment(tmp_path: Path) -> None:
    mangled = BALANCED.replace("--PJHxphWEs", "#NAME?")
    with pytest.raises(EarmarkError, match=r"line 4: .*#NAME\?"):
        read(tmp_path, segments_text(mangled))


@pytest.mark.parametrize("text", ["", "\n", "# a comment\n", "<html>404</html>\n"])
def test_files_without_segments(tmp_path: Path, text: str) -> None:
    with pytest.raises(EarmarkError, match=r"eval_segments\.csv"):
        read(tmp_path, text)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="cannot be read as a text file in UTF-8"):
        read(tmp_path, b"\x1f\x8b\xff")


def test_ontology_keeps_ancestors_behind_nodes_without_a_column(tmp_path: Path) -> None:
    root = write_official(tmp_path)
    ontology = read_ontology(read_classes(root / CLASSES_FILE), root / ONTOLOGY_FILE)
    assert ontology.class_ids == (SPEECH, MUSIC, ROCK, DOG)
    assert ontology.names[ROCK] == "Rock music"
    assert ontology.definitions[DOG] == f"The sound of {DOG}."
    assert ontology.parents[ROCK] == ("/m/genre", MUSIC)
    assert ontology.parents[SPEECH] == ("/m/human",)
    assert MUSIC in ontology.from_table(ontology.to_table()).ancestors(ROCK)


def test_malformed_files_are_refused(tmp_path: Path) -> None:
    classes = tmp_path / "class_labels_indices.csv"
    classes.write_text('0,/m/09x0r,"Speech"\n1,/m/04rlf,"Music"\n')
    with pytest.raises(EarmarkError, match="is the header line missing"):
        read_classes(classes)
    classes.write_text('index,mid,display_name\nzero,/m/09x0r,"Speech"\n')
    with pytest.raises(EarmarkError, match="whole numbers"):
        read_classes(classes)
    write_official(tmp_path)
    (tmp_path / "ontology.json").write_text(json.dumps({"nodes": []}))
    with pytest.raises(EarmarkError, match="expected a list of nodes"):
        read_ontology(read_classes(classes), tmp_path / "ontology.json")
