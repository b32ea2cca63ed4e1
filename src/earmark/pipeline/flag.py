"""Flags of a workspace: written, held against the truth where it is known, and exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Unpack

import polars as pl

from earmark.compute import (
    Engine,
    Progress,
    shown,
)
from earmark.datasets import (
    CORRECTED,
    HubExport,
    HubLabels,
    NamedLabels,
    Workspace,
    corrected_names,
    corrections_left_out,
    read_labels,
    refuse_stale,
    scored_frames,
    stale_of,
    stamped,
    write_hub_folder,
)
from earmark.errors import EarmarkError, quoted, short_repr
from earmark.flags import (
    FLAG_SCHEMA,
    Findings,
    FlagTable,
    MissingEstimates,
    PMissing,
    Thresholds,
    check_policy,
    find,
    flag,
    gather_evidence,
    judge_flags,
    made_from,
    policy_with,
    stored_thresholds,
    thresholds,
    write_flag_folder,
)
from earmark.labels import LabelSet, Ontology
from earmark.options import Argument, Option
from earmark.pipeline.hearing import shown_flags
from earmark.pipeline.opening import RecipeLike, Scored, WorkLike, open_scored, open_workspace
from earmark.pipeline.policies import PolicyName, PolicyOptions
from earmark.review import estimate_from_answers, read_heard, with_places, without_cleared
from earmark.scores import ScoreFolder, open_scores, scored_labels
from earmark.storage import (
    break_seal,
    is_finished,
    read_seal,
    read_sealed,
    seal_path,
    write_table,
    writes,
)

DEFAULT_PERCENT = 1.0


@dataclass(frozen=True)
class Flagged:
    """What was found in a workspace, and the file that holds its flags."""

    path: Path
    findings: Findings
    scored: Scored | None = field(default=None, repr=False, compare=False)
    """Where the flags' sounds are, for notebooks."""

    __repr__ = short_repr

    @property
    def flags(self) -> pl.DataFrame:
        """The flags, the likeliest first."""
        return self.findings.flags

    def _repr_html_(self) -> str:
        return shown_flags(self.findings, self.scored)


@dataclass(frozen=True)
class Exported:
    """A label set written out for other programs: clip_id, class_id, state.

    Every explicit label of every split is in it. Clips that were not scored could not be flagged.
    """

    path: Path
    table: pl.DataFrame
    n_unscored_clips: int
    warnings: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def n_rows(self) -> int:
        """Labels in the file."""
        return len(self.table)

    @property
    def n_ignored(self) -> int:
        """Labels that are flagged, or that raters could not settle."""
        return self.n_of("ignored")

    @property
    def n_clips(self) -> int:
        """Clips that have a label in the file."""
        return self.table["clip_id"].n_unique()

    def n_of(self, state: str) -> int:
        """Return how many labels are present, not_present or ignored."""
        return int((self.table["state"] == state).sum())


@writes("flag")
def write_flags(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    policy: PolicyName = None,
    labels: Annotated[str, Option("A corrected label set; the labels as given.")] = "given",
    keep_chances: Annotated[
        bool, Option("Keep the chance of every train label, for students.", "--chances")
    ] = False,
    engine: Engine | None = None,
    **options: Unpack[PolicyOptions],
) -> Flagged:
    """Write the thresholds of the paper's 18 points, and the flags that a policy chooses.

    The thresholds are those of the train split, which students go by; the flags are those of every
    scored clip of every split. ``options`` are the policy's (see :func:`earmark.flags.flag.flag`),
    and where they alone are given it is the one that has them: the likeliest of all classes
    (``budget``) by default, the paper's flags with a ``discard_percent``.

    From twenty answers on, the model of missing labels learns from them. ``labels`` names the label
    set; what raters cleared in a corrected one is not flagged again. ``keep_chances`` writes the
    chance of every label of the train split, for students that are told by it. With an ``engine``
    the passes over the scores are its tasks, a shard each.
    """
    policy = policy_with(options) if policy is None else policy
    check_policy(policy, options)
    scored = open_scored(work, recipe)
    findings = find_flags(scored, policy, options, labels, engine)
    keep_flags(scored, findings, policy, options, labels, engine, keep_chances=keep_chances)
    return Flagged(scored.workspace.flags_path, findings, scored)


