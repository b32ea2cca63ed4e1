"""A dataset checked: its files, its labels, and how many of these are missing, held to limits."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from earmark.datasets import Workspace, read_labels, unusable_sounds
from earmark.errors import EarmarkError, EarmarkWarning, counted, short_repr
from earmark.labels import (
    GUESSED,
    Finding,
    Implied,
    LabelSet,
    Ontology,
    Reading,
    find_implied,
    find_problems,
    is_label_table,
    read_clip_list,
    read_label_file,
    read_label_table,
    refuse_no_labels,
)
from earmark.metrics import Evaluation, Interval, evaluate
from earmark.options import Argument, Fields, Option
from earmark.pipeline.flag import find_flags, labels_flagged
from earmark.pipeline.health import Health, examine
from earmark.pipeline.listening.queue import open_judgements
from earmark.pipeline.listening.review import HeardPrecision, measure_precision
from earmark.pipeline.opening import RecipeLike, Scored, WorkLike, open_scored, open_workspace
from earmark.pipeline.scanning.scan import scan
from earmark.report import HeardEvidence, HeldLimit, Limits, MissingEvidence, hold_limits
from earmark.scores import ScoreFolder, arrange, leave_out_unscored, open_score_file
from earmark.storage import SourceTable, is_finished, read_seal, read_source

NO_LIMITS = Limits()


@dataclass(frozen=True)
class CheckedDataset:
    """What is known of a dataset's missing labels, and which limits it keeps.

    ``notes`` say how files were read, and how many sounds are missing or empty.
    """

    evidence: MissingEvidence
    limits: tuple[HeldLimit, ...]
    notes: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def is_passed(self) -> bool:
        """Whether every limit is kept; without limits, it is."""
        return all(one.is_passed for one in self.limits)

    def facts(self, *, by_class: bool = False) -> dict[str, Any]:
        """Return everything as plain values, for programs; with every class if it is asked for."""
        told = {
            "verdict": "passed" if self.is_passed else "failed",
            "limits": [one.facts() for one in self.limits],
            **self.evidence.facts(),
            "notes": list(self.notes),
        }
        return told | ({"classes": self.evidence.classes.to_dicts()} if by_class else {})


def check_dataset(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: str | None = None,
    limits: Limits = NO_LIMITS,
) -> CheckedDataset:
    """Hold a workspace to limits; without limits it passes, and is told of all the same.

    ``labels`` names the label set: that of the flags written last, else the labels as given.
    """
    evidence = gather_evidence(work, recipe, labels)
    missing, empty = unusable_sounds(open_workspace(work))
    notes = tuple(
        f"{counted(len(files), 'sound file')} {trouble}, such as {files[0]}"
        for files, trouble in ((missing, "not there"), (empty, "of 0 bytes"))
        if files
    )
    return CheckedDataset(evidence, hold_limits(evidence, limits), notes)


def check_files(
    labels: Annotated[str | Path, Option("The file of labels.")],
    scores: Annotated[
        str | Path, Option("A file of scores, in place of a workspace.", default=None)
    ],
    *,
    limits: Annotated[Limits, Fields()] = NO_LIMITS,
    classes: Annotated[str | Path | None, Option("Classes in the order of scores.")] = None,
    clips: Annotated[str | Path | None, Option("Clips in the order of scores.")] = None,
    scale: Annotated[
        Literal["auto", "logits", "probabilities"], Option("auto, logits or probabilities.")
    ] = "auto",
    reading: Reading = GUESSED,
) -> CheckedDataset:
    """Hold a file of labels and one of scores to limits; the rest is as in a scan."""
    evidence, notes = evidence_of_files(
        labels,
        scores,
        classes=classes,
        clips=clips,
        scale=scale,
        columns=reading.columns,
        separator=reading.separator,
        zeros=reading.zeros,
    )
    return CheckedDataset(evidence, hold_limits(evidence, limits), notes)


@dataclass(frozen=True)
class CheckedLabels:
    """What is wrong, or worth knowing, about a file of labels.

    ``implied`` says what positives tell of their ancestors; None without a class tree, or where
    the labels have errors. ``notes`` say how a table was read.
    """

    path: Path
    findings: tuple[Finding, ...]
    implied: Implied | None
    notes: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def has_errors(self) -> bool:
        """Whether the labels cannot be used as they are."""
        return any(finding.is_error for finding in self.findings)

    def facts(self) -> dict[str, Any]:
        """Return everything as plain values, for programs."""
        facts: dict[str, Any] = {
            "findings": [vars(finding) for finding in self.findings],
            "notes": list(self.notes),
        }
        implied = self.implied
        return facts if implied is None else facts | {"implied": implied.table().to_dicts()}


def check_labels(
    target: str | Path,
    clips: Annotated[
        str | Path | None, Option("Clips in the order of scores, or all that labels are of.")
    ] = None,
    reading: Reading = GUESSED,
) -> CheckedLabels:
    """Check the labels of a workspace, or of a file of labels in any format.

    ``clips`` is the table that lists all clips of a file's labels; without it they are those that
    the labels mention. ``reading`` says how a table is to be read where guesses would be wrong.
    """
    target = Path(target)
    if not target.is_dir():
        return _check_file(target, None if clips is None else Path(clips), reading)
    if clips is not None or reading != GUESSED:
        raise EarmarkError(
            f"{target}: a workspace names its clips and columns itself; leave the options out"
        )
    workspace = Workspace.open(target)
    ontology, clip_ids = workspace.ontology, workspace.clips["clip_id"]
    table = read_source(workspace.labels_path)
    findings = tuple(find_problems(table, clip_ids, ontology.class_ids))
    checked = CheckedLabels(workspace.labels_path, findings, None)
    if not ontology.parents or checked.has_errors:
        return checked
    labels = LabelSet.from_table(table, clip_ids, ontology.class_ids)
    return replace(checked, implied=find_implied(labels, ontology))


def _check_file(path: Path, clips: Path | None, reading: Reading) -> CheckedLabels:
    """Check a file of labels: a table with the lines of its rows, any other file as a whole."""
    if is_label_table(path):
        read = read_label_table(path, reading)
        table, clip_ids, class_ids, notes = read.long, read.clip_ids, read.class_ids, read.notes
    else:
        file = read_label_file(path, reading=reading)
        refuse_no_labels(file.labels, path)
        clip_ids, class_ids, notes = file.labels.clip_ids, file.labels.class_ids, file.notes
        table = SourceTable.of(file.labels.rows(), path)
    if clips is not None:
        clip_ids = read_clip_list(clips)
    return CheckedLabels(path, tuple(find_problems(table, clip_ids, class_ids)), None, notes)


@dataclass(frozen=True)
class CheckedWorkspace:
    """A workspace looked over: its files, its labels, and what is known of missing ones.

    ``labels`` is None where they cannot be read, ``dataset`` where nothing is known of missing
    labels: ``unknown`` says why.
    """

    health: Health
    labels: CheckedLabels | None
    dataset: CheckedDataset | None
    unknown: str = ""

    __repr__ = short_repr

    @property
    def is_passed(self) -> bool:
        """Whether every limit is kept; without limits, whether files and labels are in order."""
        if self.dataset is not None and self.dataset.limits:
            return self.dataset.is_passed
        return self.health.is_healthy and self.labels is not None and not self.labels.has_errors

    def facts(self, *, by_class: bool = False) -> dict[str, Any]:
        """Return everything as plain values, for programs; with every class if it is asked for."""
        dataset = {"unknown": self.unknown}
        if self.dataset is not None:
            dataset = self.dataset.facts(by_class=by_class)
        labels = {} if self.labels is None else self.labels.facts()
        return {
            **dataset,
            **self.health.facts(),
            "label_findings": labels.get("findings", []),
            "implied": labels.get("implied", []),
            "verdict": "passed" if self.is_passed else "failed",
        }


def check_workspace(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: Annotated[
        str | None,
        Option(
            "A label set: that of the flags written last, else as given. With --scores: the file "
            "of labels."
        ),
    ] = None,
    limits: Annotated[Limits, Fields()] = NO_LIMITS,
    quick: Annotated[bool, Option("Without reading all frames.")] = False,
) -> CheckedWorkspace:
    """Look over a workspace: its files, its labels, and its missing labels.

    ``quick`` leaves out reading all frames. What is known of missing labels takes scores; only
    where there are ``limits`` is it an error that there are none.
    """
    workspace = open_workspace(work)
    health = examine(workspace, quick=quick)
    checked: CheckedLabels | None = None
    dataset: CheckedDataset | None = None
    unknown = ""
    try:
        checked = check_labels(workspace.root)
        dataset = check_dataset(workspace, recipe, labels=labels, limits=limits)
    except EarmarkError as error:
        if limits != NO_LIMITS:
            raise
        unknown = str(error)
    return CheckedWorkspace(health, checked, dataset, unknown)


def evaluate_scores(
    labels: Annotated[str | Path, Argument("Labels: Parquet or CSV rows.")],
    scores: Annotated[str | Path, Argument("A folder of scores with its clips and classes.")],
) -> Evaluation:
    """Measure a folder of scores against a file of labels: d', lwlrap and average precision."""
    opened = ScoreFolder.open(scores)
    file, scored = read_label_file(labels), open_score_file(scores)
    refuse_no_labels(file.labels, labels)
    kept, left_out = leave_out_unscored(file, opened.clip_ids)
    for warning in left_out:
        warnings.warn(warning, EarmarkWarning, stacklevel=2)
    known = arrange(kept, scored, opened.clip_ids, Ontology(opened.class_ids))
    return evaluate(known, opened.logits, opened.class_ids)


