"""Recordings of one class each, dealt to groups that share no source: what mixtures are made of."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, counted
from earmark.labels import LabelSet, Ontology
from earmark.runs import MixtureParams


@dataclass(frozen=True)
class Recording:
    """A recording of one class: its file, the stretch of it that counts, and where it is from."""

    clip_id: str
    place: str | Path
    start_seconds: float | None
    end_seconds: float | None
    class_id: str
    group: int


@dataclass(frozen=True)
class Sources:
    """Recordings by group and class, and the classes that they are of."""

    recordings: tuple[Recording, ...]
    ontology: Ontology

    @cached_property
    def by_group(self) -> dict[int, dict[str, list[Recording]]]:
        """The recordings of each group and class."""
        found: dict[int, dict[str, list[Recording]]] = {}
        for one in self.recordings:
            found.setdefault(one.group, {}).setdefault(one.class_id, []).append(one)
        return found

    @cached_property
    def class_ids(self) -> tuple[str, ...]:
        """The classes with recordings."""
        named = {one.class_id for one in self.recordings}
        return tuple(class_id for class_id in self.ontology.class_ids if class_id in named)


def find_sources(recordings: Workspace, params: MixtureParams) -> Sources:
    """Find the recordings of one class each, and deal their sources to groups."""
    ontology, clips = recordings.ontology, recordings.clips
    class_of = _single_classes(recordings.labels, ontology)
    usable = clips.filter(pl.col("audio").is_not_null()).sort("clip_id")
    rows = [row for row in usable.iter_rows(named=True) if row["clip_id"] in class_of]
    source_of = {row["clip_id"]: row["source"] or row["clip_id"] for row in rows}
    groups = _deal({name: class_of[name] for name in source_of}, source_of, params)
    found = tuple(
        Recording(
            row["clip_id"],
            recordings.audio_place(row["audio"]),
            row["start_seconds"],
            row["end_seconds"],
            class_of[row["clip_id"]],
            groups[source_of[row["clip_id"]]],
        )
        for row in rows
    )
    sources = Sources(found, ontology)
    _check(recordings, sources, params)
    return sources


def _single_classes(labels: LabelSet, ontology: Ontology) -> dict[str, str]:
    """Return the class of each clip whose positives are one class and ancestors of it."""
    positives = labels.rows().filter("present").group_by("clip_id").agg("class_id")
    above = {class_id: ontology.ancestors(class_id) for class_id in ontology.class_ids}
    found = {}
    for clip_id, names in positives.iter_rows():
        lowest = [name for name in names if not any(name in above[other] for other in names)]
        if len(lowest) == 1 and set(names) <= {lowest[0], *above[lowest[0]]}:
            found[clip_id] = lowest[0]
    return found


def _deal(
    class_of: dict[str, str], source_of: dict[str, str], params: MixtureParams
) -> dict[str, int]:
    """Give every source recording a group, so that each group gets its share of every class."""
    members: dict[str, set[str]] = defaultdict(set)
    for clip_id, class_id in class_of.items():
        members[class_id].add(source_of[clip_id])
    groups: dict[str, int] = {}
    for class_id in sorted(members):
        own = sorted(members[class_id], key=lambda name: drawn_by_name(params.seed, "source", name))
        dealt = Counter(groups[name] for name in own if name in groups)
        first = int(drawn_by_name(params.seed, "first", class_id) * params.n_groups)
        for name in own:
            if name not in groups:
                turn = range(first, first + params.n_groups)
                groups[name] = min((g % params.n_groups for g in turn), key=dealt.__getitem__)
                dealt[groups[name]] += 1
    return groups


def _check(recordings: Workspace, sources: Sources, params: MixtureParams) -> None:
    if not sources.recordings:
        raise EarmarkError(
            f"{recordings.root}: no recording has a sound and labels of exactly one class, which "
            "mixtures are made of"
        )
    empty = [g for g in range(params.n_groups) if g not in sources.by_group]
    if empty:
        raise EarmarkError(
            f"{recordings.root}: {counted(len(sources.recordings), 'recording')} of "
            f"{counted(len(sources.class_ids), 'class', 'classes')} are too few for "
            f"{params.n_groups} groups that share no source; ask for fewer (--groups)"
        )


def drawn_by_name(seed: int, what: str, name: str) -> float:
    """Return a number in [0, 1) that depends on these alone: the same on every machine."""
    text = f"{seed}:{what}:{name}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) / 2**64
