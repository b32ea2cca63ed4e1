"""From labels and scores to a list of suspects, in one step and without any training.

:func:`scan` reads labels and scores in whatever format their owner has, flags the labels that are
likely to be missing, says how many of them are right, and writes tables and a page that a person
can read. The output folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import (
    Engine,
    Progress,
    shown,
)
from earmark.datasets import SCANNED_FOLDER, Workspace
from earmark.errors import EarmarkError, check_libraries, first_few, quoted, short_repr
from earmark.flags import Findings, check_policy, find, policy_with, spread_rows
from earmark.labels import GUESSED, LabelSet, Reading, Zeros
from earmark.options import Option
from earmark.pipeline.policies import PolicyName, PolicyOptions
from earmark.pipeline.scanning.inputs import InputFiles, Inputs, given_inputs, read_inputs
from earmark.report import HeardFlag, findings_told, scan_html
from earmark.scores import Origin
from earmark.storage import (
    break_seal,
    check_replaceable,
    foreign_files,
    put_in_place,
    scratch_beside,
    seal,
    write_table,
    write_table_blocks,
    write_text,
    writing_in,
)

if TYPE_CHECKING:
    from earmark.pipeline.opening import Scored
    from earmark.review import Gains

FORMAT = "earmark scan 1"
"""What ``meta.json`` of an output folder calls itself."""


@dataclass(frozen=True)
class ScanResult:
    """What a scan found, and the folder that holds it; None where none was asked for."""

    out: Path | None
    findings: Findings
    seconds: float
    notes: tuple[str, ...] = ()
    """How the files were read, and what was paired by position."""

    __repr__ = short_repr

    @property
    def flags(self) -> pl.DataFrame:
        """The flags, the likeliest first."""
        return self.findings.flags

    @property
    def n_flags(self) -> int:
        """Number of labels suspected to be missing."""
        return self.findings.n_flags

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result."""
        return self.findings.warnings

    def lines(self) -> list[str]:
        """Say in a few lines of plain text what was found."""
        warnings = (f"warning: {each}" for each in self.warnings)
        return [*findings_told(self.findings), *self.notes, *warnings]

    def _repr_html_(self) -> str:
        from earmark.pipeline.hearing import shown_flags  # a notebook's, not the command line's

        return shown_flags(self.findings, _with_sounds(self.out))


