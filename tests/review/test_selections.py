from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.config import Recipe
from earmark.datasets import CLIP_SCHEMA, Workspace, write_dataset
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.labels import LabelSet, Ontology
from earmark.review import (
    SELECTION_FORMATS,
    Judgement,
    SoundFiles,
    export_selections,
    import_selections,
    selection_format,
)
from earmark.scores import write_score_folder
from reviews import START, judgement, table

RECIPE = Recipe()
NAMES = {"raven": "all.txt", "audacity": "labels", "dcase": "all.tsv"}
ONTOLOGY = Ontology(
    ("dog", "rain", "/m/1", "/m/2"),
    names={"dog": 'Dog, "barking"', "rain": "Rain", "/m/1": "Bell", "/m/2": "Bell"},
)
CLIPS = [
    ("whole", "rec/whole.wav", None, None),
    ("part 1", "rec/long.wav", 0.0, 10.0),
    ("part 2", "rec/long.wav", 10.0, 20.0),
    ("part 3", "rec/long.wav", 20.0, 25.0),
    ("twin", "other/whole.wav", None, None),
    ("odd", "rec/odd.1.flac", 0.0004, 3.0),
    ("gone", "rec/gone.wav", None, None),
    ("mute", None, None, None),
]
SECONDS = {"rec/whole.wav": 4.0, "rec/long.wav": 25.0, "other/whole.wav": 4.0}
SECONDS["rec/odd.1.flac"] = 3.5


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Clips that are files or parts of one, two files of one name, one that is not there."""
    root = tmp_path_factory.mktemp("work")
    for file, seconds in SECONDS.items():
        (root / file).parent.mkdir(exist_ok=True)
        soundfile.write(root / file, np.zeros(round(8_000 * seconds)), 8_000)
    rows = [(*clip, "train", clip[0]) for clip in CLIPS]
    clips = pl.DataFrame(rows, CLIP_SCHEMA, orient="row")
    empty = np.zeros((len(CLIPS), len(ONTOLOGY.class_ids)), np.int8)
    labels = LabelSet.from_dense(empty, clips["clip_id"].to_list(), ONTOLOGY.class_ids)
    return write_dataset(root, clips, ONTOLOGY, labels)


def heard(
    clip_id: str, class_id: str, *span: float, rater: str = "ann", answer: str = "present"
) -> Judgement:
    heard.n += 1  # type: ignore[attr-defined]
    start, end = span or (None, None)
    return judgement(
        heard.n,  # type: ignore[attr-defined]
        answer,
        clip_id=clip_id,
        class_id=class_id,
        rater=rater,
        span_start=start,
        span_end=end,
    )


heard.n = 0  # type: ignore[attr-defined]

ANSWERS = [
    heard("whole", "dog", 1.25, 2.5),
    heard("whole", "rain"),
    heard("part 2", "dog", 0.0, 3.125),
    heard("part 2", "rain", 3.5, 9.999),
    heard("part 3", "/m/1"),
    heard("part 1", "/m/2", 9.5, 10.0),
    heard("twin", "/m/2", 0.001, 3.9),
    heard("odd", "rain", 0.123, 1.457),
    heard("whole", "/m/1", 1.0, 2.0, answer="not_present"),
    heard("whole", "/m/2", answer="unsure"),
]


def exported(
    workspace: Workspace, path: Path, answers: Iterable[Judgement], written_as: str
) -> int:
    return export_selections(workspace, RECIPE, table(*answers), path, written_as)


def said(answers: Iterable[Judgement]) -> set[tuple[object, ...]]:
    """Return what counts of answers."""
    return {
        (one.clip_id, one.class_id, one.span_start, one.span_end)
        for one in answers
        if one.answer == "present"
    }


@pytest.mark.parametrize("written_as", SELECTION_FORMATS)
def test_what_is_written_is_read_again(
    tmp_path: Path, workspace: Workspace, written_as: str
) -> None:
    path = tmp_path / NAMES[written_as]
    assert exported(workspace, path, ANSWERS, written_as) == len(said(ANSWERS))
    assert selection_format(path) == written_as
    read = import_selections(workspace, path, written_as, START, "bob")
    assert said(read) == said(ANSWERS)
    assert len(read) == len(said(ANSWERS))
    assert len({one.item for one in read}) == len(read)
    again = import_selections(workspace, path, written_as, START, "bob")
    assert [one.id for one in again] == [one.id for one in read]
    raters = {one.rater for one in read}
    assert raters == {"ann" if written_as == "raven" else "bob"}


MILLISECONDS = st.integers(0, 3_900)


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(ONTOLOGY.class_ids), MILLISECONDS, min_size=1),
    st.integers(1, 99),
    st.sampled_from(SELECTION_FORMATS),
    st.sampled_from(["whole", "part 1", "part 2", "twin"]),
)
def test_every_span_is_read_to_the_millisecond(
    tmp_path_factory: pytest.TempPathFactory,
    workspace: Workspace,
    starts: dict[str, int],
    length: int,
    written_as: str,
    clip_id: str,
) -> None:
    made = [heard(clip_id, c, at / 1e3, (at + length) / 1e3) for c, at in starts.items()]
    path = tmp_path_factory.mktemp("spans") / NAMES[written_as]
    exported(workspace, path, made, written_as)
    assert said(import_selections(workspace, path, written_as, START)) == said(made)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_times_are_those_of_the_file(tmp_path: Path, workspace: Workspace) -> None:
    exported(workspace, tmp_path / "all.tsv", ANSWERS, "dcase")
    rows = [tuple(row.values()) for row in rows_of(tmp_path / "all.tsv")]
    assert ("long.wav", "13.500000", "19.999000", "Rain") in rows
    assert ("long.wav", "20.000000", "25.000000", "/m/1") in rows, "two classes are called Bell"
    assert ("rec/whole.wav", "0.000000", "4.000000", "Rain") in rows, "two files have this name"
    exported(workspace, tmp_path / "labels", ANSWERS, "audacity")
    tracks = {p.relative_to(tmp_path / "labels").as_posix() for p in tmp_path.rglob("*.wav.txt")}
    assert tracks == {"long.wav.txt", "rec/whole.wav.txt", "other/whole.wav.txt"}
    track = (tmp_path / "labels" / "long.wav.txt").read_text()
    assert "10.000000\t13.125000\tDog, \"barking\"\n" in track  # fmt: skip


def test_raven_is_told_whose_span_it_is(tmp_path: Path, workspace: Workspace) -> None:
    answers = [*ANSWERS, heard("whole", "dog", 2.0, 3.0, rater="bob"), heard("part 1", "dog")]
    exported(workspace, tmp_path / "all.txt", answers, "raven")
    rows = {(row["Clip"], row["Class ID"]): row for row in rows_of(tmp_path / "all.txt")}
    both = rows["whole", "dog"]
    assert (both["Begin Time (s)"], both["End Time (s)"]) == ("1.250000", "3.000000")
    assert (both["Span"], both["Raters"]) == ("rater", "ann,bob")
    assert rows["part 1", "dog"]["Span"] == "clip"
    assert rows["part 2", "dog"]["Begin Path"] == str(workspace.root / "rec" / "long.wav")
    assert rows["part 2", "dog"]["Annotation"] == 'Dog, "barking"'
    read = import_selections(workspace, tmp_path / "all.txt", "raven", START)
    of_both = [one for one in read if (one.clip_id, one.class_id) == ("whole", "dog")]
    assert {(one.rater, one.span_end) for one in of_both} == {("ann", 3.0), ("bob", 3.0)}


def test_who_was_outvoted_is_not_named(tmp_path: Path, workspace: Workspace) -> None:
    votes = [heard("whole", "dog", rater=name) for name in ("bob", "ann")]
    votes.append(heard("whole", "dog", 1.0, 2.0, rater="eve", answer="not_present"))
    exported(workspace, tmp_path / "all.txt", votes, "raven")
    (row,) = rows_of(tmp_path / "all.txt")
    assert (row["Raters"], row["Span"]) == ("ann,bob", "clip")


def test_clips_that_overlap_are_told_apart_in_ravens_table(
    tmp_path: Path, workspace: Workspace
) -> None:
    clips = workspace.clips.with_columns(
        end_seconds=pl.when(pl.col("clip_id") == "part 1").then(12.0).otherwise("end_seconds")
    )
    root, labels = tmp_path / "overlapping", workspace.labels
    overlapping = write_dataset(root, clips, ONTOLOGY, labels)
    (root / "rec").symlink_to(workspace.root / "rec")
    answers = [heard("part 2", "dog", 0.5, 1.5), heard("part 1", "rain")]
    exported(overlapping, tmp_path / "all.txt", answers, "raven")
    read = import_selections(overlapping, tmp_path / "all.txt", "raven", START)
    assert said(read) == said(answers)


def test_a_divided_vote_is_not_written(tmp_path: Path, workspace: Workspace) -> None:
    divided = [heard("whole", "dog", 1, 2), heard("whole", "dog", rater="bob", answer="unsure")]
    exported(workspace, tmp_path / "all.tsv", [*divided, heard("twin", "dog")], "dcase")
    assert [row["filename"] for row in rows_of(tmp_path / "all.tsv")] == ["other/whole.wav"]
    with pytest.raises(EarmarkError, match="nothing to write: 2 answers call no label present"):
        exported(workspace, tmp_path / "none.tsv", divided, "dcase")


@pytest.mark.parametrize("written_as", SELECTION_FORMATS)
def test_labels_without_times_are_left_out_and_counted(
    tmp_path: Path, workspace: Workspace, written_as: str
) -> None:
    timeless = [heard("gone", "dog"), heard("mute", "rain")]
    with pytest.warns(EarmarkWarning, match="2 labels left out"):
        n = exported(workspace, tmp_path / NAMES[written_as], ANSWERS + timeless, written_as)
    assert n == len(said(ANSWERS))


def test_the_teachers_best_patch_is_written_where_no_rater_marked_one(
    tmp_path: Path, workspace: Workspace
) -> None:
    hop, length = RECIPE.front_end.patch_seconds
    best = np.full((len(CLIPS), len(ONTOLOGY.class_ids)), 3, np.uint16)
    best[0, 0] = 7  # the last patch of the clip, beyond whose end it reaches
    folder = workspace.scores_folder(RECIPE.scores_name)
    write_score_folder(
        folder,
        workspace.clips["clip_id"],
        ONTOLOGY.class_ids,
        np.zeros(best.shape, np.float32),
        best,
        out_of_fold=True,
        digest="made up",
    )
    try:
        answers = [heard("whole", "dog"), heard("part 2", "rain"), heard("part 2", "dog", 1, 2)]
        for written_as in SELECTION_FORMATS:
            exported(workspace, tmp_path / NAMES[written_as], answers, written_as)
        found = {
            row["Clip"] + row["Span"]: (float(row["Begin Time (s)"]), float(row["End Time (s)"]))
            for row in rows_of(tmp_path / NAMES["raven"])
        }
        assert found["wholeteacher"] == pytest.approx((7 * hop, 4.0), abs=0.001)
        assert found["part 2teacher"] == pytest.approx((10 + 3 * hop, 10 + 3 * hop + length))
        assert found["part 2rater"] == (11, 12)
        unmarked = {("whole", "dog", None, None), ("part 2", "rain", None, None)}
        read = import_selections(workspace, tmp_path / NAMES["raven"], "raven", START)
        assert said(read) == unmarked | {("part 2", "dog", 1, 2)}
    finally:
        for file in folder.iterdir():
            file.unlink()


def test_crowsetta_reads_the_same_times(tmp_path: Path, workspace: Workspace) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crowsetta = pytest.importorskip("crowsetta")
        exported(workspace, tmp_path / "all.txt", ANSWERS, "raven")
        exported(workspace, tmp_path / "labels", ANSWERS, "audacity")
        boxes = crowsetta.formats.bbox.Raven.from_file(tmp_path / "all.txt").to_bbox()
        track = tmp_path / "labels" / "long.wav.txt"
        sequence = crowsetta.formats.seq.AudSeq.from_file(track).to_seq()
    assert {(b.onset, b.offset, b.label) for b in boxes} >= {
        (13.5, 19.999, "Rain"), (1.25, 2.5, 'Dog, "barking"'),
    }  # fmt: skip
    events = zip(sequence.onsets_s, sequence.offsets_s, sequence.labels, strict=True)
    assert set(events) >= {(13.5, 19.999, "Rain"), (10.0, 13.125, 'Dog, "barking"')}


def test_selections_of_others_reach_into_several_clips(
    tmp_path: Path, workspace: Workspace
) -> None:
    path = tmp_path / "theirs.tsv"
    path.write_text(
        "filename\tonset\toffset\tevent_label\n"
        "long.flac\t8.0\t12.0\train\n"  # another ending, and a class by its identifier
        "long.wav\t19.95\t21\tRain\n"  # 50 ms are no evidence for part 2
        "long.wav\t2\t2\tRAIN\n"  # a point
        "long.wav\t1\t2\tdog\n"
        "long.wav\t3\t4\tdog\n"
        "long.wav\t3\t4\tdog\n"
        "odd.1.flac\t\t\t\n"  # a file without an event
    )
    read = import_selections(workspace, path, "dcase", START)
    assert [(one.clip_id, one.class_id, one.span_start, one.span_end) for one in read] == [
        ("part 1", "rain", 8, 10), ("part 2", "rain", 0, 2), ("part 3", "rain", 0, 1),
        ("part 1", "rain", None, None), ("part 1", "dog", 1, 2), ("part 1", "dog", 3, 4),
    ]  # fmt: skip
    assert len({one.item for one in read}) == 6, "no selection takes the place of another"


def test_a_raven_table_of_ravens_own(tmp_path: Path, workspace: Workspace) -> None:
    """Several files in one view: Begin Time counts from the first, File Offset from its own."""
    path = tmp_path / "birds.selections.txt"
    path.write_text(
        "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\t"
        "Begin Path\tFile Offset (s)\tSpecies\n"
        "1\tWaveform 1\t1\t29.5\t30.5\t0\t4000\tD:\\field\\rec\\long.wav\t4.5\tRain\n"
        "1\tSpectrogram 1\t1\t29.5\t30.5\t0\t4000\tD:\\field\\rec\\long.wav\t4.5\tRain\n"
    )
    assert selection_format(path) == "raven"
    (read,) = import_selections(workspace, path, "raven", START)
    assert (read.clip_id, read.span_start, read.span_end) == ("part 1", 4.5, 5.5)


def test_audacitys_frequencies_are_passed_over(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "long.txt").write_text("1.0\t2.5\tRain\n\\\t200.0\t4000.0\n")
    assert selection_format(tmp_path / "long.txt") == "audacity"
    (read,) = import_selections(workspace, tmp_path / "long.txt", "audacity", START)
    assert (read.clip_id, read.span_start, read.span_end) == ("part 1", 1.0, 2.5)


HEADER = "filename\tonset\toffset\tevent_label\n"
RAVEN = "Begin Time (s)\tEnd Time (s)\tBegin File\tAnnotation\n"


@pytest.mark.parametrize(
    ("written_as", "text", "told"),
    [
        ("dcase", "{}long.wav\t1\t2\train\nlng.wav\t1\t2\train\n", "line 3: no sound file.*'lng"),
        ("dcase", "{}long.wav\t1\t2\tcat\n", "line 2: no class is called 'cat'.*nothing was imp"),
        ("dcase", "{}whole.wav\t1\t2\train\n", "line 2: 'whole.wav' may be 'rec/whole.wav', 'oth"),
        ("dcase", "{}long.wav\tone\t2\train\n", "line 2: onset is 'one'; expected seconds"),
        ("dcase", "{}long.wav\t1\tinf\train\n", "line 2: offset is 'inf'"),
        ("dcase", "{}long.wav\t2\t1\train\n", "line 2: from 2 s to 1 s is no part"),
        ("dcase", "{}long.wav\t30\t31\train\n", "line 2: no clip of 'long.wav'.*30 s to 31 s"),
        ("dcase", "{}\t1\t2\train\n", "line 2: filename is empty"),
        ("dcase", "{}long.wav\t1\t2\t\n", "line 2: event_label is empty"),
        ("raven", RAVEN.replace("Begin File", "File") + "1\t2\tlong.wav\tRain\n", "'Begin File'"),
        ("raven", RAVEN.replace("Annotation", "Note") + "1\t2\tlong.wav\tRain\n", "'Annotation'"),
        ("raven", RAVEN + "1\t\tlong.wav\tRain\n", "line 2: End Time .s. is None"),
        ("audacity", "1.0\t2.0\tRain\n1.0\tRain\n", "line 2: expected start, end and label"),
        ("audacity", "1.0\t2.0\tRain\n", "line 1: no sound file is called 'wrong'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, workspace: Workspace, written_as: str, text: str, told: str
) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(text.format(HEADER))
    with pytest.raises(EarmarkError, match=told) as refused:
        import_selections(workspace, path, written_as, START)
    assert str(path) in str(refused.value)


def test_folders_and_files_that_are_not_what_was_asked_for(
    tmp_path: Path, workspace: Workspace
) -> None:
    with pytest.raises(EarmarkError, match="no such file or folder"):
        import_selections(workspace, tmp_path / "none", "audacity", START)
    with pytest.raises(EarmarkError, match="no label track in this folder"):
        import_selections(workspace, tmp_path, "audacity", START)
    with pytest.raises(EarmarkError, match="only Audacity's labels"):
        import_selections(workspace, tmp_path, "raven", START)
    (tmp_path / "old.txt").write_text("")
    with pytest.raises(EarmarkError, match="give the name of a new folder"):
        exported(workspace, tmp_path, ANSWERS, "audacity")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "clip_id,class_id,answer\na,b,yes\n"),
        ("a.tsv", "clip_id\tclass_id\tanswer\na\tb\tyes\n"),
        ("a.json", '[{"data": {}}]'),
        ("a.json", "nothing"),
        ("a.parquet", ""),
    ],
)
def test_other_files_are_not_taken_for_selections(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert selection_format(tmp_path / name) is None


def test_files_are_found_by_every_name(workspace: Workspace) -> None:
    files = SoundFiles(workspace)
    for name in ("long.wav", "long", "long.mp3", "rec/long.wav", "C:\\x\\long.wav"):
        assert files.find(name) == ["part 1", "part 2", "part 3"]
    assert files.find("odd.1") == ["odd"]
    assert files.find("mute") == ["mute"]
    assert files.find("other/whole") == ["twin"]
    assert files.find(str(workspace.root / "rec" / "whole.wav")) == ["whole"]
    with pytest.raises(EarmarkError, match="no sound file is called 'odd'"):
        files.find("odd")