def gather_evidence(
    work: WorkLike, recipe: RecipeLike = None, labels: str | None = None
) -> MissingEvidence:
    """Gather what a workspace knows of its missing labels, by the scores and by ear.

    ``labels`` names the label set; by default it is that of the flags written last, else the labels
    as given. The flags are chosen anew as they were last.
    """
    scored = open_scored(work, recipe)
    workspace = scored.workspace
    name = labels or labels_flagged(workspace)
    folder = workspace.flags_folder
    written = read_seal(folder) if is_finished(folder) else {}
    findings = find_flags(scored, written.get("policy"), written.get("options", {}), name)
    heard, not_heard = hear_of(workspace)
    return MissingEvidence(findings, name, heard, not_heard, _origin(scored, name))


def evidence_of_files(
    labels: str | Path, scores: str | Path, **options: Any
) -> tuple[MissingEvidence, tuple[str, ...]]:
    """Gather what scores say of the labels of two files, and how these were read.

    ``options`` are those of :func:`earmark.pipeline.scan`.
    """
    found = scan(labels, scores, **options)
    origin = {"labels": str(labels), "scores": str(scores), **_versions()}
    reason = "files of labels and scores hold no answers"
    return MissingEvidence(found.findings, str(labels), None, reason, origin), found.notes


