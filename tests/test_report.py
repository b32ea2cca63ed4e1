from __future__ import annotations

import base64
import dataclasses
import html.parser
import io
import re

import numpy as np
import polars as pl
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earmark import report
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.ontology import Ontology
from earmark.report import HeardFlag, ReportContents
from earmark.tables import (
    Table,
    class_changes,
    class_summary,
    controls_table,
    flags_judged_table,
    group_table,
    label_counts,
    performance_table,
    to_latex,
    write_tables,
)
from earmark.verdict import Interval, Verdict, best_point, headline, verdicts

RESULT_COLUMNS = [
    "student", "train_set", "seed", "kind", "discard_percent", "split", "labels", "metric",
    "value", "low", "high", "difference", "difference_low", "difference_high",
]  # fmt: skip
VOID = {"meta", "img", "link", "br", "input"}
NASTY = "<script>alert('x')</script> & 50 % _$"


def make_results(
    tune: dict[float, float],
    on_eval: dict[float, float],
    *,
    half_width: float = 0.005,
    random: dict[float, float] | None = None,
    calibrated: dict[float, float] | None = None,
    student: str = "net",
    train_set: str = "small",
    labels: tuple[str, ...] = ("given",),
    metrics: tuple[str, ...] = ("d_prime_explicit", "lwlrap"),
) -> pl.DataFrame:
    """Build results of two seeds, 0.01 below and above the given values by discard percent."""
    curves = [("mask", split, metric, values) for metric in metrics
              for split, values in (("tune", tune), ("eval", on_eval))]  # fmt: skip
    if random:
        curves.append(("random", "eval", "lwlrap", random))
    if calibrated:
        curves.append(("mask", "eval", "lwlrap_calibrated", calibrated))
    rows = []
    for kind, split, metric, values in curves:
        baseline = values.get(0.0, on_eval[0.0])
        for percent, value in values.items():
            gain, width = value - baseline, half_width if percent else 0.0
            for by in labels:
                for seed, shift in ((0, -0.01), (1, 0.01)):
                    numbers = (value + shift, value - 0.1, value + 0.1)
                    gains = (gain, gain - width, gain + width)
                    key = (student, train_set, seed, kind, percent, split, by, metric)
                    rows.append((*key, *numbers, *gains))
    return pl.DataFrame(rows, schema=RESULT_COLUMNS, orient="row")


CURVE = {0.0: 0.40, 1.0: 0.44, 2.0: 0.43}
RESULTS = make_results({0.0: 0.4, 1.0: 0.42, 2.0: 0.45}, CURVE)


def make_contents(results: pl.DataFrame = RESULTS, name: str = "Bird", **changes) -> ReportContents:
    class_ids = ["a", "b", "c"]
    classes = pl.DataFrame(
        {
            "class_id": class_ids,
            "name": [name, "Siren", "Rain"],
            "n_total": [1_000] * 3,
            "n_positives": [100, 50, 20],
            "n_negatives": [100, 50, 20],
            "n_implicit": [800, 900, 960],
            "prior": [0.1, 0.05, 0.02],
        }
    )
    points = sorted(results["discard_percent"].unique())
    per_class = pl.DataFrame(
        [
            {
                "student": student, "train_set": train_set, "seed": seed, "kind": "mask",
                "discard_percent": percent, "split": "eval", "labels": "given", "class_id": c,
                "lwlrap": 0.5 + (0.1 * (i - 1) if percent else 0),
            }
            for student, train_set in results.select("student", "train_set").unique().rows()
            for seed in (0, 1)
            for percent in points
            for i, c in enumerate(class_ids)
        ]
    )  # fmt: skip
    thresholds = pl.DataFrame(
        [
            {"discard_percent": p, "class_id": c, "n_implicit": n, "n_ignored": int(p * n / 100)}
            for p in points
            for c, n in zip(class_ids, (800, 900, 960), strict=True)
        ]
    )
    contents = ReportContents("A title", results, per_class, thresholds, classes)
    return dataclasses.replace(contents, **changes)


