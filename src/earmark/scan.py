"""From labels and scores to a list of suspects, in one step and without any training.

:func:`scan` reads labels and scores in whatever format their owner has, flags the labels that are
likely to be missing, estimates how many there are, and writes tables and a page that a person can
read. The output folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import itertools
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.artefacts import read_json, write_json, write_table, write_text
from earmark.counting import Counts, Histograms, estimate_missing
from earmark.errors import EarmarkError
from earmark.flagging import (
    POLICIES,
    Thresholds,
    flag,
    in_sample_warning,
    survey,
    suspicious_positives,
    thresholds,
)
from earmark.foreign_files import first_few
from earmark.hierarchy import Implied, find_implied
from earmark.labels import LabelSet
from earmark.ontology import Ontology
from earmark.progress import SILENT, Progress
from earmark.scan_inputs import InputFiles, Inputs, read_inputs
from earmark.scan_page import Findings, headline, page
from earmark.scores import Chunk, ScoreMatrix, find_unscored

FORMAT = "earmark scan 1"
"""What ``meta.json`` of an output folder calls itself; only such a folder is replaced."""

SAMPLE_CLIPS = 1024
"""Clips, spread evenly over all, whose scores make up the digest and show constant classes."""


@dataclass(frozen=True)
class ScanResult:
    """What a scan found, and the folder that holds it."""

    out: Path
    findings: Findings
    seconds: float

    @property
    def n_flags(self) -> int:
        """Number of labels suspected to be missing."""
        return len(self.findings.flags)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result."""
        return self.findings.warnings

    def lines(self) -> list[str]:
        """Say in a few lines of plain text what was found."""
        found = self.findings
        lines = [
            found.data_told,
            f"{self.n_flags:,} labels flagged: {found.policy_told}.",
            headline(found.classes),
            found.implied_told,
            *(f"warning: {warning}" for warning in found.warnings),
        ]
        return [line for line in lines if line]


def scan(
    labels: str | Path,
    scores: str | Path,
    *,
    out: str | Path,
    classes: str | Path | None = None,
    clips: str | Path | None = None,
    ontology: str | Path | None = None,
    scale: Literal["auto", "logits", "probabilities"] = "auto",
    policy: str = "percentile",
    fill_ancestors: bool = False,
    labels_key: str | None = None,
    scores_key: str | None = None,
    n_wrong_per_class: int = 20,
    progress: Progress = SILENT,
    **options: Any,
) -> ScanResult:
    """Find the labels that are likely to be missing, and write what was found to ``out``.

    ``classes`` and ``clips`` list them in the order of the scores, where the scores do not name
    them. ``ontology`` (AudioSet's ``ontology.json``, or a table with class_id and parents) tells
    which implicit labels are certain; ``fill_ancestors`` takes those as positives. ``options`` are
    the policy's (see :func:`earmark.flagging.flag`); ``gate=True`` stands for the given ontology.
    A folder ``out`` that an earlier scan wrote is replaced; any other that holds files is refused.
    """
    start, out = time.monotonic(), Path(out)
    files = InputFiles(
        Path(labels),
        Path(scores),
        None if classes is None else Path(classes),
        None if clips is None else Path(clips),
        None if ontology is None else Path(ontology),
        labels_key,
        scores_key,
    )
    _check_request(out, policy, options, ontology is not None, fill_ancestors)
    with _scratch_beside(out) as scratch:
        inputs = read_inputs(files, scale, scratch, progress)
        findings = find(inputs, policy, options, fill_ancestors, n_wrong_per_class, progress)
        chosen = {"scale": scale, "policy": policy, "fill_ancestors": fill_ancestors, **options}
        write_findings(scratch / "found", findings, _provenance(files, inputs, chosen))
        _put_in_place(scratch / "found", out)
    return ScanResult(out, findings, time.monotonic() - start)