def hear_of(workspace: Workspace) -> tuple[HeardEvidence | None, str]:
    """Return what raters heard of the flags of a workspace; None, and why, where nobody did."""
    if not (workspace.judgements_path.exists() and workspace.queue_seal_path.exists()):
        return None, "nobody has listened yet"
    try:
        heard = measure_precision(workspace, is_written=False)
    except EarmarkError:  # answers about other labels than those that were drawn
        return None, "nobody has listened to labels of this queue yet"
    if not heard.overall["n_judged"]:
        return None, "nobody has listened to one of these flags yet"
    return _heard_evidence(workspace, heard), ""


def _heard_evidence(workspace: Workspace, heard: HeardPrecision) -> HeardEvidence:
    overall: dict[str, Any] = heard.overall
    every = heard.table.filter(scope="all")
    class_ids = every["class_id"].drop_nulls().to_list()
    columns = [workspace.ontology.index[class_id] for class_id in class_ids]
    whole = every.row(-1, named=True)
    middle = (whole["precision_low"] + whole["precision_high"]) / 2
    shares = (middle, whole["low"], whole["high"])
    with open_judgements(workspace) as store:
        answers = store.current()
    numbers = ("n_judged", "n_present", "n_not_present", "n_unsure")
    ends = ("precision_low", "precision_high", "low", "high")
    return HeardEvidence(
        flags=heard.flags,
        is_estimate=heard.is_estimate,
        **{name: overall[name] for name in (*numbers, *ends)},
        n_raters=answers["rater"].n_unique(),
        last=datetime.fromisoformat(str(answers["at"].max())).date().isoformat(),
        missing=Interval(*(share * whole["n_labels"] for share in shares)),
        n_positives=int(workspace.labels.n_positives[columns].sum()),
        n_classes=len(class_ids),
        coverage=whole["coverage"],
        gains="" if heard.gains is None else heard.gains.told,
    )


def _origin(scored: Scored, name: str) -> dict[str, str]:
    """Return what the evidence was made from."""
    recipe = scored.recipe
    return {
        "teacher": _teacher_told(scored),
        "labels digest": read_labels(scored.workspace, name).labels.digest,
        "scores digest": scored.whole.digest,
        "recipe": f"{recipe.name} ({recipe.digest()})",
        **_versions(),
    }


def _teacher_told(scored: Scored) -> str:
    """Say whose scores they are, to those who do not know the workspace."""
    recipe, scores = scored.recipe, scored.whole
    fold = "out of fold" if scores.out_of_fold else "not known to be out of fold"
    if scores.origin is not None:
        name = Path(scores.origin.path).name or "elsewhere"
        what = "scores from" if scores.origin.kind == "file" else "scores by"
        return f"{what} {name}, {fold}"
    if recipe.pretrained is not None:
        return f"scores by {recipe.pretrained.network} ({recipe.way or 'the best way'}), {fold}"
    architecture = recipe.taught.model.architecture
    return f"scores by a {architecture} that learnt from these labels, {fold}"


def _versions() -> dict[str, str]:
    return {"earmark": metadata.version("earmark")}