def make_flags(clip_id: str = "clip-1") -> list[HeardFlag]:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000).astype(np.float32)
    frames = np.zeros((98, 64), np.float16)
    return [
        HeardFlag(1, clip_id, 3.21, 0.9, True, tone, frames, (0, 96)),
        HeardFlag(2, "clip-2", -1.5, float("nan"), False, tone[:0], frames),
        HeardFlag(3, "clip-3", 0.0),
    ]


class Page(html.parser.HTMLParser):
    """Checks that every element is closed in order, and keeps what tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attributes)
        self.ids += [values["id"]] if values.get("id") else []
        self.addresses += [values[name] or "" for name in ("src", "href") if name in values]
        if tag == "img":
            assert values["alt"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data.replace("\u00a0", " ")


def test_best_point_is_the_best_mean_over_seeds_on_tune():
    assert best_point(RESULTS, "lwlrap") == 2.0
    assert best_point(RESULTS, "lwlrap", split="eval") == 1.0


def test_best_point_prefers_the_smaller_of_a_tie_and_skips_undefined_values():
    tied = make_results({0.0: 0.4, 2.0: 0.5, 1.0: 0.5, 5.0: float("nan")}, CURVE)
    assert best_point(tied, "lwlrap") == 1.0


def test_best_point_ignores_the_random_control():
    results = make_results(CURVE, CURVE, random={2.0: 0.9})
    assert best_point(results, "lwlrap", split="eval") == 1.0


def test_best_point_without_tune_clips_says_so():
    with pytest.raises(EarmarkError, match="'tune'"):
        best_point(RESULTS.filter(split="eval"), "lwlrap")


def test_performance_table_by_hand():
    row = performance_table(RESULTS).row(by_predicate=pl.col("metric") == "lwlrap", named=1)
    expected = {
        "baseline": 0.40, "baseline_low": 0.30, "baseline_high": 0.50,
        "best_percent": 2.0, "best": 0.43, "difference": 0.03,
        "difference_low": 0.025, "difference_high": 0.035, "relative_gain_percent": 7.5,
        "best_on_eval_percent": 1.0, "best_on_eval": 0.44,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_performance_by_the_truth_keeps_the_point_chosen_by_the_labels_as_given():
    given_labels = make_results({0.0: 0.4, 1.0: 0.42, 2.0: 0.45}, CURVE)
    truth = make_results({0.0: 0.4, 1.0: 0.9, 2.0: 0.1}, CURVE, labels=("truth",))
    table = performance_table(pl.concat([given_labels, truth]), labels="truth")
    assert table["best_percent"].unique().to_list() == [2.0]


def test_a_metric_that_could_not_be_computed_has_no_row():
    is_d_prime = pl.col("metric") == "d_prime_explicit"
    value = pl.when(is_d_prime).then(float("nan")).otherwise("value").alias("value")
    assert performance_table(RESULTS.with_columns(value))["metric"].to_list() == ["lwlrap"]


def headline_of(gain: float, half_width: float = 0.005, **controls) -> str:
    curve = {0.0: 0.40, 2.0: 0.40 + gain}
    return headline(make_results({0.0: 0.1, 2.0: 0.2}, curve, half_width=half_width, **controls))


def test_headline_says_no_when_the_interval_includes_zero():
    sentence = headline_of(0.004, half_width=0.005)
    assert sentence.startswith("No:")
    assert "from 0.400 to 0.404 (+0.004, 90 % interval −0.001 to +0.009)" in sentence
    assert "includes zero" in sentence
    assert "raised" not in sentence


def test_headline_says_no_when_performance_fell():
    assert re.match("No: .* lowered lwlrap", headline_of(-0.02))


def test_headline_says_no_when_the_baseline_is_best_on_tune():
    results = make_results({0.0: 0.5, 2.0: 0.2}, CURVE)
    assert headline(results).startswith("No: on the tune clips no operating point beat")


def test_headline_says_yes_when_most_of_the_gain_survives_both_controls():
    sentence = headline_of(0.04, random={2.0: 0.404}, calibrated={0.0: 0.41, 2.0: 0.44})
    assert sentence.startswith("Yes: ignoring the top-scored 2 % of implicit labels raised")
    assert "90 % of it is left after the random control" in sentence
    assert "75 % of it is left after the calibration control" in sentence


@pytest.mark.parametrize(
    ("controls", "told"),
    [
        (
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.412}},
            "5 % of it is left after the cal",
        ),
        (
            {"random": {2.0: 0.404}, "calibrated": {0.0: 0.41, 2.0: 0.40}},
            "nothing of it is left after the cal",
        ),
        (
            {"random": {2.0: 0.45}, "calibrated": {0.0: 0.41, 2.0: 0.45}},
            "nothing of it is left after the random",
        ),
        (
            {"random": {2.0: 0.39}, "calibrated": {0.0: 0.41, 2.0: 0.42}},
            "all of it is left after the random",
        ),
        ({"random": {2.0: 0.404}}, "the calibration control was not run"),
        ({"calibrated": {0.0: 0.41, 2.0: 0.45}}, "the random control was not run"),
    ],
)
def test_headline_is_reserved_when_a_control_explains_the_gain_or_is_missing(controls, told):
    sentence = headline_of(0.04, **controls)
    assert sentence.startswith("Only in part:")
    assert told in sentence


def test_headline_counts_several_students():
    controls = {"random": {2.0: 0.40}, "calibrated": {0.0: 0.41, 2.0: 0.44}}
    tune = {0.0: 0.1, 2.0: 0.2}
    good = make_results(tune, {0.0: 0.40, 2.0: 0.44}, **controls)
    flat = make_results(tune, {0.0: 0.40, 2.0: 0.401}, student="flat", **controls)
    sentence = headline(pl.concat([good, flat]))
    assert sentence.startswith("Only in part:")
    assert "for 1 of the 2 pairs of student and train set, by +0.040 on average" in sentence
    assert "all of that is left after the random control and 75 % after" in sentence
    worse = make_results(tune, {0.0: 0.40, 2.0: 0.30}, student="worse")
    sentence = headline(pl.concat([flat, worse]))
    assert sentence.startswith("No:")
    assert "for none of the 2 pairs of student and train set and lowered it for 1." in sentence


@given(st.floats(-0.1, 0.1), st.floats(0, 0.1), st.floats(-0.1, 0.1), st.floats(-0.1, 0.1))
def test_yes_is_never_said_of_a_gain_within_chance(gain, width, random_gain, calibrated_gain):
    verdict = Verdict(
        "net", "train", 1.0, Interval(0.4, 0.3, 0.5), Interval(0.4 + gain, 0.3, 0.5),
        gain=Interval(gain, gain - width, gain + width),
        calibrated_gain=Interval(calibrated_gain, calibrated_gain - width, calibrated_gain + width),
        random_gain=Interval(random_gain, random_gain, random_gain),
    )  # fmt: skip
    if verdict.answer == "Yes":
        assert gain > width
        assert calibrated_gain > width
        assert random_gain < gain - width
    assert (verdict.answer == "No") == (gain - width <= 0)


def test_the_random_control_is_read_at_the_nearest_point():
    results = make_results({0.0: 0.1, 2.0: 0.2}, CURVE, random={1.0: 0.41, 5.0: 0.3})
    verdict = verdicts(results)[0]
    assert verdict.random_percent == 1.0
    assert verdict.random_gain.value == pytest.approx(0.01)


def test_controls_table_by_hand():
    results = make_results(
        {0.0: 0.1, 2.0: 0.2}, CURVE, random={2.0: 0.406}, calibrated={0.0: 0.41, 2.0: 0.416}
    )
    row = controls_table(verdicts(results)).row(0, named=True)
    assert row["gain"] == pytest.approx(0.03)
    assert row["left_after_random"] == pytest.approx(0.8)
    assert row["left_after_calibration"] == pytest.approx(0.2)
    assert row["survives_both"] is True


def test_label_counts_are_the_supplements():
    classes = pl.DataFrame(
        {"class_id": ["s", "a"], "name": ["Speech", "Ambulance (siren)"], "n_total": [506_721] * 2}
    )
    thresholds = pl.DataFrame(
        {
            "discard_percent": [0.1, 0.1],
            "class_id": ["a", "s"],
            "n_implicit": [505_064, 42_459],
            "n_ignored": [505, 42],
        }
    )
    counts = label_counts(thresholds, classes)
    assert counts.select("name", "total", "explicit", "implicit", "to_ignore").rows() == [
        ("Ambulance (siren)", 506_721, 1_657, 505_064, 505),
        ("Speech", 506_721, 464_262, 42_459, 42),
    ]


def test_label_counts_refuse_a_point_that_was_not_computed():
    with pytest.raises(EarmarkError, match=r"flag_percent is 3,.*: 0, 1, 2"):
        report.report_tables(make_contents(flag_percent=3.0))


def test_class_summary_counts_labels():
    labels = LabelSet.from_dense([[1, 0], [1, -1], [0, 0], [0, 0]], class_ids=["a", "b"])
    summary = class_summary(labels, Ontology(("a", "b"), names={"a": "Bird"}))
    assert summary.rows() == [("a", "Bird", 4, 2, 0, 2, 0.5), ("b", "b", 4, 0, 1, 3, 0.0)]


def test_class_changes_are_means_over_seeds_of_defined_classes():
    contents = make_contents()
    is_second = pl.col("class_id") == "b"
    shifted = pl.col("lwlrap") + 0.02 * (pl.col("seed") - 0.5)
    undefined = pl.when(is_second).then(float("nan")).otherwise(shifted).alias("lwlrap")
    changes = class_changes(
        contents.per_class.with_columns(undefined), contents.classes, 2.0, cutoffs=(0.03, 0.07)
    )
    assert changes["class_id"].to_list() == ["a", "c"]
    assert changes["group"].to_list() == ["large", "small"]
    assert changes["change"].to_list() == pytest.approx([-0.1, 0.1])


def test_group_table_by_hand():
    changes = pl.DataFrame(
        {"group": ["small"] * 4 + ["large"], "change": [0.3, 0.1, 0.0, -0.2, -0.1]}
    )
    large, medium, small = group_table(changes).rows()
    assert large == ("large", 1, 0, 0.0, -0.1, None)
    assert medium == ("medium", 0, 0, None, None, None)
    assert small == ("small", 4, 2, 50.0, pytest.approx(0.05), pytest.approx(0.2))


def test_groups_name_their_cutoffs():
    contents = make_contents(prior_cutoffs=(0.03, 0.07))
    (groups,) = (table for table in report.report_tables(contents) if table.name == "groups")
    assert "(small: below 0.03, large: above 0.07)" in groups.caption
    assert groups.shown["Improved"].to_list() == ["0 (0.0 %)", "0 (0.0 %)", "1 (100.0 %)"]


def test_flags_judged_table_by_hand():
    judged = pl.DataFrame(
        {
            "discard_percent": [0.0, 1.0],
            "n_flags": [0, 10],
            "n_right": [0, 8],
            "n_missing": [40, 40],
        }
    )
    (row,) = flags_judged_table(judged).iter_rows(named=True)
    assert row["precision"] == 0.8
    assert row["recall"] == 0.2
    assert (row["precision_low"], row["precision_high"]) == pytest.approx((0.541, 0.931), abs=1e-3)


def test_latex_escapes_names():
    shown = pl.DataFrame({"Class": [r"50 % of A&B_#1 {$x^2$} ~ \end"], "d′": ["−0.010"]})
    table = Table("names", "100 % & more", shown, shown, n_text_columns=1)
    text = to_latex(table)
    assert r"\begin{tabular}{lr}" in text
    assert r"\caption{100 \% \& more}" in text
    assert "Class & d$'$ \\\\" in text
    assert (
        r"50 \% of A\&B\_\#1 \{\$x\textasciicircum{}2\$\} \textasciitilde{} \textbackslash{}end"
        r" & $-$0.010 \\"
    ) in text


def test_every_table_is_written_as_csv_and_latex(tmp_path):
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    tables = report.report_tables(make_contents(judged=judged))
    write_tables(tmp_path, tables)
    names = {"performance", "controls", "flags_judged", "groups", "label_counts"}
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{ending}" for name in names for ending in ("csv", "tex")
    }
    counts = pl.read_csv(tmp_path / "label_counts.csv")
    assert len(counts) == 3 * 3  # every class at every point
    assert (tmp_path / "label_counts.tex").read_text().count(r"\\") == 1 + 3
    assert pl.read_csv(tmp_path / "performance.csv")["best"][1] == pytest.approx(0.43)


def test_the_page_is_well_formed_and_needs_nothing_else(tmp_path):
    results = make_results({0.0: 0.1, 2.0: 0.2}, CURVE, labels=("given", "truth"), train_set=NASTY)
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    contents = make_contents(
        results, NASTY, title=NASTY, judged=judged, heard={NASTY: make_flags(NASTY)},
        provenance={NASTY: NASTY},
    )  # fmt: skip
    path = report.write_report(tmp_path / "report", contents)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert path == tmp_path / "report" / "index.html"
    assert "alert('x')" not in text  # every name is escaped
    assert page.text.count(NASTY) >= 8
    assert page.tags.count("script") == 2
    for address in page.addresses:
        assert address.startswith("data:") or (path.parent / address).is_file()
    assert not re.search(r"url\(|@import|\bfetch\(|https?://", re.sub(r"data:[^\"]*", "", text))


def test_the_page_tells_its_story_in_order(tmp_path):
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    contents = make_contents(judged=judged, heard={"Bird": make_flags()})
    text = report.write_report(tmp_path, contents).read_text(encoding="utf-8")
    anchors = ["finding", "discard", "table", "judged", "classes", "counts", "listen", "methods"]
    assert re.findall(r'<section id="(\w+)">', text) == anchors
    told = Page(text).text
    assert told.index(headline(RESULTS)) < told.index("Performance against")
    assert "8 of 10 flags are missing labels (precision 0.800 [0.541, 0.931])" in told


def test_flags_can_be_heard_and_seen(tmp_path):
    contents = make_contents(heard={"Bird": make_flags()})
    text = report.write_report(tmp_path, contents).read_text(encoding="utf-8")
    told = Page(text).text
    assert "score 3.21 · chance 0.90 ✓ missing label" in told
    assert "score −1.50 ✗ decoy" in told
    (sound,) = re.findall(
        r'<audio controls preload="none" src="data:audio/mpeg;base64,([^"]*)"', text
    )
    waveform, rate = soundfile.read(io.BytesIO(base64.b64decode(sound)))
    assert rate == 16_000
    peak_hz = np.abs(np.fft.rfft(waveform)).argmax() * rate / len(waveform)
    assert peak_hz == pytest.approx(440, abs=2)
    assert text.count("data:image/png;base64") == 2


def test_a_report_without_truth_controls_or_sounds_is_still_a_page(tmp_path):
    text = report.write_report(tmp_path, make_contents()).read_text(encoding="utf-8")
    assert "Only in part" in Page(text).text
    assert 'id="judged"' not in text
    assert 'id="listen"' not in text


def test_the_same_contents_give_the_same_page(tmp_path):
    contents = make_contents(heard={"Bird": make_flags()})
    first, second = (report.write_report(tmp_path / name, contents) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_no_results_is_a_readable_error():
    with pytest.raises(EarmarkError, match="earmark sweep"):
        headline(RESULTS.clear())
