"""The verbs of a dataset: ``lint``, ``hide``, ``subset``, ``split``, ``features``, ``export`` and
``evaluate``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from earmark.cli.options import (
    AsJson,
    ColumnOption,
    Details,
    EngineOption,
    RecipeOption,
    SeparatorOption,
    Work,
    Workers,
    ZerosOption,
    after_import,
    engine_for,
    one_of,
    reading_of,
    split_shares,
    stale_facts,
    stale_told,
    table_lines,
    tell,
)
from earmark.errors import EarmarkError, counted, quoted

if TYPE_CHECKING:
    from earmark.labels import Implied

data_app = typer.Typer()


@data_app.command()
def lint(
    target: Annotated[
        Path,
        typer.Argument(help="A workspace, or a file of labels.", metavar="TARGET"),
    ],
    clips: Annotated[
        Path | None, typer.Option(help="With a label file: the list, or table, of all clips.")
    ] = None,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Check labels: unknown names, repeated and contradictory rows, empty classes."""
    from earmark import stages

    checked = stages.check_labels(target, clips, reading_of(column, separator, zeros))
    if as_json:
        told: dict[str, Any] = {"findings": [vars(finding) for finding in checked.findings]}
        told["notes"] = list(checked.notes)
        if checked.implied is not None:
            told["implied"] = checked.implied.table().to_dicts()
        print(json.dumps(told))
    else:
        errors_first = sorted(checked.findings, key=lambda finding: not finding.is_error)
        found = [f"{'error' if one.is_error else 'note'}: {one.message}" for one in errors_first]
        implied = [] if checked.implied is None else _implied_told(checked.implied)
        head = f"{counted(len(found), 'finding')} in {checked.path}"
        tell(False, told=[head], more=[*found, *implied, *checked.notes], details=details)
    if checked.has_errors:
        raise typer.Exit(1)


