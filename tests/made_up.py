"""Made-up results of a sweep, small enough to check by hand."""

from __future__ import annotations

import dataclasses
import html.parser
import re

import numpy as np
import polars as pl

from earmark.report import HeardFlag, ReportContents, content_hash

RESULT_COLUMNS = [
    "student", "train_set", "seed", "kind", "discard_percent", "split", "labels", "metric",
    "value", "low", "high", "difference", "difference_low", "difference_high",
]  # fmt: skip
ROLES = {"baseline": "baseline", "random": "control", "truth": "oracle", "oracle/mask": "oracle"}
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


def make_choices(
    gains: dict[str, float],
    p_holm: dict[str, float | None],
    *,
    labels: tuple[str, ...] = ("given",),
) -> pl.DataFrame:
    """Build the choices of a comparison: gains of every metric, 0.01 either way, by strategy."""
    rows = [
        {
            "student": "net", "train_set": "small", "strategy": name,
            "role": ROLES.get(name, "tested"), "point": 1.0 if gain else None, "n_seeds": 3,
            "seeds": "0, 1, 2", "split": "eval", "labels": by, "metric": metric,
            "value": 0.5 + gain, "low": 0.45 + gain, "high": 0.55 + gain,
            "difference": gain, "difference_low": gain - 0.01, "difference_high": gain + 0.01,
            "classes_low": None if metric == "lwlrap_calibrated" else gain - 0.02,
            "classes_high": None if metric == "lwlrap_calibrated" else gain + 0.02,
            "p": 0.5, "p_holm": p_holm.get(name), "chosen_on_eval_point": 2.0,
            "chosen_on_eval": 0.6,
        }
        for name, gain in gains.items()
        for by in labels
        for metric in ("lwlrap", "lwlrap_calibrated", "d_prime_all", "map")
    ]  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def make_courses() -> dict[str, pl.DataFrame]:
    """Build the histories of two networks, one of which was measured on tune."""
    losses = {"epoch": [1, 2], "loss": [8.5, 7.25], "seconds": [0.5, 0.25]}
    return {
        "teacher-fold0": pl.DataFrame(losses),
        NASTY: pl.DataFrame({**losses, "tune_lwlrap": [0.25, float("nan")]}),
    }


def make_flags(clip_id: str = "clip-1", name: str = "Bird") -> list[HeardFlag]:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000).astype(np.float32)
    frames = np.zeros((98, 64), np.float16)
    return [
        HeardFlag(1, clip_id, 3.21, 0.9, True, tone, frames, (0, 96), name),
        HeardFlag(2, "clip-2", -1.5, float("nan"), False, tone[:0], frames, None, name),
        HeardFlag(3, "clip-3", 0.0),
    ]


def check_policy(html: str) -> None:
    """Assert that a page's policy admits its own styles and script, and nothing else."""
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy.startswith("default-src 'none'; img-src data:; media-src data:;")
    assert "unsafe" not in policy
    styles = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    assert f"style-src {' '.join(map(content_hash, styles))};" in policy
    assert f"script-src {content_hash(script)}" in policy
    assert not re.search(r'<[^>]* (style|on\w+)="', html.split("</style>")[-1])


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
