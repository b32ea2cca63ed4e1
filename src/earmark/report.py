"""One self-contained page that tells what a run found, can be heard, and needs no network.

Every number in a sentence is computed from the results, the verdict included.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark import figures
from earmark.artefacts import write_text
from earmark.figures import METRIC_NAMES, within_class_metric
from earmark.intervals import Interval
from earmark.tables import (
    Table,
    class_changes,
    controls_table,
    flags_judged_table,
    group_table,
    label_counts,
    performance_table,
    ranged_text,
    show_controls,
    show_flags_judged,
    show_groups,
    show_label_counts,
    show_performance,
    write_tables,
)
from earmark.verdict import (
    Verdict,
    best_point,
    by_line,
    headline,
    noise_note,
    number_text,
    signed_text,
    verdicts,
)


@dataclass(frozen=True)
class HeardFlag:
    """One flag to hear and see; ``is_missing`` is the truth about it, where it is known."""

    rank: int
    clip_id: str
    score: float
    chance: float | None = None
    is_missing: bool | None = None
    waveform: NDArray[np.float32] | None = None
    frames: NDArray[np.floating] | None = None
    """Log-mel frames [frame, band]."""
    best_patch: tuple[int, int] | None = None
    """First frame of the patch that scored best, and the frame after its last."""


@dataclass(frozen=True)
class ReportContents:
    """Everything that the report shows, as plain values.

    ``results`` and ``per_class`` are the sweep's tables, ``thresholds`` the table of operating
    points, ``classes`` comes from :func:`class_summary`, ``judged`` (discard_percent, n_flags,
    n_right, n_missing) is there where the truth is known, ``heard`` maps the names of chosen
    classes to their top flags, and ``provenance`` holds versions, seeds and digests.
    """

    title: str
    results: pl.DataFrame
    per_class: pl.DataFrame
    thresholds: pl.DataFrame
    classes: pl.DataFrame
    judged: pl.DataFrame | None = None
    heard: Mapping[str, Sequence[HeardFlag]] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    flag_percent: float = 1.0
    """The operating point at which labels are counted and flags listed."""
    prior_cutoffs: tuple[float, float] | None = None
    """Priors below which a class is small, above which large; None: see ``prior_cutoffs``."""
    sample_rate_hz: int = 16_000


def report_tables(contents: ReportContents) -> list[Table]:
    """Return all tables of the report, in the order in which the page shows them."""
    results = contents.results
    tables = [show_performance(results, "given")]
    if "truth" in results["labels"]:
        tables.append(show_performance(results, "truth"))
    tables.append(show_controls(controls_table(verdicts(results))))
    if contents.judged is not None:
        tables.append(show_flags_judged(flags_judged_table(contents.judged)))
    tables.append(show_groups(_all_groups(contents), _cutoffs(contents)))
    counts = label_counts(contents.thresholds, contents.classes)
    tables.append(show_label_counts(counts, contents.flag_percent))
    return tables


def write_report(folder: str | Path, contents: ReportContents) -> Path:
    """Write ``index.html``, ``figures/`` and ``tables/`` and return the path of the page.

    The page needs no network and no other file: pictures and sounds are inside it. The figures
    and tables beside it are the same ones for use elsewhere.
    """
    folder = Path(folder)
    tables = report_tables(contents)
    write_tables(folder / "tables", tables)
    pictures = _write_figures(folder / "figures", contents)
    template = resources.files("earmark").joinpath("report.html").read_text(encoding="utf-8")
    page = string.Template(template).substitute(
        title=_text(contents.title),
        sections="\n".join(_sections(contents, {table.name: table for table in tables}, pictures)),
        label_counts=_label_counts_json(contents),
    )
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _all_groups(contents: ReportContents) -> pl.DataFrame:
    """Stack the group tables of all students and train sets."""
    tables = []
    for student, train_set, percent, changes in _line_changes(contents):
        keys = [pl.lit(student).alias("student"), pl.lit(train_set).alias("train_set")]
        point = pl.lit(percent).alias("discard_percent")
        tables.append(group_table(changes).select(*keys, point, pl.all()))
    return pl.concat(tables)


def _cutoffs(contents: ReportContents) -> tuple[float, float]:
    return contents.prior_cutoffs or figures.prior_cutoffs(contents.classes["prior"].to_numpy())


def _line_changes(contents: ReportContents) -> list[tuple[str, str, float, pl.DataFrame]]:
    """Return student, train set, point and per-class changes of every line.

    The point is the one chosen on ``tune`` among those that ignore something.
    """
    found = []
    for own in by_line(contents.results.filter(pl.col("discard_percent") > 0)):
        student, train_set = own["student"][0], own["train_set"][0]
        percent = best_point(own, "lwlrap")
        rows = contents.per_class.filter(student=student, train_set=train_set)
        changes = class_changes(rows, contents.classes, percent, _cutoffs(contents))
        found.append((student, train_set, percent, changes))
    return found


def _bracketed(interval: Interval) -> str:
    value, low, high = (signed_text(number) for number in interval)
    return f"{value} [{low}, {high}]"


class _Picture(NamedTuple):
    """A figure on disk, and how the page shows it."""

    group: str
    caption: str
    png: Path
    svg: Path


def _write_figures(folder: Path, contents: ReportContents) -> list[_Picture]:
    drawn = [("performance", "Judged by the labels as given.", "performance", "given")]
    if "truth" in contents.results["labels"]:
        by_truth = "Judged by the complete labels of the simulator."
        drawn.append(("performance", by_truth, "performance_truth", "truth"))
    pictures = [
        _Picture(group, caption, *figures.write_figure(
            figures.performance_figure(contents.results, labels), folder / name
        ))
        for group, caption, name, labels in drawn
    ]  # fmt: skip
    if contents.judged is not None:
        paths = figures.write_figure(
            figures.flags_judged_figure(contents.judged), folder / "flags_judged"
        )
        pictures.append(_Picture("flags_judged", "Precision and recall of the flags.", *paths))
    for student, train_set, percent, changes in _line_changes(contents):
        name = re.sub(r"[^\w.-]+", "_", f"per_class_{student}_{train_set}")
        figure = figures.per_class_figure(changes, percent)
        paths = figures.write_figure(figure, folder / name)
        pictures.append(_Picture("per_class", f"{student}, {train_set}, {percent:g} %.", *paths))
    return pictures


def _sections(
    contents: ReportContents, tables: Mapping[str, Table], pictures: Sequence[_Picture]
) -> list[str]:
    """Return the sections of the page in their order; those without content are left out."""
    shown = {group: _pictures_html(pictures, group) for group in {p.group for p in pictures}}
    performance = [_table_html(tables[name]) for name in tables if name.startswith("performance")]
    judged = []
    if contents.judged is not None:
        told = _flags_told(tables["flags_judged"].values, contents.flag_percent)
        judged = [f"<p>{_text(told)}</p>", shown["flags_judged"]]
        judged.append(_table_html(tables["flags_judged"]))
    return [
        _section("finding", "What happened", _finding(contents.results)),
        _section("discard", "Performance against labels ignored", shown["performance"]),
        _section("table", "Baseline and best point", *performance, _table_html(tables["controls"])),
        _section("judged", "Were the flags right?", *judged),
        _section(
            "classes", "Which classes gain", shown["per_class"], _table_html(tables["groups"])
        ),
        _section("counts", "Labels ignored", _counts_html(contents, tables["label_counts"])),
        _section("listen", "Top flags to hear", *_heard_html(contents)),
        _section("methods", "Methods", _methods_html(contents)),
    ]


def _text(text: str) -> str:
    """Escape a text for the page and keep per cent signs with their numbers."""
    return html.escape(text).replace(" %", "\u00a0%")


def _section(anchor: str, heading: str, *parts: str) -> str:
    if not parts:
        return ""
    body = "\n".join(parts)
    return f'<section id="{anchor}">\n<h2>{heading}</h2>\n{body}\n</section>'


def _finding(results: pl.DataFrame) -> str:
    """Return the headline and, below it, the numbers of each student that it rests on."""
    found = verdicts(results)
    by_truth = verdicts(results, "truth") if "truth" in results["labels"] else [None] * len(found)
    d_prime = METRIC_NAMES[within_class_metric(results)]
    items = "\n".join(
        f"<li><b>{_text(f'{verdict.student}, {verdict.train_set}')}</b> "
        f"{_text(_numbers_told(verdict, true, d_prime))}</li>"
        for verdict, true in zip(found, by_truth, strict=True)
    )
    noise = f"<p>{_text(noise_note(results))}</p>"
    verdict = f'<p class="verdict">{_text(headline(results))}</p>'
    return f'{verdict}\n<ul class="lines">\n{items}\n</ul>\n{noise}'


def _numbers_told(verdict: Verdict, true: Verdict | None, d_prime: str) -> str:
    told = {
        "lwlrap": verdict.gain,
        f"random control (at {verdict.random_percent or 0:g} %)": verdict.random_gain,
        "calibrated": verdict.calibrated_gain,
        d_prime: verdict.d_prime_gain,
        f"{d_prime} of the random control": verdict.random_d_prime_gain,
        "lwlrap by the complete labels": true.gain if true else None,
    }
    numbers = [f"{name} {_bracketed(gain)}" for name, gain in told.items() if gain]
    return f"at {verdict.percent:g} %, change from the baseline: {'; '.join(numbers)}."


def _flags_told(judged: pl.DataFrame, percent: float) -> str:
    """Say how many flags of one operating point were right."""
    rows = judged.filter(discard_percent=percent)
    if rows.is_empty():
        return "Flags are judged by the truth, which the simulator knows."
    row = rows.row(0, named=True)
    return (
        f"At {percent:g} %, {row['n_right']:,} of {row['n_flags']:,} flags are missing labels "
        f"(precision {ranged_text(row, 'precision')}), out of {row['n_missing']:,} that are "
        f"missing (recall {ranged_text(row, 'recall')}); the other flags are decoys."
    )


def _pictures_html(pictures: Sequence[_Picture], group: str) -> str:
    figures_html = [
        f'<figure><img src="{_data_uri("image/svg+xml", picture.svg.read_bytes())}" '
        f'alt="{_text(picture.caption)}">'
        f"<figcaption>{_text(picture.caption)} "
        f"{_links('figures', picture.svg.name, picture.png.name)}</figcaption></figure>"
        for picture in pictures
        if picture.group == group
    ]
    return '<div class="figures">\n' + "\n".join(figures_html) + "\n</div>"


def _table_html(table: Table) -> str:
    n_text = table.n_text_columns
    kinds = ["text"] * n_text + ["number"] * (table.shown.width - n_text)
    headings = "".join(
        f'<th scope="col" class="{kind}">{_text(name)}</th>'
        for kind, name in zip(kinds, table.shown.columns, strict=True)
    )
    rows = "\n".join(
        f'<tr data-row="{number}">'
        + "".join(
            f'<td class="{kind}">{_text(cell)}</td>' for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for number, row in enumerate(table.shown.rows())
    )
    links = _links("tables", f"{table.name}.csv", f"{table.name}.tex")
    return (
        f'<p class="caption" id="about-{table.name}">{_text(table.caption)} {links}</p>\n'
        f'<div class="scroll" role="region" aria-labelledby="about-{table.name}" tabindex="0">\n'
        f'<table id="{table.name}"><thead><tr>{headings}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _links(folder: str, *names: str) -> str:
    links = (f'<a href="{folder}/{name}">{name.rsplit(".")[-1].upper()}</a>' for name in names)
    return f'<span class="files">{" · ".join(links)}</span>'


def _counts_html(contents: ReportContents, table: Table) -> str:
    points = contents.thresholds["discard_percent"].unique().sort().to_list()
    options = "".join(
        f"<option{' selected' if point == contents.flag_percent else ''}>{point:g}</option>"
        for point in points
    )
    chooser = (
        '<p class="chooser" hidden><label>Operating point '
        f'<select id="point">{options}</select> %</label></p>'
    )
    return f"{chooser}\n{_table_html(table)}"


def _label_counts_json(contents: ReportContents) -> str:
    """Return to_ignore by point and class, for the page's chooser; safe inside a script element."""
    counts = label_counts(contents.thresholds, contents.classes)
    by_point = {
        f"{percent:g}": rows["to_ignore"].to_list()
        for (percent,), rows in counts.group_by("discard_percent", maintain_order=True)
    }
    return json.dumps(by_point).replace("<", "\\u003c")


