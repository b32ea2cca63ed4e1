from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import earmark
from earmark import pipeline
from earmark.cli.app import app
from earmark.datasets import SCANNED_FOLDER, Workspace
from earmark.errors import EarmarkError
from earmark.flags import (
    Suspects,
    flag,
    policy_told,
    suspicious_positives,
    thresholds,
)
from earmark.labels import LabelSet
from earmark.metrics import Interval, auc_per_class
from earmark.pipeline import scan
from earmark.report import flags_to_hear, rounded, scan_html
from made_up import NASTY, Page, check_policy

N_CLIPS, N_MISSING = 3_000, 60
IDS = ("dog", "animal", "siren", "rare")


@pytest.fixture(scope="module")
def case() -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits: the missing labels of a class score like its positives."""
    rng = np.random.default_rng(0)
    logits = rng.normal(-4, 1, (N_CLIPS, 4)).astype(np.float32)
    states = np.zeros((N_CLIPS, 4), np.int8)
    for column, n_positives in enumerate((300, 300, 300, 10)):
        chosen = rng.choice(N_CLIPS, n_positives + N_MISSING, replace=False)
        logits[chosen, column] += 5
        states[chosen[:n_positives], column] = 1
    return states, logits


@pytest.fixture
def files(case, tmp_path):
    """A dense matrix, an .npy of logits and a list of classes."""
    states, logits = case
    np.save(tmp_path / "labels.npy", states)
    np.save(tmp_path / "scores.npy", logits)
    (tmp_path / "classes.txt").write_text("\n".join(IDS))
    return {
        "labels": tmp_path / "labels.npy",
        "scores": tmp_path / "scores.npy",
        "classes": tmp_path / "classes.txt",
        "out": tmp_path / "out",
    }


def label_set(states):
    return LabelSet.from_dense(states, class_ids=IDS)


def by_class(flags):
    """Flags in the order in which ``flag`` lists them."""
    return flags.sort(pl.col("class_id").cast(pl.Enum(IDS)), "rank")


def untouched(tmp_path):
    """Nothing was written, and no scratch was left behind."""
    return not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_writes_what_the_functions_on_arrays_return(files, case):
    states, logits = case
    result = scan(**files, policy="percentile")
    labels = label_set(states)
    flags = pl.read_parquet(files["out"] / "flags.parquet")
    expected = flag(labels, logits)
    assert flags["chance"].is_sorted(descending=True, nulls_last=True)
    flags = by_class(flags)
    columns = ["clip_id", "class_id", "logit", "rank"]
    assert flags.select(columns).equals(expected.select(columns))
    np.testing.assert_allclose(
        flags["chance"].fill_null(-1), expected["chance"].fill_null(-1), atol=0.05
    )
    assert pl.read_csv(files["out"] / "flags.csv").height == len(flags) == result.n_flags == 110
    points = pl.read_parquet(files["out"] / "thresholds.parquet")
    np.testing.assert_array_equal(
        points["threshold"].to_numpy(), thresholds(labels, logits).values.ravel()
    )
    assert points["discard_percent"].n_unique() == 18
    wrong = pl.read_csv(files["out"] / "wrong_positives.csv", schema_overrides={"clip_id": str})
    lowest = suspicious_positives(labels, logits[labels.clip_rows, labels.columns], n_per_class=20)
    assert wrong["clip_id"].to_list() == lowest["clip_id"].to_list()
    assert not (files["out"] / "implied.csv").exists()
    assert sorted(path.name for path in files["out"].parent.iterdir() if path.is_dir()) == ["out"]


def test_the_class_table_counts_labels_and_flags(files, case):
    states, logits = case
    scan(**files, discard_percent=1)
    table = pl.read_parquet(files["out"] / "classes.parquet")
    assert (table["threshold"] < table["lowest_flag"]).all()
    assert not {"n_missing", "low", "high"} & set(table.columns)
    assert table["n_positives"].to_list() == [300, 300, 300, 10]
    np.testing.assert_allclose(
        table["auc"].to_numpy(), auc_per_class(states, logits, negatives="all"), atol=0.01
    )


def test_probabilities_are_detected_and_give_the_same_flags(files, case):
    logits = case[1].astype(np.float64)
    by_logits = scan(**files).findings.flags
    np.save(files["scores"], 1 / (1 + np.exp(-logits)))
    result = scan(**files)
    assert "the scores are probabilities (as detected)" in result.findings.data_told
    columns = ["clip_id", "class_id", "rank"]
    assert (
        by_class(result.findings.flags).select(columns).equals(by_class(by_logits).select(columns))
    )


def test_scores_in_another_order_are_matched_by_name(files, case, tmp_path):
    states, logits = case
    plain = scan(**files).findings.flags.sort("class_id", "rank")
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(N_CLIPS), [2, 0, 3, 1]
    table = pl.DataFrame(logits[np.ix_(rows, columns)], schema=[IDS[c] for c in columns])
    table = table.with_columns(clip_id=pl.Series(rows).cast(pl.String))
    table.write_parquet(tmp_path / "scores.parquet")
    label_set(states).write(tmp_path / "labels.csv")
    result = scan(tmp_path / "labels.csv", tmp_path / "scores.parquet", out=files["out"])
    keys = ["clip_id", "class_id", "logit", "rank"]
    assert result.findings.flags.sort("class_id", "rank").select(keys).equals(plain.select(keys))
    assert "clips have no row in labels.csv" in result.warnings[0]


def test_labels_of_clips_without_scores_are_left_out_and_told(case, tmp_path):
    states, logits = case
    label_set(states).write(tmp_path / "labels.csv")
    ids = np.arange(N_CLIPS).astype(str)

    def scanned(names, rows):
        np.savez(tmp_path / "scores.npz", scores=logits[rows], clip_ids=names, class_ids=IDS)
        return scan(
            tmp_path / "labels.csv",
            tmp_path / "scores.npz",
            out=tmp_path / "out",
            discard_percent=1,
        )

    result = scanned(ids[500:], slice(500, None))
    labels = label_set(states)
    n_clips = len(np.unique(labels.clip_rows[labels.clip_rows < 500]))
    told = next(warning for warning in result.warnings if "left out" in warning)
    assert told.startswith(f"{n_clips:,} of {len(np.unique(labels.clip_rows)):,} clips")
    assert f"their {int((states[:500] != 0).sum()):,} labels are left out" in told
    expected = flag(labels.select(slice(500, None)), logits[500:])
    assert by_class(result.findings.flags)["clip_id"].to_list() == expected["clip_id"].to_list()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(EarmarkError, match=r"no row for any of its clips.*called 'x0'"):
        scanned([f"x{row}" for row in ids], slice(None))
    assert untouched(tmp_path)


def test_audioset_segments_and_ontology(case, tmp_path):
    logits = case[1][:40]
    names = [f"{number:011d}" for number in range(40)]
    lines = [f'{name}, 30.000, 40.000, "/m/0dog"' for name in names]
    (tmp_path / "segments.csv").write_text("# Segments\n" + "\n".join(lines))
    (tmp_path / "classes.csv").write_text(
        'index,mid,display_name\n0,/m/0dog,"Dog"\n1,/m/0animal,"Animal"\n'
        '2,/m/0siren,"Siren"\n3,/m/0rare,"Rare"\n'
    )
    nodes = [
        {"id": "/m/0animal", "name": "Animal", "child_ids": ["/m/0pets"]},
        {"id": "/m/0pets", "name": "Pets", "child_ids": ["/m/0dog"]},
        {"id": "/m/0dog", "name": "Dog", "child_ids": []},
    ]
    (tmp_path / "ontology.json").write_text(json.dumps(nodes))
    np.save(tmp_path / "scores.npy", logits)
    given = {
        "labels": tmp_path / "segments.csv",
        "scores": tmp_path / "scores.npy",
        "classes": tmp_path / "classes.csv",
        "ontology": tmp_path / "ontology.json",
        "discard_percent": 10,
    }
    left = scan(**given, out=tmp_path / "left")
    assert left.findings.implied["class_id"].unique().to_list() == ["/m/0animal"]
    assert "implies 40 labels that nobody gave" in left.findings.implied_told
    assert set(left.findings.flags["class_id"]) == {"/m/0animal", "/m/0siren", "/m/0rare"}
    filled = scan(**given, out=tmp_path / "filled", fill_ancestors=True)
    assert set(filled.findings.flags["class_id"]) == {"/m/0siren", "/m/0rare"}
    assert filled.findings.flags["clip_id"][0].endswith("_30000")
    assert set(filled.findings.wrong_positives["class_id"]) == {"/m/0dog"}
    assert any("no label is implicit" in warning for warning in filled.warnings)
    table = pl.read_csv(tmp_path / "filled" / "implied.csv")
    assert table.columns == ["clip_id", "class_id", "child_id", "kind"]


def test_contradictions_with_the_class_tree_are_reported(files, case, tmp_path):
    states = case[0].copy()
    states[states[:, 0] == 1, 1] = -1
    np.save(files["labels"], states)
    (tmp_path / "tree.csv").write_text("class_id,name,parents\ndog,Dog,animal\n")
    result = scan(**files, ontology=tmp_path / "tree.csv")
    assert result.findings.implied["kind"].unique().to_list() == ["contradiction"]
    assert any("300 labels contradict the class tree" in warning for warning in result.warnings)
    assert "Dog" in result.findings.classes["name"]


@pytest.mark.parametrize(
    ("policy", "options"),
    [("precision", {"target": 0.8}), ("budget", {"n_flags": 50}),
     ("confident", {}), ("positives_quantile", {"quantile": 0.25}), ("global", {})],
)  # fmt: skip
def test_every_policy_can_be_asked_for(files, case, policy, options):
    states, logits = case
    result = scan(**files, policy=policy, **options)
    assert by_class(result.findings.flags)["clip_id"].to_list() == (
        flag(label_set(states), logits, policy, **options)["clip_id"].to_list()
    )
    assert f"Flagged: {policy_told(policy, options)}." in "\n".join(result.lines())


def test_the_gate_is_the_given_ontology(files, tmp_path):
    (tmp_path / "tree.csv").write_text("class_id,parents\ndog,animal\n")
    asked = {**files, "policy": "positives_quantile", "ontology": tmp_path / "tree.csv"}
    gated = scan(**asked, gate=True)
    free = scan(**asked)
    assert 0 < gated.n_flags < free.n_flags
    assert set(gated.findings.flags["class_id"]) <= {"dog", "animal"}


def test_odd_classes_are_named_in_warnings(files, case):
    states, logits = case[0].copy(), case[1].copy()
    states[states[:, 0] == 0, 0] = -1
    logits[:, 1], logits[:, 3] = -2.0, np.nan
    np.save(files["labels"], states)
    np.save(files["scores"], logits)
    result = scan(**files)
    told = "\n".join(result.warnings)
    assert "no label is implicit, so that none can be missing: 'dog'" in told
    assert "all scores are equal, so that nothing can be flagged: 'animal'" in told
    assert "there are no scores (NaN throughout): 'rare'" in told
    notes = result.findings.classes["note"].to_list()
    assert notes[1] == "all scores are equal"
    assert set(result.findings.flags["class_id"]) == {"siren"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.zeros((5, 4))}, "3,000 clips, but the scores have 5 rows"),
        ({"scores": np.zeros((N_CLIPS, 3))}, "3 columns, but 4 classes are listed"),
        ({"scores": np.zeros((N_CLIPS, 0))}, "no scores"),
        ({"labels": np.zeros((N_CLIPS, 5))}, "5 classes, but 4 are listed"),
        ({"scale": "probabilities"}, "is no probability"),
        ({"policy": "percentil"}, "there is no policy 'percentil'"),
        ({"policy": "percentile", "target": 0.5}, "has no option 'target'"),
        ({"policy": "count"}, "there is no policy 'count'"),
        ({"discard_percent": 101}, "between 0 and 100"),
        ({"fill_ancestors": True}, "an ontology has to be given"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_left(files, tmp_path, change, message):
    for name in ("labels", "scores"):
        if name in change:
            np.save(files[name], change.pop(name))
    with pytest.raises(EarmarkError, match=message):
        scan(**{**files, **change})
    assert untouched(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_score_that_is_no_number_is_named(files, case, tmp_path, value):
    logits = case[1].copy()
    logits[2_500, 2] = value
    np.save(files["scores"], logits)
    with pytest.raises(EarmarkError, match=r"\(row 2500\), class 'siren'"):
        scan(**files)
    assert untouched(tmp_path)


def test_a_truncated_score_file_is_refused(files, tmp_path):
    content = files["scores"].read_bytes()
    files["scores"].write_bytes(content[: len(content) // 2])
    with pytest.raises(EarmarkError, match="cut short"):
        scan(**files)
    assert untouched(tmp_path)


def test_labels_by_name_need_to_know_the_columns(files, case, tmp_path):
    label_set(case[0]).write(tmp_path / "labels.csv")
    with pytest.raises(EarmarkError, match="which column is which class"):
        scan(tmp_path / "labels.csv", files["scores"], out=files["out"])
    with pytest.raises(EarmarkError, match="several rows for a clip"):
        scan(tmp_path / "labels.csv", files["scores"], out=files["out"], classes=files["classes"])
    (tmp_path / "clips.txt").write_text("\n".join(map(str, range(N_CLIPS))))
    by_list = scan(**{**files, "labels": tmp_path / "labels.csv"}, clips=tmp_path / "clips.txt")
    assert by_list.findings.flags.equals(scan(**files).findings.flags)


def test_class_names_that_differ_are_named(files, case, tmp_path):
    names = ["dog", "animal", "sirens", "rare"]
    np.savez(tmp_path / "scores.npz", scores=case[1], class_ids=names)
    with pytest.raises(EarmarkError, match="not among the listed classes: 'sirens'"):
        scan(**{**files, "scores": tmp_path / "scores.npz"})


def test_an_earlier_scan_is_replaced_but_nothing_else(files, tmp_path):
    scan(**files)
    (files["out"] / "note.txt").write_text("mine")
    scan(**files, discard_percent=2)
    assert (files["out"] / "note.txt").read_text() == "mine"
    assert json.loads((files["out"] / "meta.json").read_text())["options"]["discard_percent"] == 2
    (files["out"] / "flags.csv").write_text("annotated by hand")
    with pytest.raises(EarmarkError, match=r"'flags\.csv' was changed after `scan` wrote it"):
        scan(**files)
    assert (files["out"] / "flags.csv").read_text() == "annotated by hand"
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("mine")
    with pytest.raises(EarmarkError, match="no earlier `scan` wrote"):
        scan(**{**files, "out": tmp_path / "precious"})
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "mine"


def test_answers_given_while_a_scan_ran_keep_it_from_replacing_them(files, monkeypatch):
    scan(**files)
    answers = Workspace(files["out"] / SCANNED_FOLDER).judgements_path
    found = sys.modules["earmark.pipeline.scanning.scan"]

    def listened_meanwhile(*given):
        answers.parent.mkdir(parents=True, exist_ok=True)
        answers.write_bytes(b"")
        return write_findings(*given)

    write_findings = found.write_findings
    monkeypatch.setattr(found, "write_findings", listened_meanwhile)
    with pytest.raises(EarmarkError, match="would be lost"):
        scan(**files, discard_percent=2)
    assert answers.exists()


def test_meta_says_what_the_result_was_made_from(files, case):
    scan(**files, discard_percent=2.0)
    meta = json.loads((files["out"] / "meta.json").read_text())
    assert meta["labels_digest"] == label_set(case[0]).digest
    assert meta["options"]["discard_percent"] == 2.0
    assert meta["scores_are"] == "logits"
    assert {"python", "earmark", "polars"} <= meta["versions"].keys()


def test_the_page_is_whole_and_escapes_names(files):
    files["classes"].write_text("\n".join([NASTY, *IDS[1:]]))
    result = scan(**files)
    text = (files["out"] / "index.html").read_text()
    parsed = Page(text)
    check_policy(text)
    assert NASTY in parsed.text
    assert result.findings.estimates.describe() in parsed.text
    assert parsed.addresses
    outside = [one for one in parsed.addresses if not one.startswith("#term-")]
    assert all((files["out"] / address).is_file() for address in outside)
    for warning in result.warnings:
        assert warning in parsed.text


def test_counts_are_rounded_to_three_digits():
    assert [rounded(n) for n in (0, 999.6, 123_456)] == ["0", "1,000", "123,000"]


def test_scan_needs_neither_torch_nor_audio_nor_plots():
    code = (
        "import sys, earmark.pipeline.scanning.scan; "
        "print({'torch', 'soundfile', 'soxr', 'av'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_labels_and_scores_in_memory_give_what_their_files_do(files, case, tmp_path):
    states, logits = case
    by_files = scan(**files)
    result = earmark.scan(label_set(states), logits)
    assert result.out is None
    assert result.findings.flags.equals(by_files.findings.flags)
    assert result.findings.classes.equals(by_files.findings.classes)
    probabilities = scan(label_set(states), expit(logits.astype(np.float64)), out=tmp_path / "p")
    assert (tmp_path / "p" / "index.html").exists()
    assert probabilities.n_flags == by_files.n_flags


@pytest.mark.parametrize("options", [{}, {"discard_percent": 5}, {"target": 0.02}])
def test_flags_are_written_a_block_at_a_time(files, monkeypatch, options):
    """The files are those of one table, of which no more is made than a block holds."""
    plain = scan(**files, **options).flags
    n_made, make = [], Suspects.table
    monkeypatch.setattr("earmark.flags.suspects.FLAGS_AT_ONCE", 17)

    def counted_rows(self, places=None, names=None):
        n_made.append(len(self) if places is None else len(places))
        return make(self, places, names)

    monkeypatch.setattr(Suspects, "table", counted_rows)
    result = scan(**files, **options, n_wrong_per_class=1)
    n_shown = len(IDS) * 40  # the page chooses among the first of each class
    assert plain.height > n_shown
    assert max(n_made) <= n_shown
    assert sum(n == 17 for n in n_made) >= 2 * (plain.height // 17)
    assert result.n_flags == plain.height
    assert (result.out / "flags.csv").read_text() == plain.write_csv()
    assert pl.read_parquet(result.out / "flags.parquet").equals(plain)


def test_what_is_in_memory_and_what_is_on_disk_are_not_mixed(files, case):
    states, logits = case
    with pytest.raises(EarmarkError, match="scores in memory go with labels in memory"):
        scan(files["labels"], logits)
    with pytest.raises(EarmarkError, match="names its clips and classes itself"):
        scan(label_set(states), logits, classes=files["classes"])


def test_passes_as_tasks_of_an_engine_find_the_same(files, tmp_path, two_processes):
    here = scan(**files)
    there = scan(**{**files, "out": tmp_path / "there"}, engine=two_processes)
    assert there.findings.flags.equals(here.findings.flags)
    assert there.findings.thresholds.equals(here.findings.thresholds)


@pytest.fixture
def sounding(tmp_path):
    """Labels, scores and a folder of sounds that are called like the clips."""
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("PIL")
    rng = np.random.default_rng(0)
    names = [f"clip {i}" for i in range(120)]
    is_present = rng.random((120, 3)) < 0.4
    states = np.where(is_present & (rng.random(is_present.shape) < 0.6), 1, 0)
    np.savez(
        tmp_path / "scores.npz",
        scores=rng.normal(4.0 * is_present - 3, 1).astype(np.float32),
        clip_ids=names,
        class_ids=IDS[:3],
    )
    LabelSet.from_dense(states, names, IDS[:3]).write(tmp_path / "labels.csv")
    (tmp_path / "sounds").mkdir()
    for name in names[:-2]:
        noise = 0.1 * rng.standard_normal(16_000)
        soundfile.write(tmp_path / "sounds" / f"{name}.wav", noise, 16_000)
    return {
        "labels": tmp_path / "labels.csv",
        "scores": tmp_path / "scores.npz",
        "sounds": tmp_path / "sounds",
        "out": tmp_path / "my found",
    }


def test_with_sounds_the_page_plays_its_flags(sounding):
    result = scan(**sounding)
    page = Page((sounding["out"] / "index.html").read_text())
    listed = flags_to_hear(result.findings.flags)["clip_id"]
    n_heard = (~listed.is_in(["clip 118", "clip 119"])).sum()
    assert page.tags.count("audio") == page.tags.count("img") == n_heard > 30
    assert f"earmark review '{sounding['out']}'" in page.text
    assert any("2 of 120 clips have no sound in" in warning for warning in result.warnings)
    assert any("'clip 118', 'clip 119'" in warning for warning in result.warnings)


def test_with_sounds_a_scan_goes_on_to_the_review(sounding, tmp_path):
    result = scan(**sounding)
    out = sounding["out"]
    pipeline.draw_queue(out)
    queue = pipeline.draw_ahead(out).queue
    assert len(queue.items) > 0
    answers = queue.items.select("clip_id", "class_id", answer=pl.lit("present")).unique()
    answers.write_csv(tmp_path / "answers.csv")
    assert pipeline.import_judgements(out, tmp_path / "answers.csv") == len(answers)
    assert pipeline.measure_precision(out).overall["n_judged"] > 0
    pipeline.correct_labels(out)
    exported = pipeline.export_labels(out, tmp_path / "labels-out.csv")
    assert exported.n_ignored == result.n_flags
    left_out = (
        "corrected labels are there (corrected): these are the labels as given; "
        "--labels corrected takes the others"
    )
    assert exported.warnings == (left_out,)
    found = pipeline.write_flags(out).findings.warnings
    assert left_out in found
    heard = answers.join(pl.read_csv(tmp_path / "labels-out.csv").filter(
        pl.col("state") != "ignored"), on=["clip_id", "class_id"], how="anti")  # fmt: skip
    told = pipeline.write_flags(out).findings.data_told
    assert told.endswith(
        f" p_missing is fitted to {len(heard)} answers, all alike, so that they teach little."
    )
    corrected = pipeline.export_labels(out, tmp_path / "better.csv", discard_percent=0,
                                     labels="corrected")  # fmt: skip
    assert corrected.n_rows > exported.n_rows - exported.n_ignored
    assert corrected.warnings == ()
    with pytest.raises(EarmarkError, match=r"raters answered .*earmark score '.*' --from FILE"):
        scan(**sounding)


def test_with_sounds_the_scores_are_the_owners_own(sounding):
    scan(**sounding)
    path = re.escape(str(sounding["scores"]))
    with pytest.raises(EarmarkError, match=rf"scores of your own \({path}\); .* --replace"):
        pipeline.score(sounding["out"])
    found = pipeline.write_flags(sounding["out"]).findings
    assert found.data_told.endswith("; scores of your own, not known to be out of fold.")


def test_sounds_that_fit_no_clip_are_refused_and_nothing_is_left(sounding, tmp_path):
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "x.wav").write_bytes(b"")
    with pytest.raises(EarmarkError, match=r"clips are called 'clip 0'.*the files 'x.wav'"):
        scan(**sounding | {"sounds": tmp_path / "others"})
    with pytest.raises(EarmarkError, match="give a folder `out`"):
        scan(**sounding | {"out": None})
    assert not sounding["out"].exists()


def test_sounds_that_are_nowhere_are_refused_before_anything_is_read(sounding, tmp_path):
    with pytest.raises(EarmarkError, match="nowhere: no such folder; sounds are a folder"):
        scan(**sounding | {"sounds": tmp_path / "nowhere", "labels": tmp_path / "unread.csv"})
    assert not sounding["out"].exists()


def test_classes_show_their_parts_of_a_total_that_means_something(case):
    findings = scan(label_set(case[0]), case[1]).findings
    assert ">Missing<" not in scan_html(findings, {})
    parts = {"siren": 60.4, "dog": 9.6}
    given = {"n_answers": 80, "n_confirmed": 40, "n_random": 30, "class_totals": parts}
    known = replace(findings.estimates, total=Interval(70.0, 50.0, 90.0), **given)
    html = scan_html(replace(findings, estimates=known), {})
    assert known.describe() in Page(html).text
    rows = {name: html.split(f'data-value="{name}"')[1].split("</tr>")[0] for name in IDS}
    assert 'data-value="60.4">60.4<' in rows["siren"]
    assert html.index('data-value="siren"') < html.index('data-value="dog"')
    vague = replace(known, total=Interval(70.0, 5.0, 900.0))
    assert ">Missing<" not in scan_html(replace(findings, estimates=vague), {})


def test_where_nothing_is_flagged_the_verb_says_so(files):
    asked = ("labels", "scores", "classes", "out")
    options = [word for name in asked for word in (f"--{name}", str(files[name]))]
    done = CliRunner().invoke(app, ["scan", *options, "--n-flags", "0"])
    assert isinstance(done.exception, EarmarkError)
    assert "Not one label is flagged; ask for more" in str(done.exception)
    assert "index.html" in str(done.exception)
    assert "next: " not in done.stdout


def test_the_likeliest_stand_first_whatever_their_class(files):
    result = scan(**files)
    assert result.findings.flags["chance"].is_sorted(descending=True, nulls_last=True)
    page = Page((files["out"] / "index.html").read_text()).text
    listed = [int(found) for found in re.findall(r"chance >?(\d+) %", page)]
    assert len(listed) == 40
    assert listed == sorted(listed, reverse=True)


def test_scores_that_know_nothing_are_not_acted_upon(sounding):
    found = np.load(sounding["scores"])
    names = np.random.default_rng(1).permutation(found["clip_ids"])
    np.savez(sounding["scores"], **{**found, "clip_ids": names})
    scan(**sounding)
    page = Page((sounding["out"] / "index.html").read_text())
    assert "These scores do not know your labels" in page.text
    assert "By rank within their class, because no chance is known" in page.text
    assert "which need not be missing" in page.text
    assert "in no order of likelihood" in page.text
    for claim in ("likely to be missing", "Listen to these first", "likeliest"):
        assert claim not in page.text
    assert "earmark export" not in page.text


def test_a_notebook_shows_flags_with_names_escaped(case):
    states, logits = case
    labels = LabelSet.from_dense(states, class_ids=(NASTY, *IDS[1:]))
    result = scan(labels, logits, n_flags=30)
    text = result._repr_html_()
    page = Page(text)
    assert page.tags.count("tr") == 7
    assert result.findings.estimates.describe() in page.text
    assert "Flagged: the 30 likeliest of all classes." in page.text
    assert "24 more in .flags" in page.text
    assert "script" not in page.tags
    assert "audio" not in page.tags