def find(
    inputs: Inputs,
    policy: str,
    options: Mapping[str, Any],
    fill_ancestors: bool = False,
    n_wrong_per_class: int = 20,
    progress: Progress = SILENT,
) -> Findings:
    """Flag, count and list; in several passes over the scores."""
    meter = progress.job("scan", 4, "passes")
    has_parents = bool(inputs.ontology.parents)
    implied = find_implied(inputs.labels, inputs.ontology) if has_parents else None
    labels = implied.fill() if implied is not None and fill_ancestors else inputs.labels
    scores = inputs.scores
    counts = estimate_missing(labels, scores)
    meter.advance(1, "counted")
    points, flags = _flag(labels, scores, policy, _with_gate(options, inputs.ontology), counts)
    meter.advance(1, "flagged")
    wrong = suspicious_positives(inputs.labels, scores, n_per_class=n_wrong_per_class)
    meter.advance(1, "listed positives")
    constant = _constant_classes(scores)
    table = class_table(labels, inputs.ontology, counts, flags, points, constant)
    warnings = [
        *inputs.warnings,
        in_sample_warning(labels, scores),
        *_class_warnings(labels, scores, constant),
        *_implied_warnings(implied, fill_ancestors),
    ]
    meter.advance(1, "checked")
    return Findings(
        points.table(labels.class_ids),
        _with_names(flags, inputs.ontology),
        table,
        _with_names(wrong, inputs.ontology),
        None if implied is None else implied.table(),
        _data_told(inputs),
        _policy_told(policy, options),
        _implied_told(implied, fill_ancestors),
        tuple(warning for warning in warnings if warning),
    )


def _flag(
    labels: LabelSet,
    scores: ScoreMatrix,
    policy: str,
    options: Mapping[str, Any],
    counts: Counts,
) -> tuple[Thresholds, pl.DataFrame]:
    """Return the thresholds of all points, and flags that carry the chance of the counts."""
    if policy != "percentile":
        return thresholds(labels, scores), flag(labels, scores, policy, **options)
    percent = options.get("discard_percent", 1.0)
    points, flags = survey(labels, scores, flag_percent=percent, with_chance=False)
    index = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    columns = flags["class_id"].replace_strict(index, return_dtype=pl.Int64).to_numpy()
    chance = pl.Series("chance", counts.chance(columns, flags["logit"].to_numpy()))
    return points, flags.with_columns(chance.fill_nan(None).round(4))


def _with_gate(options: Mapping[str, Any], ontology: Ontology) -> dict[str, Any]:
    gate = {"gate": ontology if options["gate"] else None} if "gate" in options else {}
    return {**options, **gate}


def class_table(
    labels: LabelSet,
    ontology: Ontology,
    counts: Counts,
    flags: pl.DataFrame,
    points: Thresholds,
    is_constant: NDArray[np.bool_],
) -> pl.DataFrame:
    """Return one row per class: labels, flags, estimated missing labels, AUC.

    ``threshold`` is the paper's at 1 %, ``lowest_flag`` the lowest score that was flagged. Where
    the number of missing labels is not estimable, ``note`` says why. ``auc`` holds positives
    against implicit labels and comes from a histogram: good to about 0.01.
    """
    own = flags.group_by("class_id").agg(n_flags=pl.len(), lowest_flag=pl.col("logit").min())
    table = counts.table.with_columns(
        reason=pl.when(pl.Series(is_constant))
        .then(pl.lit("all scores are equal"))
        .otherwise("reason"),
        name=pl.Series([ontology.name(class_id) for class_id in labels.class_ids]),
        n_negatives=labels.n_negatives,
        prior=labels.priors,
        threshold=points.values[points.discard_percents.index(1.0)],
        auc=pl.Series(_auc(counts.histograms)).fill_nan(None).round(4),
    ).join(own, on="class_id", how="left", maintain_order="left")
    is_known = pl.col("reason").is_null()
    numbers = ("n_missing", "low", "high", "upper_bound")
    return table.with_columns(
        *(pl.when(~pl.Series(is_constant)).then(pl.col(name).round(1)) for name in numbers),
        n_flags=pl.col("n_flags").fill_null(0).cast(pl.Int64),
        note=pl.when(is_known).then(pl.lit("")).otherwise("not estimable: " + pl.col("reason")),
    ).select(
        "class_id", "name", "n_positives", "n_negatives", "n_implicit", "prior", "threshold",
        "lowest_flag", "n_flags", *numbers, "method", "note", "auc",
    )  # fmt: skip