def _heard_html(contents: ReportContents) -> list[str]:
    parts = []
    for name, flags in contents.heard.items():
        items = "\n".join(_flag_html(flag, contents.sample_rate_hz) for flag in flags)
        parts.append(f'<h3>{_text(name)}</h3>\n<ol class="flags">\n{items}\n</ol>')
    return parts


def _flag_html(flag: HeardFlag, sample_rate_hz: int) -> str:
    facts = [f"score {number_text(flag.score, 2)}"]
    if flag.chance is not None and np.isfinite(flag.chance):
        facts.append(f"chance {number_text(flag.chance, 2)}")
    verdict = ""
    if flag.is_missing is not None:
        kind, mark, word = ("missing", "✓", "missing label") if flag.is_missing else (
            "decoy", "✗", "decoy"
        )  # fmt: skip
        verdict = f' <span class="{kind}">{mark} {word}</span>'
    picture = sound = ""
    if flag.frames is not None:
        png = figures.log_mel_png(flag.frames, flag.best_patch)
        picture = (
            f'<img src="{_data_uri("image/png", png)}" width="320" height="100" alt="log-mel">'
        )
    if flag.waveform is not None and len(flag.waveform):
        mp3 = _mp3(flag.waveform, sample_rate_hz)
        sound = f'<audio controls preload="none" src="{_data_uri("audio/mpeg", mp3)}"></audio>'
    return (
        f'<li><p><b>{flag.rank}</b> <span class="clip">{_text(flag.clip_id)}</span></p>'
        f"<p>{' · '.join(facts)}{verdict}</p>{picture}{sound}</li>"
    )


