"""The verbs that find labels that are likely to be missing: ``scan`` and ``flag``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.options import (
    AsJson,
    ColumnOption,
    EngineOption,
    LabelsOption,
    RecipeOption,
    SeparatorOption,
    Work,
    ZerosOption,
    chosen_engine,
    one_of,
    reading_of,
    say,
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

N_WARNINGS_SHOWN = 3
"""Warnings that ``scan`` and ``flag`` print; the page and ``--json`` have all."""

_NONE_FLAGGED = (
    "not one label is flagged; ask for more with --discard-percent or --n-flags, or for a lower "
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
    facts = _told(as_json, result.findings, "on the page", result.notes)
    if not result.n_flags:
        raise EarmarkError(f"{_NONE_FLAGGED}; what is known of the classes is in {out}/index.html")
    tell(
        as_json, next_command=f"open {quoted(out / 'index.html')} in a browser", wrote=out, **facts
    )
    if sounds is not None and not as_json and result.findings.knowledge.is_enough:
        print(f"then: earmark review {quoted(out)}")


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
    facts = _told(as_json, flagged.findings, "on the page that comes next")
    if flagged.flags.is_empty() and labels is None:  # corrected labels may leave none
        raise EarmarkError(f"{flagged.path}: {_NONE_FLAGGED}")
    if flagged.flags.is_empty():
        following = f"earmark export {quoted(work)} labels.csv"
        tell(as_json, next_command=following, wrote=flagged.path, **facts)
        return
    tell(as_json, next_command=f"earmark report {quoted(work)}", wrote=flagged.path, **facts)
    if not as_json and flagged.findings.knowledge.is_enough:
        has_sound = stages.open_workspace(work).has_sound()
        heard = f"earmark review {quoted(work)}, " if has_sound else ""
        print(f"then: {heard}earmark export {quoted(work)} labels.csv")


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


def _told(
    as_json: bool, findings: Findings, where: str, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Print what was found and what is doubtful, or return it for programs."""
    from earmark.report import findings_told

    warnings = findings.warnings
    if as_json:
        told = {"flags": len(findings.flags), "warnings": list(warnings)}
        return told | ({"notes": list(notes)} if notes else {})
    data, *found = findings_told(findings)
    say([data, *notes, *found])
    say(f"warning: {warning}" for warning in warnings[:N_WARNINGS_SHOWN])
    if len(warnings) > N_WARNINGS_SHOWN:
        say([f"{len(warnings) - N_WARNINGS_SHOWN} more warnings: {where}"])
    return {}


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