def scan(
    labels: Annotated[
        str | Path | LabelSet,
        Option("A table, AudioSet segments, states, or JSON.", "--labels"),
    ],
    scores: Annotated[
        str | Path | NDArray[np.floating],
        Option(".npy, .npz, Parquet or CSV.", "--scores"),
    ],
    *,
    out: Annotated[str | Path | None, Option("Folder to write.", default=Path("scan"))] = None,
    classes: Annotated[str | Path | None, Option("Classes in the order of scores.")] = None,
    clips: Annotated[str | Path | None, Option("Clips in the order of scores.")] = None,
    ontology: Annotated[str | Path | None, Option("ontology.json, or a table.")] = None,
    scale: Annotated[
        Literal["auto", "logits", "probabilities"], Option("auto, logits or probabilities.")
    ] = "auto",
    policy: PolicyName = None,
    fill_ancestors: Annotated[bool, Option("Take implied ancestors for positives.")] = False,
    labels_key: Annotated[str | None, Option("Array in a labels .npz.")] = None,
    scores_key: Annotated[str | None, Option("Array in a scores .npz.")] = None,
    sounds: Annotated[
        str | Path | None, Option("Folder of sound files called like the clips.")
    ] = None,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    n_wrong_per_class: int = 20,
    engine: Engine | None = None,
    progress: Progress | None = None,
    **options: Unpack[PolicyOptions],
) -> ScanResult:
    """Find the labels that are likely to be missing, and write what was found to ``out``.

    Labels and scores are files in any format that their owner has; or a :class:`LabelSet` and an
    array [clip, class] (or an ``.npy`` file) in its order. Without ``out`` nothing is written.

    ``classes`` and ``clips`` list them in the order of the scores, where the scores do not name
    them. ``columns``, ``separator`` and ``zeros`` say how a table of labels is to be read where
    guesses would be wrong (see :class:`earmark.labels.label_tables.Reading`).

    ``ontology`` (AudioSet's ``ontology.json``, or a table with class_id and parents) tells which
    implicit labels are certain; ``fill_ancestors`` takes those as positives. ``options`` are the
    policy's (see :func:`earmark.flags.flag.flag`), and where they alone are given it is the one
    that has them; without any the likeliest labels are flagged, or, where the scores know too
    little for chances, the paper's per cent. ``gate=True`` stands for the given ontology.
    In a folder ``out`` that an earlier scan wrote, its files are replaced, unless they were edited;
    others stay. Any other folder that holds files is refused.

    With ``sounds``, a folder in which files are called like the clips, the page plays its flags,
    and ``out`` holds a workspace (labels, scores, flags) that the stages of a review open.

    With an ``engine`` the passes over the scores are its tasks, a shard each.
    """
    start = time.monotonic()
    out = None if out is None else Path(out)
    policy = policy_with(options) if policy is None else policy
    _check_request(policy, options, ontology is not None, fill_ancestors)
    _check_sounds(out, sounds)
    tree = None if ontology is None else Path(ontology)
    with shown(progress) as display, _scratch_beside(out) as scratch:
        if isinstance(labels, LabelSet):
            _refuse_names(classes, clips, labels_key, scores_key, columns, separator)
            inputs = given_inputs(labels, scores, tree, scale, scratch, display)
        else:
            reading = Reading(columns or {}, separator, zeros)
            files = _files(labels, scores, classes, clips, tree, labels_key, scores_key, reading)
            inputs = read_inputs(files, scale, scratch, display)
        findings = find(
            inputs.labels,
            inputs.scores,
            inputs.ontology,
            policy,
            options,
            fill_ancestors,
            n_wrong_per_class,
            display,
            scores_told=inputs.scores_told,
            doubts=inputs.warnings,
            engine=engine,
        )
        chosen = {"scale": scale, "policy": policy, "fill_ancestors": fill_ancestors, **options}
        if out is not None:
            origin = {} if isinstance(labels, LabelSet) else _named_files(files)
            told = _provenance(origin, inputs, chosen)
            found = scratch / "found"
            if sounds is None:
                write_findings(found, findings, told)
            else:
                # Workspaces, queues and sounds take longer to load than a small scan.
                from earmark.pipeline.scanning.sounding import make_workspace

                scored_by = Origin.at("file", scores if isinstance(scores, str | Path) else None)
                sounding = make_workspace(found, inputs, scored_by, Path(sounds), display)
                findings = replace(findings, warnings=(*findings.warnings, *sounding.notes))
                told["sounds"] = str(sounds)
                write_findings(
                    found, findings, told, *sounding.heard(findings, policy, options, out)
                )
            with writing_in(out / SCANNED_FOLDER, "scan"):
                _refuse_used(out)  # raters may have listened meanwhile
                put_in_place(found, out, "scan")
    return ScanResult(out, findings, time.monotonic() - start, inputs.notes)


def _check_sounds(out: Path | None, sounds: str | Path | None) -> None:
    """Refuse sounds that no page could play, and a folder that holds raters' answers."""
    if sounds is not None:
        if out is None:
            raise EarmarkError("sounds go onto the page of a scan: give a folder `out`, too")
        if not Path(sounds).exists():
            raise EarmarkError(
                f"{sounds}: no such folder; sounds are a folder of files that are called like the "
                "clips"
            )
        check_libraries("playing flags on a page", "soundfile", "PIL")
    if out is not None:
        _refuse_used(out)


def _refuse_used(out: Path) -> None:
    """Refuse a folder with anything that no scan wrote, or that was made of what one wrote."""
    answers = Workspace(out / SCANNED_FOLDER).judgements_path
    advice = f"another folder, or new scores to this one: earmark score {quoted(out)} --from FILE"
    if answers.exists():
        raise EarmarkError(
            f"{answers}: what raters answered there would be lost; give the scan {advice}"
        )
    check_replaceable(out, "scan")
    if others := foreign_files(out, SCANNED_FOLDER):
        raise EarmarkError(
            f"{out}: {first_few(others)} was made from the earlier scan, and would not fit the new "
            f"one; give the scan {advice}"
        )


