"""A check of a workspace or of a file of labels: damage, errors, and limits on missing labels.

Nothing is written. A problem names the command that mends it, and a damaged file does not keep the
other checks from running.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from earmark.audio import FrameStore
from earmark.datasets import (
    VERSION_HERE,
    Workspace,
    corrected_names,
    find_stale,
    read_labels,
    read_quarantine,
    replaced_sounds,
    unusable_sounds,
)
from earmark.errors import EarmarkError, EarmarkWarning, counted, first_few, quoted, short_repr
from earmark.labels import (
    GUESSED,
    Finding,
    Implied,
    LabelSet,
    Reading,
    find_implied,
    find_problems,
    is_label_table,
    read_clip_list,
    read_label_file,
    read_label_table,
    refuse_no_labels,
)
from earmark.options import Fields, Option
from earmark.pipeline.flag import found_flags, labels_flagged
from earmark.pipeline.opening import RecipeLike, Scored, WorkLike, open_scored, open_workspace
from earmark.report import HeldLimit, Limits, MissingEvidence, hold_limits
from earmark.review import JudgementStore, read_queue
from earmark.scores import ScoreFolder
from earmark.storage import (
    SourceTable,
    file_sha256,
    holder_of,
    inside,
    is_finished,
    read_json,
    read_seal,
    read_source,
    seal_path,
)

NO_LIMITS = Limits()


_SINGULAR = {
    "clips": "clip",
    "classes": "class",
    "labels": "label",
    "unreadable clips": "unreadable clip",
    "answers": "answer",
}
"""What a check counts."""


@dataclass(frozen=True)
class Problem:
    """A file that is damaged, missing or out of date, and the command that mends it, if any."""

    what: str
    message: str
    command: str = ""

    __repr__ = short_repr

    def __str__(self) -> str:
        advice = f"; run `{self.command}`" if self.command else ""
        return f"{self.what}: {self.message}{advice}"


@dataclass(frozen=True)
class CheckedLabels:
    """The errors and oddities of a set of labels.

    ``implied`` lists what positives imply for their ancestors; None without a class tree, or where
    the labels have errors. ``notes`` say how a table was read.
    """

    path: Path
    findings: tuple[Finding, ...]
    implied: Implied | None = None
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


@dataclass(frozen=True)
class CheckedWorkspace:
    """The problems of a workspace, the errors of its labels, and its limits on missing labels.

    ``labels`` is None where they cannot be read. ``evidence`` is None where nothing is known of
    missing labels; ``unknown`` says why. ``holder`` says who writes in the workspace now, and
    ``counts`` how many clips, classes, labels and answers there are.
    """

    problems: tuple[Problem, ...]
    counts: dict[str, int]
    holder: str | None
    labels: CheckedLabels | None
    evidence: MissingEvidence | None
    limits: tuple[HeldLimit, ...] = ()
    unknown: str = ""

    __repr__ = short_repr

    @property
    def is_passed(self) -> bool:
        """Whether every limit is kept; without limits, whether files and labels are in order."""
        if self.limits:
            return all(limit.is_passed for limit in self.limits)
        return not self.problems and self.labels is not None and not self.labels.has_errors

    def facts(self, *, by_class: bool = False) -> dict[str, Any]:
        """Return everything as plain values, for programs; the classes only ``by_class``."""
        evidence = self.evidence
        known: dict[str, Any] = {"unknown": self.unknown}
        if evidence is not None:
            known = evidence.facts()
        if by_class and evidence is not None:
            known["classes"] = evidence.findings.classes.to_dicts()
        labels = {} if self.labels is None else self.labels.facts()
        return {
            **known,
            "limits": [limit.facts() for limit in self.limits],
            "healthy": not self.problems,
            "findings": [vars(problem) for problem in self.problems],
            "checked": self.counts,
            "writes_now": self.holder,
            "earmark": VERSION_HERE,
            "label_findings": labels.get("findings", []),
            "implied": labels.get("implied", []),
            "verdict": "passed" if self.is_passed else "failed",
        }

    def summary(self) -> str:
        """Say in a sentence how many problems there are among what was checked."""
        n_problems = counted(len(self.problems), "problem") if self.problems else "No problems"
        counts = ", ".join(
            counted(n, _SINGULAR[what], what) for what, n in self.counts.items() if n
        )
        return f"{n_problems} in {counts}."


def check_workspace(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: Annotated[
        str | None, Option("A label set: that of the flags written last, else as given.")
    ] = None,
    limits: Annotated[Limits, Fields()] = NO_LIMITS,
    quick: Annotated[bool, Option("Without reading all frames.")] = False,
) -> CheckedWorkspace:
    """Check the files and labels of a workspace, and hold its missing labels to limits.

    Files are compared with the digests noted when they were written, frames only without ``quick``.
    Missing labels are known where there are scores; without them, limits are an error.
    """
    workspace = open_workspace(work)
    holder = holder_of(workspace.root)
    problems = tuple(_find_problems(workspace, quick))
    counts = _counts(workspace)
    checked: CheckedLabels | None = None
    evidence: MissingEvidence | None = None
    unknown = ""
    try:
        checked = _check_own_labels(workspace)
        with warnings.catch_warnings():  # stale scores are a problem already
            warnings.filterwarnings("ignore", ".*older than the dataset", EarmarkWarning)
            evidence = gather_evidence(workspace, recipe, labels)
    except EarmarkError as error:
        if limits != NO_LIMITS:
            raise
        unknown = str(error)
    held = () if evidence is None else hold_limits(evidence, limits)
    message = None if holder is None else holder.told
    return CheckedWorkspace(problems, counts, message, checked, evidence, held, unknown)


def check_labels(
    path: str | Path,
    clips: Annotated[str | Path | None, Option("All clips that a file of labels is of.")] = None,
    reading: Reading = GUESSED,
) -> CheckedLabels:
    """Check a file of labels in any format: a table with the lines of its rows.

    ``clips`` is a table that lists all clips; without it they are those that the labels mention.
    ``reading`` says how a table is to be read where guesses would be wrong.
    """
    path = Path(path)
    if is_label_table(path):
        read = read_label_table(path, reading)
        table, clip_ids, class_ids, notes = read.long, read.clip_ids, read.class_ids, read.notes
    else:
        file = read_label_file(path, reading=reading)
        refuse_no_labels(file.labels, path)
        clip_ids, class_ids, notes = file.labels.clip_ids, file.labels.class_ids, file.notes
        table = SourceTable.of(file.labels.rows(), path)
    if clips is not None:
        clip_ids = read_clip_list(Path(clips))
    return CheckedLabels(path, tuple(find_problems(table, clip_ids, class_ids)), notes=notes)


def _check_own_labels(workspace: Workspace) -> CheckedLabels:
    ontology, clip_ids = workspace.ontology, workspace.clips["clip_id"]
    table = read_source(workspace.labels_path)
    findings = tuple(find_problems(table, clip_ids, ontology.class_ids))
    checked = CheckedLabels(workspace.labels_path, findings)
    if not ontology.parents or checked.has_errors:
        return checked
    labels = LabelSet.from_table(table, clip_ids, ontology.class_ids)
    return replace(checked, implied=find_implied(labels, ontology))


_Messages = Iterable[tuple[str, str]]
"""What is wrong, and the command that mends it or nothing."""


def _find_problems(workspace: Workspace, quick: bool) -> Iterator[Problem]:
    """Yield what is wrong; what cannot be made anew comes first."""
    checks: dict[str, Callable[[Workspace], _Messages]] = {
        "dataset": _check_dataset,
        "answers": _check_answers,
        "digests": _check_digests,
        "frames": _check_stores,
        "shards": _check_frames,
        "sounds": _check_sounds,
        "scores": _check_scores,
        "age": _check_age,
    }
    if quick:
        del checks["shards"]
    for what, check in checks.items():
        try:
            yield from (Problem(what, *message) for message in check(workspace))
        except EarmarkError as error:
            yield Problem(what, str(error))
        except OSError as error:
            yield Problem(what, f"{error.filename or workspace.root}: {error.strerror}")


def _command(workspace: Workspace, verb: str) -> str:
    return f"earmark {verb} {quoted(workspace.root)}"


def _check_dataset(workspace: Workspace) -> _Messages:
    """Read clips, classes and all label sets; their readers refuse what does not fit."""
    n_clips, n_twice = len(workspace.clips), workspace.clips["clip_id"].is_duplicated().sum()
    if n_twice:
        yield f"{workspace.clips_path}: {n_twice:,} of {n_clips:,} rows share a name", ""
    _ = workspace.labels, workspace.truth
    for name in corrected_names(workspace):
        read_labels(workspace, name)


_CHANGED = "changed or damaged since it was made"

_MAKERS = {
    "scores": "score",
    "flags": "flag",
    "sweep": "sweep",
    "compare": "compare",
    "review": "",
    "relabelled": "",
}
"""Folders whose manifests note digests, and the command that makes their files anew."""


def _check_digests(workspace: Workspace) -> _Messages:
    """Compare files with the digests in their manifests."""
    for folder, verb in _MAKERS.items():
        for manifest in sorted(workspace.root.glob(f"{folder}/**/*.json")):
            for name, expected in _noted_digests(manifest).items():
                path = manifest.with_name(name)
                if not path.exists():
                    yield f"{path}: missing, and {manifest.name} says it is there", ""
                elif file_sha256(path) != expected:
                    advice = f"{path}: {_CHANGED}; delete {manifest} and make it anew"
                    yield advice, _command(workspace, verb) if verb else ""


def _noted_digests(manifest: Path) -> dict[str, str]:
    """Return the digests of files that a manifest notes, by name; none where it is no manifest."""
    if any(part.startswith(".") for part in manifest.parts[-2:]):
        return {}
    noted = read_json(manifest)
    files = noted.get("files", {}) if isinstance(noted, dict) else {}
    return files if isinstance(files, dict) else {}


def _stores(workspace: Workspace) -> dict[Path, str]:
    """Return the frame stores of a workspace, and the command that makes each."""
    verbs = {
        workspace.frames_folder: "features",
        workspace.embeddings_folder: "score",
        workspace.outputs_folder: "score",
    }
    return {path: _command(workspace, verb) for path, verb in verbs.items() if path.is_dir()}


def _check_stores(workspace: Workspace) -> _Messages:
    """Open the frame stores; compare the number of their clips with the dataset's."""
    for folder, command in _stores(workspace).items():
        if not is_finished(folder):
            yield f"{folder}: not finished", command
            continue
        try:
            n_stored = len(FrameStore.open(folder).clip_ids)
        except EarmarkError as error:
            yield str(error), command
            continue
        n_clips, n_unread = len(workspace.clips), len(read_quarantine(workspace))
        if n_stored + n_unread < n_clips:
            yield f"{folder}: of {n_stored:,} clips, and the dataset has {n_clips:,}", command


