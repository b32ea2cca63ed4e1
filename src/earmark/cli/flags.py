"""The verbs that find labels that are likely to be missing: ``scan`` and ``flag``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.options import (
    AsJson,
    ColumnOption,
    Details,
    EngineOption,
    LabelsOption,
    RecipeOption,
    SeparatorOption,
    Work,
    ZerosOption,
    chosen_engine,
    one_of,
    reading_of,
    tell,
)
from earmark.errors import EarmarkError, quoted

if TYPE_CHECKING:
    from earmark.flags import Findings
    from earmark.runs import Engine

flags_app = typer.Typer()

Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        help="How flags are chosen: budget, percentile, precision, count, positives_quantile, "
        "confident or global; budget, or the one whose option is given.",
    ),
]
DiscardPercent = Annotated[
    float | None, typer.Option(min=0, max=100, help="percentile: of each class; 1.")
]
Target = Annotated[float | None, typer.Option(help="precision: lowest chance; 0.5.")]
NFlags = Annotated[int | None, typer.Option(min=0, help="budget: flags in all; those expected.")]
Balance = Annotated[
    float | None, typer.Option(min=0, help="budget: how much small classes count; 0.")
]
Quantile = Annotated[str | None, typer.Option(help="positives_quantile: a share, or mean; mean.")]
Gate = Annotated[
    bool, typer.Option("--gate", help="positives_quantile: a parent or child is labelled.")
]
Probability = Annotated[float | None, typer.Option(help="global: lowest score; 0.6.")]

_NONE_FLAGGED = (
    "Not one label is flagged; ask for more with --discard-percent or --n-flags, or for a lower "
    "--target"
)


@flags_app.command()
def scan(
    labels: Annotated[Path, typer.Option(help="A table, AudioSet segments, states, or JSON.")],
    scores: Annotated[
        Path, typer.Option(help=".npy, .npz, Parquet, CSV, Zarr or a folder of shards.")
    ],
    classes: Annotated[Path | None, typer.Option(help="Classes in the order of scores.")] = None,
    clips: Annotated[Path | None, typer.Option(help="Clips in the order of scores.")] = None,
    ontology: Annotated[Path | None, typer.Option(help="ontology.json, or a table.")] = None,
    labels_key: Annotated[str | None, typer.Option(help="Array in a labels .npz.")] = None,
    scores_key: Annotated[str | None, typer.Option(help="Array in a scores .npz.")] = None,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    sounds: Annotated[
        Path | None,
        typer.Option(help="Folder of sound files called like the clips."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("scan"),
    scale: Annotated[str, typer.Option(help="auto, logits or probabilities.")] = "auto",
    policy: Policy = None,
    discard_percent: DiscardPercent = None,
    target: Target = None,
    n_flags: NFlags = None,
    balance: Balance = None,
    quantile: Quantile = None,
    gate: Gate = False,
    probability: Probability = None,
    fill_ancestors: Annotated[
        bool, typer.Option("--fill-ancestors", help="Take implied ancestors for positives.")
    ] = False,
    engine: EngineOption = "local",
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Find likely missing labels from labels and scores alone: no audio, no training."""
    from earmark import stages

    reading = reading_of(column, separator, zeros)
    result = stages.scan(
        labels,
        scores,
        out=out,
        classes=classes,
        clips=clips,
        ontology=ontology,
        scale=one_of("--scale", scale, ("auto", "logits", "probabilities")),
        policy=policy,
        fill_ancestors=fill_ancestors,
        labels_key=labels_key,
        scores_key=scores_key,
        sounds=sounds,
        columns=reading.columns,
        separator=reading.separator,
        zeros=reading.zeros,
        engine=_cluster(engine),
        **_given(discard_percent, target, n_flags, balance, quantile, gate, probability),
    )
    facts = _told(as_json, result.findings, result.notes)
    if not result.n_flags:
        raise _none_flagged(result.findings, f"; what is known is in {out / 'index.html'}")
    is_heard = sounds is not None and result.findings.knowledge.is_enough
    tell(
        as_json,
        next_command=f"open {quoted(out / 'index.html')} in a browser",
        then=f"earmark review {quoted(out)}" if is_heard else None,
        details=details,
        wrote=out,
        **facts,
    )


@flags_app.command()
def flag(
    work: Work,
    policy: Policy = None,
    discard_percent: DiscardPercent = None,
    target: Target = None,
    n_flags: NFlags = None,
    balance: Balance = None,
    quantile: Quantile = None,
    gate: Gate = False,
    probability: Probability = None,
    labels: LabelsOption = None,
    chances: Annotated[
        bool, typer.Option("--chances", help="Keep the chance of every train label, for students.")
    ] = False,
    recipe: RecipeOption = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Flag labels that are likely to be missing, and write the paper's 18 thresholds."""
    from earmark import stages

    flagged = stages.write_flags(
        work,
        recipe,
        policy=policy,
        labels=labels or "given",
        keep_chances=chances,
        engine=_cluster(engine),
        **_given(discard_percent, target, n_flags, balance, quantile, gate, probability),
    )
    facts = _told(as_json, flagged.findings)
    if not flagged.findings.n_flags and labels is None:  # corrected labels may leave none
        raise _none_flagged(flagged.findings, f" ({flagged.path})")
    is_known = flagged.findings.knowledge.is_enough
    export = f"earmark export {quoted(work)} labels.csv"
    following, then = f"earmark report {quoted(work)}", export if is_known else None
    if not flagged.findings.n_flags:
        following, then = export, None
    elif is_known and stages.open_workspace(work).has_sound():
        then = f"earmark review {quoted(work)}"
    tell(as_json, following, then=then, details=details, wrote=flagged.path, **facts)


def _given(
    discard_percent: float | None,
    target: float | None,
    n_flags: int | None,
    balance: float | None,
    quantile: str | None,
    gate: bool,
    probability: float | None,
) -> dict[str, Any]:
    """Return those options of policies that were given, under their own names."""
    options = {
        "discard_percent": discard_percent,
        "target": target,
        "n_flags": n_flags,
        "balance": balance,
        "quantile": _share_or_mean(quantile),
        "gate": gate or None,
        "probability": probability,
    }
    return {name: value for name, value in options.items() if value is not None}


def _told(as_json: bool, findings: Findings, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what was found and what is doubtful, to be printed, or for programs."""
    from earmark.report import findings_told

    warnings = findings.warnings
    if as_json:
        told = {"flags": findings.n_flags, "warnings": list(warnings)}
        return told | ({"notes": list(notes)} if notes else {})
    doubts = [f"warning: {warning}" for warning in warnings]
    first, *rest = findings_told(findings)
    if findings.knowledge.is_enough:  # what was found comes first, then how sure that is
        known, flagged, missing, *implied = rest
        first, rest = flagged, [missing, known, first, *implied]
    return {"told": [first], "more": [*rest, *doubts, *notes]}


def _none_flagged(findings: Findings, where: str) -> EarmarkError:
    """Say what is known, and how labels would be flagged all the same."""
    return EarmarkError(f"{findings.knowledge.told} {_NONE_FLAGGED}{where}")


def _cluster(engine: str) -> Engine | None:
    """Return the cluster asked for; on this machine one process passes over the scores fastest."""
    return None if engine == "local" else chosen_engine(None, engine)


def _share_or_mean(quantile: str | None) -> float | str | None:
    if quantile is None or quantile == "mean":
        return quantile
    try:
        return float(quantile)
    except ValueError:
        raise EarmarkError(
            f"--quantile is a share such as 0.25, or mean; got {quantile!r}"
        ) from None