def _files(
    labels: str | Path,
    scores: str | Path | NDArray[np.floating],
    classes: str | Path | None,
    clips: str | Path | None,
    ontology: Path | None,
    labels_key: str | None,
    scores_key: str | None,
    reading: Reading,
) -> InputFiles:
    if not isinstance(scores, str | Path):
        raise EarmarkError(
            "scores in memory go with labels in memory: read the labels by LabelSet.read, in the "
            "order of the scores, or write the scores to a file"
        )
    return InputFiles(
        Path(labels),
        Path(scores),
        None if classes is None else Path(classes),
        None if clips is None else Path(clips),
        ontology,
        labels_key,
        scores_key,
        reading,
    )


def _refuse_names(*given: object) -> None:
    if any(one is not None for one in given):
        raise EarmarkError(
            "a LabelSet names its clips and classes itself: leave out classes, clips, the keys, "
            "columns and separator"
        )


def _named_files(files: InputFiles) -> dict[str, str]:
    given = vars(files).items()
    return {name: str(value) for name, value in given if value not in (None, GUESSED)}


def write_findings(
    folder: Path,
    findings: Findings,
    provenance: Mapping[str, Any],
    heard: Sequence[HeardFlag] | None = None,
    next_commands: Mapping[str, str] | None = None,
    sample_rate_hz: int = 16_000,
    gains: Gains | None = None,
) -> None:
    """Write tables, page and, as their seal, ``meta.json``.

    The page lists ``heard``, flags with their sounds at a rate, in place of bare names,
    and says what listening gained.
    """
    break_seal(folder)
    write_table(folder / "thresholds.parquet", findings.thresholds)
    for kind in ("parquet", "csv"):
        blocks = findings.flag_table.blocks()
        write_table_blocks(folder / f"flags.{kind}", blocks, for_people=True)
        write_table(folder / f"classes.{kind}", findings.classes, for_people=True)
    write_table(folder / "wrong_positives.csv", findings.wrong_positives, for_people=True)
    if findings.implied is not None:
        write_table(folder / "implied.csv", findings.implied, for_people=True)
    facts = {name: str(value) for name, value in provenance.items() if name != "format"}
    page = scan_html(findings, facts, heard, next_commands, sample_rate_hz, gains)
    write_text(folder / "index.html", page)
    seal(folder, {**provenance, "warnings": list(findings.warnings)})


def _provenance(
    origin: Mapping[str, str], inputs: Inputs, options: Mapping[str, Any]
) -> dict[str, Any]:
    scores = inputs.scores
    sample = np.ascontiguousarray(scores.sample(spread_rows(scores)))
    content = hashlib.sha256(repr(scores.array.shape).encode() + sample.tobytes())
    packages = ("earmark", "numpy", "scipy", "polars")
    versions = {name: metadata.version(name) for name in packages}
    return {
        "format": FORMAT,
        **origin,
        "labels_digest": inputs.labels.digest,
        "sampled_scores_digest": content.hexdigest()[:16],
        "scores_are": inputs.scale,
        **({"read_as": " ".join(inputs.notes)} if inputs.notes else {}),
        "options": dict(options),
        "versions": {"python": platform.python_version(), **versions},
    }


def _with_sounds(out: Path | None) -> Scored | None:
    """Return the workspace of a scan that was given sounds, as long as it is there."""
    if out is not None and (out / SCANNED_FOLDER).is_dir():
        from earmark.pipeline.opening import open_scored

        with suppress(EarmarkError):
            return open_scored(out)
    return None


def _check_request(
    policy: str | None,
    options: Mapping[str, Any],
    has_ontology: bool,
    fill_ancestors: bool,
) -> None:
    """Refuse what cannot be done before any file is read."""
    check_policy(policy, options)
    if not has_ontology and (fill_ancestors or options.get("gate")):
        raise EarmarkError("to fill ancestors, or for the gate, an ontology has to be given")


@contextmanager
def _scratch_beside(out: Path | None) -> Iterator[Path]:
    """Yield a folder on the same disk as ``out``, and remove it afterwards."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    with scratch_beside(out) as beside:
        yield beside