def find_flags(
    scored: Scored,
    policy: str | None,
    options: Mapping[str, Any],
    labels: str = "given",
    engine: Engine | None = None,
    written: pl.DataFrame | None = None,
) -> Findings:
    """Find flags, or take those that were ``written``, and say what is known of missing labels.

    Whichever ``labels`` the flags were found on, the estimates are about the labels as given, the
    flags and the answers.
    """
    workspace, whole = scored.workspace, scored.whole
    known = _known(scored, labels)
    heard = read_heard(workspace, known.labels)
    doubt = corrections_left_out(workspace, labels)
    findings = find(
        known.labels,
        open_scores(whole.logits_path, known.labels),
        _class_tree(workspace, options),
        policy,
        options,
        answers=heard.answers if heard else None,
        scores_told=scored.scores.told,
        out_of_fold=whole.out_of_fold,
        heard_told=f" {heard.describe()}." if heard else "",
        doubts=[doubt] if doubt else [],
        engine=engine,
    )
    if written is not None:
        findings = findings.with_flags(written)
    elif known.rulings is not None:
        findings = findings.with_flags(without_cleared(findings.flags, known.rulings))
    flags = with_splits(workspace, findings.flags)
    store = scored_frames(workspace, scored.recipe)
    placed = with_places(flags, scored.recipe, whole, store)
    given = _known(scored, "given").labels
    p_missing = findings.p_missing if labels == "given" else _p_missing_of_given(scored, given)
    return replace(
        findings,
        flag_table=FlagTable.of(placed),
        estimates=estimate_from_answers(workspace, given, placed, p_missing),
    )


def _p_missing_of_given(scored: Scored, given: LabelSet) -> PMissing | None:
    """Return the model of missing labels of the labels as given, learnt from the answers."""
    heard = read_heard(scored.workspace, given)
    answers = heard.answers if heard else None
    logits = scored.whole.logits_path
    evidence = gather_evidence(given, logits, scored.workspace.ontology, answers)
    return evidence.p_missing if evidence.knowledge.is_enough else None


def _class_tree(workspace: Workspace, options: Mapping[str, Any]) -> Ontology:
    """Return the classes with their parents; refuse a gate where there are none."""
    ontology = workspace.ontology
    if options.get("gate") and not any(ontology.parents.values()):
        raise EarmarkError(f"{workspace.classes_path}: no class has a parent, so there is no gate")
    return ontology


def found_flags(scored: Scored, labels: str | None = None) -> Findings:
    """Return what is known of a workspace, with the flags as :func:`write_flags` wrote them last.

    Flags that were never written, or of another dataset or other scores, are found now. ``labels``
    names the label set: by default that of the flags, else as given.
    """
    noted = _read_seal(scored.workspace) or {}
    name = labels or labels_flagged(scored.workspace)
    written = _flags_of_now(scored)
    return find_flags(scored, noted.get("policy"), noted.get("options", {}), name, written=written)


def estimate_missing(scored: Scored) -> MissingEstimates:
    """Return what :func:`found_flags` knows of the missing labels, in fewer passes."""
    written = _flags_of_now(scored)
    if written is None:
        return found_flags(scored).estimates
    given = _known(scored, "given").labels
    p_missing = _p_missing_of_given(scored, given)
    return estimate_from_answers(scored.workspace, given, written, p_missing)


def _flags_of_now(scored: Scored) -> pl.DataFrame | None:
    """Return the flags that were written last; None where they are of other data or scores."""
    workspace = scored.workspace
    seal = seal_path(workspace.flags_folder)
    noted = _read_seal(workspace) or {}
    is_of_these = noted.get("scores_digest") == scored.whole.digest
    if not is_of_these or stale_of(workspace, workspace.flags_path, seal, "flag") is not None:
        return None
    return read_sealed(seal, workspace.flags_path.name, FLAG_SCHEMA)