def _check_frames(workspace: Workspace) -> _Messages:
    """Compare frames with the digests that were noted when they were written."""
    for folder, command in _stores(workspace).items():
        if not is_finished(folder):
            continue
        noted = read_seal(folder)
        is_made_here = noted.get("front_end") is not None or noted.get("network_facts") is not None
        advice = "delete it" if is_made_here else "import its frames again"
        for name, expected in _noted_digests(seal_path(folder)).items():
            path = inside(folder, name)
            if path.exists() and file_sha256(path) != expected:
                yield f"{path}: {_CHANGED}; {advice}", command if is_made_here else ""


def _check_sounds(workspace: Workspace) -> _Messages:
    """Compare sound files with those that frames were made of; name missing and empty ones."""
    is_there: dict[str, bool] = {}
    for folder in _stores(workspace):
        if is_finished(folder):
            is_there |= replaced_sounds(workspace, folder)
    missing, empty = unusable_sounds(workspace)
    changed = [audio for audio, exists in is_there.items() if exists and audio not in empty]
    if changed:
        verb = "features" if workspace.has_frames() else "score"
        n_files = counted(len(changed), "file")
        yield (
            f"{n_files} changed since frames were made of them: {first_few(changed)}",
            _command(workspace, verb),
        )
    if missing:
        yield (
            f"{counted(len(missing), 'file')} not where clips.parquet says: {first_few(missing)}; "
            "was the workspace moved without them?",
            "",
        )
    if empty:
        yield (
            f"{counted(len(empty), 'file')} of 0 bytes, as after a power cut: {first_few(empty)}; "
            "put the sounds back, or import the dataset again",
            "",
        )


