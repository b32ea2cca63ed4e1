"""The methods paragraph of a report: what was done, with versions, seeds and digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from earmark.report.results import BASIS_NAMES, bases_of, count_seeds


def methods_text(
    results: pl.DataFrame | None,
    provenance: Mapping[str, str],
    choices: pl.DataFrame | None = None,
    rounds: pl.DataFrame | None = None,
) -> str:
    """Return a paragraph to paste into a paper.

    It says how students were trained, chosen and judged, which controls were run, how strategies
    were compared where ``choices`` tells of it, which students became teachers where ``rounds``
    does, and from what (``provenance``).
    """
    ran = [table for table in (results, choices, rounds) if table is not None]
    told = [] if results is None else [_trained(results)]
    told += [_compared(choices)] if choices is not None else []
    told += [_taught(rounds)] if rounds is not None else []
    told += [_judged(ran), _controls(ran)]
    if provenance:
        facts = "; ".join(f"{name}: {value}" for name, value in provenance.items())
        told.append(f"Provenance: {facts}.")
    return " ".join(filter(None, told))


def _trained(results: pl.DataFrame) -> str:
    points = results.filter(kind="mask")["discard_percent"].unique().sort()
    n_seeds = count_seeds(results)
    times = "once" if n_seeds == 1 else f"{n_seeds} times (seeds)"
    return (
        f"{_students(results)}, each {times}, ignoring the top-scored implicit labels of every "
        f"class at {len(points)} operating points from {points[0]:g} to {points[-1]:g} percent "
        "(Fonseca et al. 2020)."
    )


def _compared(choices: pl.DataFrame) -> str:
    names = {
        role: ", ".join(choices.filter(role=role)["strategy"].unique(maintain_order=True))
        for role in ("tested", "control", "oracle")
    }
    told = [
        f"{_students(choices)} by several strategies ({_seeds(choices)}): {names['tested']}; the "
        "point of each is its best on tune, which may be to do nothing; p-values are "
        "Holm-corrected over strategies."
    ]
    if names["control"]:
        told.append(
            f"The control ({names['control']}) ignores as many labels of each class as the mask, "
            "chosen at random, and is not tested."
        )
    if names["oracle"]:
        told.append(f"Oracles ({names['oracle']}) know the truth, and are not tested either.")
    return " ".join(told)


def _taught(rounds: pl.DataFrame) -> str:
    row = rounds.row(0, named=True)
    n_rounds = rounds["round"].n_unique() - 1
    return (
        f"{_students(rounds)} with {row['strategy']} at {row['point']:g} ({_seeds(rounds)}) and "
        f"became the next teacher, cross-fitted, {n_rounds} time{'s' if n_rounds > 1 else ''}."
    )


def _students(ran: pl.DataFrame) -> str:
    students, train_sets = (
        ", ".join(ran[name].unique(maintain_order=True)) for name in ("student", "train_set")
    )
    return f"Students ({students}) were trained on {train_sets}"


def _seeds(ran: pl.DataFrame) -> str:
    n_seeds = count_seeds(ran)
    return f"{n_seeds} seed{'s' if n_seeds > 1 else ''}: {ran['seeds'][0]}"


def _judged(ran: Sequence[pl.DataFrame]) -> str:
    seeds = " and over seeds" if max(map(count_seeds, ran)) > 1 else ""
    there = {labels for table in ran for labels in bases_of(table)}
    bases = "; ".join(name for labels, name in BASIS_NAMES.items() if labels in there)
    return (
        "Students of one seed share their initial weights and batches. Points were chosen on the "
        f"tune split and are reported on the eval split, by {bases}. Overall lwlrap, d′ and mAP "
        "are equal-weight means over classes. Intervals are 90 % bootstrap intervals over "
        f"clips{seeds}, centred on the value; differences are paired with the baseline of the "
        "same student, train set and seed."
    )


def _controls(ran: Sequence[pl.DataFrame]) -> str:
    told = []
    if any("random" in table.get_column("kind", default=[]) for table in ran):
        told.append("The random control ignores as many labels of each class chosen at random.")
    if any("lwlrap_calibrated" in table["metric"] for table in ran):
        told.append(
            "The calibration control subtracts τ log(prior) from every logit, with the τ that is "
            "best on tune for each student, the baseline included."
        )
    return " ".join(told)