def keep_flags(
    scored: Scored,
    findings: Findings,
    policy: str | None,
    options: Mapping[str, Any],
    labels: str = "given",
    engine: Engine | None = None,
    *,
    keep_chances: bool = False,
) -> None:
    """Write what was found into the workspace's folder of flags, sealed as one."""
    if keep_chances and findings.p_missing is None:
        raise EarmarkError(f"{findings.knowledge.told} There is nothing for students to go by")
    workspace, of_whole = scored.workspace, Thresholds.from_table(findings.thresholds)
    of_train = _train_thresholds(scored, labels, of_whole, engine)
    chosen = {
        "policy": policy,
        "discard_percent": options.get("discard_percent", DEFAULT_PERCENT),
        "options": dict(options),
        "scores": scored.scores.folder.name,
        "scores_digest": scored.whole.digest,
    }
    break_seal(workspace.flags_folder)
    workspace.chances_path.unlink(missing_ok=True)  # of older labels, scores or answers
    if keep_chances and findings.p_missing is not None:
        findings.p_missing.write(workspace.chances_path, len(scored.scores.clip_ids))
    write_flag_folder(
        workspace.flags_folder,
        *of_train,
        findings.flags,
        made_from(_known(scored, labels).labels, scored.whole.digest),
        {"labels": labels, **chosen, **stamped(workspace)},
    )


def with_splits(workspace: Workspace, flags: pl.DataFrame) -> pl.DataFrame:
    """Add the split of each flag's clip."""
    splits = workspace.clips.select("clip_id", "split")
    return flags.join(splits, on="clip_id", how="left", maintain_order="left")


def _train_thresholds(
    scored: Scored, name: str, of_whole: Thresholds, engine: Engine | None
) -> tuple[LabelSet, str, Thresholds]:
    """Return labels, scores' digest and thresholds of the train split: what students go by."""
    scores = scored.scores
    labels = scored_labels(scores, read_labels(scored.workspace, name).labels)
    if scored.whole is scores:
        return labels, scores.digest, of_whole
    logits = scores.logits if engine is None else scores.logits_path
    return labels, scores.digest, thresholds(labels, logits, engine=engine)


def judged_flags(workspace: Workspace, scores: ScoreFolder) -> pl.DataFrame | None:
    """Hold the flags of all 18 points against the truth, where it is known."""
    if workspace.truth is None:
        return None
    labels, truth = scored_labels(scores, workspace.labels), scored_labels(scores, workspace.truth)
    points = stored_thresholds(workspace.flags_folder, labels, scores.logits, scores.digest)
    return judge_flags(labels, truth, scores.logits, points)


def export_labels(
    work: WorkLike,
    path: Annotated[
        str | Path, Argument("File to write (CSV or Parquet); for hf a folder.", "FILE")
    ],
    recipe: RecipeLike = None,
    *,
    discard_percent: Annotated[
        float | None,
        Option("Operating point; the flags that were written last.", low=0, high=100),
    ] = None,
    labels: Annotated[
        str | None, Option("A corrected label set; that of the flags written last, else as given.")
    ] = None,
) -> Exported:
    """Write a label set for other programs: all explicit labels, and flagged ones as ignored.

    The flags are those that :func:`write_flags` wrote last; a ``discard_percent`` asks for the
    paper's flags at that point instead. The state is present, not_present or ignored; labels that
    are not listed are negatives. Of corrected ``labels`` those that raters could not settle are
    ignored as well, and those that they cleared are not.
    """
    scored = open_scored(work, recipe)
    written = None if discard_percent is not None else _read_seal(scored.workspace)
    name = labels or (written or {}).get("labels") or "given"
    known = _known(scored, name)
    if written is None:
        percent = DEFAULT_PERCENT if discard_percent is None else discard_percent
        ignored = flag(
            known.labels, scored.whole.logits, discard_percent=percent, with_chance=False
        )
    else:
        ignored = _written_flags(scored, written, known, name)
    if known.rulings is not None:
        ignored = without_cleared(ignored, known.rulings)  # raters may have gone on since
        unsettled = known.rulings.rows().filter("present")
        ignored = pl.concat([ignored, unsettled], how="diagonal")
    every = read_labels(scored.workspace, name).labels  # of clips that were not scored, too
    table = _exported_table(every, ignored)
    write_table(Path(path), table)
    warning = corrections_left_out(scored.workspace, name)
    n_unscored = len(every) - len(scored.whole.clip_ids)
    return Exported(Path(path), table, n_unscored, (warning,) if warning else ())


