"""The verbs of a dataset: ``features``, ``export`` and ``evaluate``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, offers, one_of
from earmark.cli.printing import table_lines, tell
from earmark.errors import quoted

if TYPE_CHECKING:
    from earmark.datasets import HubExport
    from earmark.pipeline import Exported, ExportedModel


@offers("pipeline.make_features")
def features(call: Call, as_json: AsJson = False) -> None:
    """Compute log-mel frames of all clips; list files that cannot be read."""
    from earmark import pipeline
    from earmark.datasets import quarantine_told

    made, work = call(), call["work"]
    reasons = quarantine_told(pipeline.open_workspace(work))
    tell(
        as_json,
        next_command=f"earmark score {quoted(work)}",
        more=["Clips without frames:", *reasons] if reasons else [],
        clips=made.n_clips,
        read=len(made.store.clip_ids),
        quarantined=made.n_quarantined,
        wrote=made.store.folder,
        reasons=[line.strip() for line in reasons] if as_json else None,
    )


@offers("pipeline.export_labels", "pipeline.export_hub", "pipeline.export_model")
def export(
    call: Call,
    to: Annotated[
        str,
        typer.Option(help="labels (a table), hf (Hugging Face), or onnx (a trained network)."),
    ] = "labels",
    as_json: AsJson = False,
) -> None:
    """Export labels and flags, or a trained network, for other programs.

    All explicit labels, and flagged ones to ignore.
    """
    name = one_of("--to", to, ("labels", "hf", "onnx"))
    out = call["path"]
    if name == "onnx":
        _tell_model(call("export_model", because="--to onnx"), out, as_json)
    elif name == "hf":
        made, warnings = call("export_hub", because="--to hf")
        _tell_hub(made, warnings, as_json)
    else:
        _tell_labels(call("export_labels", because="--to labels"), out, as_json)


def _tell_model(made: ExportedModel, out: Path, as_json: bool) -> None:
    difference = f"{made.largest_difference:.1e}"
    if as_json:
        tell(True, wrote=out, classes=made.n_classes, largest_difference=difference)
    else:
        told = [f"{made.n_classes:,} classes; it says what torch says, to {difference}."]
        tell(False, told=told, wrote=out)


def _tell_labels(exported: Exported, out: Path, as_json: bool) -> None:
    states = {name: exported.n_of(name) for name in ("present", "not_present", "ignored")}
    clips = {"clips": exported.n_clips, "unscored_clips": exported.n_unscored_clips}
    facts: dict[str, Any] = {"rows": exported.n_rows, **states, **clips, "wrote": out}
    if as_json:
        facts["warnings"] = list(exported.warnings)
    told = "Every explicit label of every split is in it; unscored clips have no flags."
    doubts = [f"warning: {warning}" for warning in exported.warnings]
    tell(as_json, told=[told], more=doubts, **facts)


def _tell_hub(made: HubExport, warnings: Sequence[str], as_json: bool) -> None:
    unread = [f"without sound: {reason}" for reason in made.unread]
    facts: dict[str, Any] = {"clips": made.n_clips, "with_sound": made.n_sounds}
    facts |= {"flags": made.n_flags, "wrote": made.folder}
    if as_json:
        facts["warnings"] = [*warnings, *unread]
    else:
        facts["read it in Python"] = f'datasets.load_dataset("{made.folder}")'
    doubts = [f"warning: {warning}" for warning in (*warnings, *unread)]
    tell(as_json, more=doubts, **facts)


@offers("pipeline.evaluate_scores")
def evaluate(call: Call, as_json: AsJson = False) -> None:
    """Compute d', lwlrap and average precision of scores."""
    from earmark.report import METRIC_NAMES

    result = call()
    if as_json:
        known = {name: None if math.isnan(v) else v for name, v in result.overall.items()}
        print(json.dumps(known))
        return
    shown = [name for name in METRIC_NAMES if name in result.overall]
    rows = [
        [METRIC_NAMES.get(name, name), "-" if math.isnan(value) else f"{value:.3f}"]
        for name, value in ((name, result.overall[name]) for name in shown)
    ]
    unknown = "A dash: no class has both positives and negatives to measure by."
    has_unknown = any(row[1] == "-" for row in rows)
    table = table_lines(["metric", "value"], rows)
    tell(False, table=table, more=[unknown] if has_unknown else [])