def _auc(histograms: Histograms) -> NDArray[np.float64]:
    """Return how often a positive outscores an implicit label [class]; NaN without either."""
    positives, implicit = histograms.positives, histograms.implicit
    below = np.cumsum(implicit, axis=1) - implicit / 2  # a tie, here: one bin, counts half
    n_pairs = positives.sum(axis=1) * implicit.sum(axis=1)
    n_won = (positives * below).sum(axis=1)
    return np.where(n_pairs > 0, n_won / np.maximum(n_pairs, 1), np.nan)


def _constant_classes(scores: ScoreMatrix) -> NDArray[np.bool_]:
    """Tell which classes [class] have the same score for all clips."""
    sample = scores.sample(_sample_rows(scores))
    is_constant = np.asarray((sample == sample[:1]).all(axis=0))
    if not is_constant.any():
        return is_constant

    def is_same(_: slice, chunks: Iterator[Chunk]) -> list[NDArray[np.bool_]]:
        return [(values == sample[0]).all(axis=0) for _, values in chunks]

    return np.asarray(np.all([is_constant, *itertools.chain(*scores.map(is_same))], axis=0))


def _sample_rows(scores: ScoreMatrix) -> NDArray[np.int64]:
    n_rows = min(SAMPLE_CLIPS, scores.n_clips)
    return np.linspace(0, scores.n_clips, n_rows, endpoint=False, dtype=np.int64)


def _class_warnings(
    labels: LabelSet, scores: ScoreMatrix, is_constant: NDArray[np.bool_]
) -> list[str]:
    kinds = {
        "all scores are equal, so that nothing can be flagged": is_constant,
        "there are no scores (NaN throughout)": find_unscored(scores),
        "no label is implicit, so that none can be missing": labels.n_implicit == 0,
        "there is no explicit positive": labels.n_positives == 0,
    }
    names = np.array(labels.class_ids, object)
    return [
        f"in {int(chosen.sum()):,} of {labels.n_classes:,} classes {what}: "
        f"{first_few(names[chosen].tolist())}"
        for what, chosen in kinds.items()
        if chosen.any()
    ]


def _implied_warnings(implied: Implied | None, is_filled: bool) -> list[str]:
    if implied is None:
        return []
    warnings = []
    if implied.n_contradictions:
        warnings.append(
            f"{implied.n_contradictions:,} labels contradict the class tree: a class is marked "
            "absent though a class below it is present (implied.csv)"
        )
    if implied.n_certain and not is_filled:
        warnings.append(
            f"{implied.n_certain:,} implicit labels are certain, because a class below them is "
            "present (implied.csv); the option to fill ancestors takes them as positives"
        )
    return warnings


def _implied_told(implied: Implied | None, is_filled: bool) -> str:
    if implied is None:
        return ""
    done = "taken as positives" if is_filled else "left as they are"
    return (
        f"The class tree makes {implied.n_certain:,} implicit labels certain ({done}) and "
        f"contradicts {implied.n_contradictions:,} labels."
    )


def _data_told(inputs: Inputs) -> str:
    labels = inputs.labels
    how = "as detected" if inputs.is_detected else "as given"
    return (
        f"{labels.n_clips:,} clips, {labels.n_classes:,} classes, "
        f"{int(labels.n_positives.sum()):,} explicit positives, "
        f"{int(labels.n_negatives.sum()):,} explicit negatives; "
        f"the scores are {inputs.scale} ({how})."
    )