def export_hub(
    work: WorkLike,
    path: Annotated[str | Path, Argument("Folder to write.", "FILE")],
    *,
    labels: Annotated[
        str | None, Option("A corrected label set; that of the flags written last, else as given.")
    ] = None,
    progress: Progress | None = None,
) -> tuple[HubExport, tuple[str, ...]]:
    """Write a folder that Hugging Face's ``load_dataset`` reads; return what to warn of, too.

    It has every clip with its sound, the labels as given, the corrected ones (those that ``labels``
    names, else ``corrected`` where there are any) and the flags that were written last.
    """
    workspace = open_workspace(work)
    name = labels or (CORRECTED if CORRECTED in corrected_names(workspace) else None)
    corrected = None if name is None else read_labels(workspace, name).labels
    flags = _last_flags(workspace)
    with shown(progress) as display:
        told = HubLabels(workspace.labels, corrected, flags)
        written = write_hub_folder(workspace, Path(path), told, display)
    missing = f"no flags in it yet: `earmark flag {quoted(workspace.root)}` makes them, then export"
    return written, (missing,) if flags is None else ()


def _last_flags(workspace: Workspace) -> pl.DataFrame | None:
    """Return the flags that were written last, None without any; refuse those of other clips."""
    if _read_seal(workspace) is None:
        return None
    seal = seal_path(workspace.flags_folder)
    refuse_stale(stale_of(workspace, workspace.flags_path, seal, "flag"), ("clips", "classes"))
    return read_sealed(seal, workspace.flags_path.name, FLAG_SCHEMA)


def labels_flagged(workspace: Workspace) -> str:
    """Return the name of the labels whose flags were written last, as long as they are there."""
    name = str((_read_seal(workspace) or {}).get("labels", "given"))
    return name if is_finished(workspace.relabelled_folder(name)) else "given"


def _known(scored: Scored, name: str) -> NamedLabels:
    """Return the labels of the scored clips by name, with what raters ruled beyond them."""
    named = read_labels(scored.workspace, name)
    return NamedLabels(scored_labels(scored.whole, named.labels), named.rulings)


def _read_seal(workspace: Workspace) -> dict[str, Any] | None:
    folder = workspace.flags_folder
    return read_seal(folder) if is_finished(folder) else None


def _written_flags(
    scored: Scored, written: dict[str, Any], known: NamedLabels, name: str
) -> pl.DataFrame:
    """Read the flags that are there; refuse those of other labels or scores."""
    path = scored.workspace.flags_path
    wanted = made_from(known.labels, scored.whole.digest)
    if written.get("flags_digest") != wanted or written["labels"] != name:
        seal = seal_path(scored.workspace.flags_folder)
        stale = stale_of(scored.workspace, path, seal, "flag")
        older = f"the dataset's {' and '.join(stale.changed)}" if stale else "the scores"
        what = f"{older} have changed since" if written["labels"] == name else "other labels"
        command = f"earmark flag {quoted(scored.workspace.root)}"
        if name != "given":
            command += f" --labels {quoted(name)}"
        raise EarmarkError(
            f"{path}: these are flags of labels {written['labels']!r}, and {what}; run "
            f"`{command}` again, or give a discard percent"
        )
    return read_sealed(seal_path(scored.workspace.flags_folder), path.name, FLAG_SCHEMA)


def _exported_table(labels: LabelSet, ignored: pl.DataFrame) -> pl.DataFrame:
    state = pl.when("present").then(pl.lit("present")).otherwise(pl.lit("not_present"))
    explicit = labels.rows().select("clip_id", "class_id", state=state)
    masked = ignored.select("clip_id", "class_id", state=pl.lit("ignored")).unique()
    return pl.concat([explicit, masked]).sort("clip_id", "class_id")