@data_app.command()
def hide(
    work: Work,
    out: Annotated[Path, typer.Option(help="The workspace to write.")],
    lowest_recall: Annotated[float, typer.Option(min=0, max=1)] = 0.3,
    highest_recall: Annotated[float, typer.Option(min=0, max=1)] = 0.95,
    assume_complete: Annotated[
        bool, typer.Option("--assume-complete", help="Take implicit labels for absent ones.")
    ] = False,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Hide labels of a fully labelled workspace as nomination does, and keep the truth."""
    from earmark import stages
    from earmark.runs import HidingParams

    params = HidingParams(recall_range=(lowest_recall, highest_recall), seed=seed)
    hidden = stages.hide_labels(work, out, params, assume_complete=assume_complete)
    following = after_import(hidden.workspace)
    tell(as_json, next_command=following, hidden_labels=hidden.n_hidden, wrote=out)


@data_app.command()
def subset(
    work: Work,
    out: Annotated[Path, typer.Option(help="The workspace to write.")],
    share: Annotated[float, typer.Option(min=0.0001, max=1, help="Of the train split.")] = 0.2,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Make tr_small from tr_large: nested, whole recordings, class distribution kept."""
    from earmark import stages

    taken = stages.take_subset(work, out, share, seed)
    following = after_import(taken.workspace)
    if as_json:
        facts = {"train_clips": taken.n_train, "largest_deviation": str(taken.deviation)}
        tell(True, following, wrote=out, **cast(Any, facts))
        return
    told = f"{counted(taken.n_train, 'train clip')}; classes are as common as before"
    off = taken.deviation
    exact = ", as far as can be told" if off.class_id is None else f", within {off.relative:.0%}"
    tell(False, following, told=[f"{told}{exact}."], wrote=out)


@data_app.command()
def split(
    work: Work,
    shares: Annotated[
        str, typer.Option(help="Of train, tune and eval, with commas between.")
    ] = "80,10,10",
    seed: int = 0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Deal anew where there are splits already.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Deal the clips out to train, tune and eval, for those who train students."""
    from earmark import stages

    dealt = stages.split_dataset(work, split_shares(shares), seed, replace=replace)
    counts = dict(dealt.workspace.clips["split"].value_counts().iter_rows())
    following = after_import(dealt.workspace)
    facts: dict[str, Any] = {name: counts[name] for name in ("train", "tune", "eval")}
    if as_json:
        facts["stale"] = stale_facts(dealt.stale)
    tell(as_json, following, more=stale_told(dealt.stale), **facts)


@data_app.command()
def features(
    work: Work,
    recipe: RecipeOption = None,
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Decode the audio and store log-mel frames; what cannot be read is quarantined."""
    from earmark import stages
    from earmark.datasets import quarantine_told

    made = stages.make_features(work, engine=engine_for(work, recipe, workers, engine))
    reasons = quarantine_told(stages.open_workspace(work))
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


@data_app.command()
def export(
    work: Work,
    out: Annotated[
        Path,
        typer.Argument(help="File to write (CSV or Parquet); for hf a folder.", metavar="FILE"),
    ],
    to: Annotated[str, typer.Option(help="labels (a table) or hf (Hugging Face).")] = "labels",
    discard_percent: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Operating point; the flags that were written last."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="A corrected label set; that of the flags written last, else as given."),
    ] = None,
    recipe: RecipeOption = None,
    as_json: AsJson = False,
) -> None:
    """Write labels and flags for other programs: all explicit labels, flagged ones to ignore."""
    if one_of("--to", to, ("labels", "hf")) == "labels":
        return _export_labels(work, out, discard_percent, labels, recipe, as_json)
    if discard_percent is not None:
        raise EarmarkError(f"--to {to} writes the flags of `earmark flag`; give the percent there")
    return _export_hub(work, out, labels, as_json)


def _export_labels(
    work: Path,
    out: Path,
    discard_percent: float | None,
    labels: str | None,
    recipe: str | None,
    as_json: bool,
) -> None:
    from earmark import stages

    exported = stages.export_labels(
        work, out, recipe, discard_percent=discard_percent, labels=labels
    )
    states = {name: exported.n_of(name) for name in ("present", "not_present", "ignored")}
    clips = {"clips": exported.n_clips, "unscored_clips": exported.n_unscored_clips}
    facts: dict[str, Any] = {"rows": exported.n_rows, **states, **clips, "wrote": out}
    if as_json:
        facts["warnings"] = list(exported.warnings)
    told = "Every explicit label of every split is in it; unscored clips have no flags."
    doubts = [f"warning: {warning}" for warning in exported.warnings]
    tell(as_json, told=[told], more=doubts, **facts)


def _export_hub(work: Path, out: Path, labels: str | None, as_json: bool) -> None:
    """Write a folder for Hugging Face, and say what is in it."""
    from earmark import stages

    made, warnings = stages.export_hub(work, out, labels=labels)
    unread = [f"without sound: {reason}" for reason in made.unread]
    facts: dict[str, Any] = {"clips": made.n_clips, "with_sound": made.n_sounds}
    facts |= {"flags": made.n_flags, "wrote": made.folder}
    if as_json:
        facts["warnings"] = [*warnings, *unread]
    else:
        facts["read it in Python"] = f'datasets.load_dataset("{made.folder}")'
    doubts = [f"warning: {warning}" for warning in (*warnings, *unread)]
    tell(as_json, more=doubts, **facts)


@data_app.command()
def evaluate(
    labels: Annotated[Path, typer.Argument(help="Labels: Parquet or CSV rows.")],
    scores: Annotated[Path, typer.Argument(help="A folder of scores with its clips and classes.")],
    as_json: AsJson = False,
) -> None:
    """Measure d', lwlrap and average precision of a folder of scores against labels."""
    from earmark import stages
    from earmark.report import METRIC_NAMES

    result = stages.evaluate_scores(labels, scores)
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


def _implied_told(implied: Implied) -> list[str]:
    """Count and list what positives say of their ancestors."""
    rows = implied.table().sort("kind", descending=True).to_dicts()
    return [
        f"{implied.n_implied:,} implicit labels are implied by a child that is present; "
        f"{implied.n_contradictions:,} ancestors are marked absent though a child is present",
        *(f"{row['kind']}: clip {row['clip_id']}, {row['class_id']} by {row['child_id']}"
          for row in rows),
    ]  # fmt: skip