def _policy_told(policy: str, options: Mapping[str, Any]) -> str:
    if policy == "percentile":
        percent = options.get("discard_percent", 1.0)
        return f"the highest-scored {percent:g} % of each class's implicit labels"
    told = ", ".join(f"{name} {value}" for name, value in options.items())
    return f"policy {policy.replace('_', ' ')}{', ' if told else ''}{told}"


def _with_names(table: pl.DataFrame, ontology: Ontology) -> pl.DataFrame:
    """Insert the classes' names after their identifiers."""
    names = {class_id: ontology.name(class_id) for class_id in ontology.class_ids}
    name = pl.col("class_id").replace_strict(names, return_dtype=pl.String).alias("name")
    return table.select("clip_id", "class_id", name, pl.exclude("clip_id", "class_id"))


def write_findings(folder: Path, findings: Findings, provenance: Mapping[str, Any]) -> None:
    """Write tables, page and, as their seal, ``meta.json``."""
    write_table(folder / "thresholds.parquet", findings.thresholds)
    for name in ("flags", "classes"):
        write_table(folder / f"{name}.parquet", getattr(findings, name))
        write_table(folder / f"{name}.csv", getattr(findings, name))
    write_table(folder / "wrong_positives.csv", findings.wrong_positives)
    if findings.implied is not None:
        write_table(folder / "implied.csv", findings.implied)
    facts = {name: str(value) for name, value in provenance.items() if name != "format"}
    write_text(folder / "index.html", page(findings, facts))
    write_json(folder / "meta.json", {**provenance, "warnings": list(findings.warnings)})


def _provenance(files: InputFiles, inputs: Inputs, options: Mapping[str, Any]) -> dict[str, Any]:
    scores = inputs.scores
    sample = np.ascontiguousarray(scores.sample(_sample_rows(scores)))
    content = hashlib.sha256(repr(scores.array.shape).encode() + sample.tobytes())
    packages = ("earmark", "numpy", "scipy", "polars")
    versions = {name: metadata.version(name) for name in packages}
    return {
        "format": FORMAT,
        **{name: str(path) for name, path in asdict(files).items() if path is not None},
        "labels_digest": inputs.labels.digest,
        "sampled_scores_digest": content.hexdigest()[:16],
        "scores_are": inputs.scale,
        "options": dict(options),
        "versions": {"python": platform.python_version(), **versions},
    }


def _check_request(
    out: Path, policy: str, options: Mapping[str, Any], has_ontology: bool, fill_ancestors: bool
) -> None:
    """Refuse what cannot be done before any file is read."""
    if policy not in POLICIES:
        raise EarmarkError(f"there is no policy {policy!r}; the choices are {', '.join(POLICIES)}")
    if policy == "percentile" and options.keys() - {"discard_percent"}:
        odd = sorted(options.keys() - {"discard_percent"})[0]
        raise EarmarkError(f"policy 'percentile' has no option {odd!r}, only discard_percent")
    if not has_ontology and (fill_ancestors or options.get("gate")):
        raise EarmarkError("to fill ancestors, or for the gate, an ontology has to be given")
    if out.exists() and not _is_ours(out):
        raise EarmarkError(f"{out}: there is something in it that no scan wrote; give another name")


def _is_ours(out: Path) -> bool:
    if not out.is_dir():
        return False
    if not any(out.iterdir()):
        return True
    meta = out / "meta.json"
    found = read_json(meta) if meta.is_file() else None
    return isinstance(found, dict) and found.get("format") == FORMAT


@contextmanager
def _scratch_beside(out: Path) -> Iterator[Path]:
    """Yield a folder on the same disk as ``out``, and remove it afterwards."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        yield Path(folder)


def _put_in_place(folder: Path, out: Path) -> None:
    """Rename a finished folder; an earlier result makes way and then goes."""
    earlier = folder.with_name("earlier")
    if out.exists():
        out.rename(earlier)
    folder.rename(out)
    shutil.rmtree(earlier, ignore_errors=True)