def _check_scores(workspace: Workspace) -> _Messages:
    """Open every folder of scores."""
    for folder in sorted(workspace.scores_folder("any").parent.glob("*")):
        if folder.is_dir() and not is_finished(folder):
            yield f"{folder}: not finished", _command(workspace, "score")
        elif folder.is_dir():
            _ = ScoreFolder.open(folder)


def _check_answers(workspace: Workspace) -> _Messages:
    """Have SQLite check its files; read the answers and the queue."""
    paths = [path for path in (workspace.judgements_path, workspace.drawn_path) if path.exists()]
    errors = {path: _sqlite_error(path) for path in paths}
    for path, error in errors.items():
        if error:
            yield f"{path}: {error}; keep a copy of it before anything else", ""
    if errors.get(workspace.judgements_path) == "":
        with JudgementStore(workspace.judgements_path, must_exist=True) as store:
            store.rows()
    if workspace.queue_seal_path.exists():
        try:
            read_queue(workspace)
        except EarmarkError as error:
            yield str(error), f"{_command(workspace, 'review')} --write-only"


def _sqlite_error(path: Path) -> str:
    """Return what SQLite finds wrong with a file, which is only read; empty where nothing is."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            (answer,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return "" if answer == "ok" else str(answer)


def _check_age(workspace: Workspace) -> _Messages:
    """Name all that was made before the dataset changed."""
    for stale in find_stale(workspace):
        changed = " and ".join(stale.changed)
        yield (
            f"{stale.path}: older than the dataset, whose {changed} changed{stale.detail}",
            stale.command,
        )


def _counts(workspace: Workspace) -> dict[str, int]:
    """Count clips, classes, labels and answers; 0 of what cannot be read."""
    sources: dict[str, Callable[[], int]] = {
        "clips": lambda: len(workspace.clips),
        "classes": lambda: len(workspace.ontology.class_ids),
        "labels": lambda: len(workspace.labels.rows()),
        "unreadable clips": lambda: len(read_quarantine(workspace)),
        "answers": lambda: _n_answers(workspace),
    }
    counts: dict[str, int] = {}
    for what, count in sources.items():
        try:
            counts[what] = count()
        except (EarmarkError, sqlite3.Error):
            counts[what] = 0
    return counts


def _n_answers(workspace: Workspace) -> int:
    if not workspace.judgements_path.exists():
        return 0
    with JudgementStore(workspace.judgements_path, must_exist=True) as store:
        return len(store.current())


def gather_evidence(
    work: WorkLike, recipe: RecipeLike = None, labels: str | None = None
) -> MissingEvidence:
    """Gather what a workspace knows of its missing labels by scores and answers.

    ``labels`` names the label set; by default it is that of the flags written last, else the labels
    as given. Whichever it is, what is known is about the labels as given.
    """
    scored = open_scored(work, recipe)
    workspace = scored.workspace
    name = labels or labels_flagged(workspace)
    findings = found_flags(scored, name)
    n_raters, last = _raters(workspace)
    return MissingEvidence(findings, name, n_raters, last, _origin(scored, name))


def _raters(workspace: Workspace) -> tuple[int, str]:
    """Return how many raters have answered, and the day of the last answer."""
    if not workspace.judgements_path.exists():
        return 0, ""
    with JudgementStore(workspace.judgements_path, must_exist=True) as store:
        answers = store.current()
    if answers.is_empty():
        return 0, ""
    last = datetime.fromisoformat(str(answers["at"].max())).date().isoformat()
    return answers["rater"].n_unique(), last


def _origin(scored: Scored, name: str) -> dict[str, str]:
    """Return what the evidence was made from."""
    recipe = scored.recipe
    return {
        "teacher": _describe_teacher(scored),
        "labels digest": read_labels(scored.workspace, name).labels.digest,
        "scores digest": scored.whole.digest,
        "recipe": f"{recipe.name} ({recipe.digest()})",
        "earmark": metadata.version("earmark"),
    }


def _describe_teacher(scored: Scored) -> str:
    """Say where the scores come from, for readers who do not have the workspace."""
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
