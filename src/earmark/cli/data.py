"""The verbs of a dataset: ``lint``, ``hide``, ``subset``, ``split``, ``features``, ``export`` and
``evaluate``.
"""

from __future__ import annotations

import json
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.options import (
    AsJson,
    ColumnOption,
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
    say,
    split_shares,
    tell,
    told_stale,
)
from earmark.errors import EarmarkError, quoted

if TYPE_CHECKING:
    from earmark.labels import Implied

N_IMPLIED_SHOWN = 20
"""Implied labels that ``lint`` prints; ``--json`` lists all."""

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
        for note in checked.notes:
            print(note)
        for finding in checked.findings:
            print(f"{'error' if finding.is_error else 'note'}: {finding.message}")
        n = len(checked.findings)
        print(f"{n} finding{'' if n == 1 else 's'} in {checked.path}")
        if checked.implied is not None:
            _print_implied(checked.implied)
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
    tell(as_json, next_command=following, wrote=out, hidden_labels=hidden.n_hidden)


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
    tell(
        as_json,
        next_command=after_import(taken.workspace),
        wrote=out,
        train_clips=taken.n_train,
        largest_deviation=str(taken.deviation),
    )


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
    by_split = {name: counts[name] for name in ("train", "tune", "eval")}
    tell(as_json, next_command=following, **by_split, **told_stale(dealt.stale, as_json))


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

    made = stages.make_features(work, engine=engine_for(work, recipe, workers, engine))
    tell(
        as_json,
        next_command=f"earmark score {quoted(work)}",
        wrote=made.store.folder,
        clips=made.n_clips,
        read=len(made.store.clip_ids),
        quarantined=made.n_quarantined,
        **_why_quarantined(work, as_json),
    )


def _why_quarantined(work: Path, as_json: bool) -> dict[str, Any]:
    """Print why clips have no frames; for programs, return it."""
    from earmark import stages
    from earmark.datasets import quarantine_told

    told = quarantine_told(stages.open_workspace(work))
    if as_json:
        return {"reasons": [line.strip() for line in told]}
    if told:
        print("Clips without frames:")
        for line in told:
            print(textwrap.fill(line, 80, subsequent_indent="    ", break_on_hyphens=False))
    return {}


@data_app.command()
def export(
    work: Work,
    out: Annotated[
        Path,
        typer.Argument(help="File to write (CSV or Parquet); for hf a folder.", metavar="FILE"),
    ],
    to: Annotated[
        str,
        typer.Option(help="labels (a table), hf (Hugging Face) or atlas (embedding viewers)."),
    ] = "labels",
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
    if one_of("--to", to, ("labels", "hf", "atlas")) == "labels":
        return _export_labels(work, out, discard_percent, labels, recipe, as_json)
    if discard_percent is not None:
        raise EarmarkError(f"--to {to} writes the flags of `earmark flag`; give the percent there")
    write = _export_hub if to == "hf" else _export_atlas
    return write(work, out, labels, as_json)


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
    facts: dict[str, Any] = {"wrote": out, "rows": exported.n_rows, **states, **clips}
    if as_json:
        facts["warnings"] = list(exported.warnings)
    tell(as_json, **facts)
    if not as_json:
        say(f"warning: {warning}" for warning in exported.warnings)
        print("Every explicit label of every split is in it; unscored clips have no flags.")


def _export_hub(work: Path, out: Path, labels: str | None, as_json: bool) -> None:
    """Write a folder for Hugging Face, and say what is in it."""
    from earmark import stages

    made, warnings = stages.export_hub(work, out, labels=labels)
    unread = [f"without sound: {reason}" for reason in made.unread]
    if not as_json:
        say(f"warning: {warning}" for warning in (*warnings, *unread[:3]))
    facts: dict[str, Any] = {"clips": made.n_clips, "with_sound": made.n_sounds}
    facts |= {"flags": made.n_flags, "wrote": made.folder}
    if as_json:
        facts["warnings"] = [*warnings, *unread]
    tell(as_json, **facts)
    if not as_json:
        print(f'read it in Python: datasets.load_dataset("{made.folder}")')


def _export_atlas(work: Path, out: Path, labels: str | None, as_json: bool) -> None:
    """Write a table for viewers of embeddings, and say how one opens it."""
    from earmark import stages

    if labels is not None:
        raise EarmarkError("--to atlas has the labels as given; leave --labels out")
    made = stages.export_atlas(work, out)
    facts: dict[str, Any] = {
        "flags": len(made.table),
        "of_flags": made.n_flags,
        "embedding": made.n_features,
    }
    tell(as_json, **facts, wrote=made.path)
    if as_json:
        return
    if made.n_features:
        axes = "--x projection_x --y projection_y"
        print(f"view: embedding-atlas {quoted(made.path)} {axes}")
    else:
        print("no embeddings here: `earmark score WORK --teacher yamnet` makes some")


@data_app.command()
def evaluate(
    labels: Annotated[Path, typer.Argument(help="Labels: Parquet or CSV rows.")],
    scores: Annotated[Path, typer.Argument(help="A folder of scores with its clips and classes.")],
    as_json: AsJson = False,
) -> None:
    """Measure d', lwlrap and average precision of a folder of scores against labels."""
    from earmark import stages

    result = stages.evaluate_scores(labels, scores)
    if as_json:
        known = {name: None if math.isnan(v) else v for name, v in result.overall.items()}
        print(json.dumps(known))
        return
    table = Table("metric", "value")
    for name, value in result.overall.items():
        table.add_row(name, "not known" if math.isnan(value) else f"{value:.4f}")
    Console().print(table)
    if any(map(math.isnan, result.overall.values())):
        print("What is not known had no class with both positives and negatives to measure.")


def _print_implied(implied: Implied) -> None:
    """Count and list what positives say of their ancestors; the list is cut, --json has it all."""
    print(
        f"{implied.n_implied:,} implicit labels are implied by a child that is present; "
        f"{implied.n_contradictions:,} ancestors are marked absent though a child is present"
    )
    for row in implied.table().sort("kind", descending=True).head(N_IMPLIED_SHOWN).to_dicts():
        print(f"{row['kind']}: clip {row['clip_id']}, {row['class_id']} by {row['child_id']}")