def _mp3(waveform: NDArray[np.float32], sample_rate_hz: int) -> bytes:
    import soundfile  # comes with earmark[audio]; a report without sound does not need it

    encoded = io.BytesIO()
    soundfile.write(encoded, np.clip(waveform, -1, 1), sample_rate_hz, format="MP3")
    return encoded.getvalue()


def _data_uri(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def _methods_html(contents: ReportContents) -> str:
    results = contents.results
    students, train_sets = (
        results[name].unique(maintain_order=True) for name in ("student", "train_set")
    )
    points = results.filter(kind="mask")["discard_percent"].unique().sort()
    text = (
        f"Students ({', '.join(students)}) were trained on {', '.join(train_sets)}, each "
        f"{figures.count_seeds(results)} times (seeds), ignoring the top-scored implicit labels of "
        f"every class at {len(points)} operating points from {points[0]:g} to {points[-1]:g} "
        "percent; students of one seed share their initial weights and batches. Points were "
        "chosen on the tune split and are reported on the eval split. Overall lwlrap, d′ and mAP "
        "are equal-weight means over classes. Intervals are 90 % basic bootstrap intervals over "
        "clips, and over seeds where there are several; differences are paired with the "
        "baseline of the same student, train set and seed. The random control ignores as many "
        "labels of each class chosen at random; the calibration control subtracts τ log(prior) "
        "from every logit, with the τ that is best on tune for each student, the baseline included."
    )
    facts = "\n".join(
        f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>"
        for name, value in contents.provenance.items()
    )
    return f"<p>{_text(text)}</p>\n<dl>{facts}</dl>"


def summary_lines(
    results: pl.DataFrame, judged: pl.DataFrame | None, flag_percent: float
) -> list[str]:
    """Say in a few lines of plain text what a run found: the flags, the metrics, the verdict."""
    lines = []
    if judged is not None:
        lines += [_flags_told(flags_judged_table(judged), flag_percent), ""]
    for labels in [name for name in ("given", "truth") if name in results["labels"]]:
        basis = "the labels as given" if labels == "given" else "the complete labels"
        lines.append(f"On the evaluation clips, by {basis} (90 % intervals):")
        for row in performance_table(results, labels).iter_rows(named=True):
            lines.append(
                f"  {row['student']}, {row['train_set']}: {METRIC_NAMES[row['metric']]} "
                f"{ranged_text(row, 'baseline')} -> {ranged_text(row, 'best')} "
                f"at {row['best_percent']:g} %, change "
                f"{ranged_text(row, 'difference', signed_text)}"
            )
        lines.append("")
    return [*lines, headline(results), *filter(None, [noise_note(results)])]
