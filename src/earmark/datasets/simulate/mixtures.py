"""Mixtures of single-label recordings: clips of recorded sound whose complete labels are known.

A mixture is background noise with one to a few recordings at random times and levels, each of
another class, drawn by long-tailed priors. Source recordings are dealt to groups, class by class,
and a clip takes all of its sounds from one group: no recording is in two splits, and folds by
``source`` (the group) share no recording. :mod:`earmark.datasets.simulate.hiding` removes labels
as AudioSet's nomination did.

A clip is a function of the recordings, the parameters and its index. All arithmetic on samples is
on integers, so clips have the same samples on every machine that decodes the recordings alike.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import UnreadableAudio, read_clip
from earmark.compute import HERE, SILENT, Engine, Meter, Progress
from earmark.config import HidingParams, MixtureParams
from earmark.datasets.simulate.hiding import draw_by_name, hide, n_missing
from earmark.datasets.simulate.scenes import audio_tasks, claim_folder
from earmark.datasets.simulate.sound_sources import SAMPLE_RATE_HZ
from earmark.datasets.workspace import (
    AUDIO_FOLDER,
    CLIP_SCHEMA,
    ImportSummary,
    Workspace,
    write_dataset,
)
from earmark.errors import EarmarkError, counted, load_library
from earmark.labels import NOT_PRESENT, PRESENT, LabelSet, Ontology
from earmark.storage import digest, write_aside, write_table, writes


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
        groups: dict[int, dict[str, list[Recording]]] = {}
        for recording in self.recordings:
            of_group = groups.setdefault(recording.group, {})
            of_group.setdefault(recording.class_id, []).append(recording)
        return groups

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
        own = sorted(members[class_id], key=lambda name: draw_by_name(params.seed, "source", name))
        dealt = Counter(groups[name] for name in own if name in groups)
        first = int(draw_by_name(params.seed, "first", class_id) * params.n_groups)
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


CONTENTS = f"{AUDIO_FOLDER}/mixtures.csv"
"""What every clip is made of: recording, class, place and level."""

_FULL_SCALE = 32_767
_LEVEL = 1_638
"""Root mean square of a sound at 0 dB, measured over what is not silent in it: -26 dBFS."""
_LOUDEST = 31_100
_FRACTION_BITS = 16
"""Gains are whole multiples of 2 ** -16."""
_BLOCK_SAMPLES, _SILENT_SHARE = 400, 10_000
"""A block of 25 ms is silent below a ten-thousandth (-40 dB) of the loudest block's energy."""
_FADE_SAMPLES = 160
_NOISE_OCTAVES = (1, 6, 11)
"""Rows of held random numbers whose sum is the background: white, pinkish, pink."""

Samples = NDArray[np.int64]


@dataclass(frozen=True)
class Event:
    """A sound in a clip: ``where`` and ``length`` (of 1) say which stretch of the recording."""

    recording: Recording
    level_db: float
    seconds: float
    where: float
    at: float


@writes("import", makes=True)
def import_mixtures(
    recordings: Workspace,
    work: Path,
    params: MixtureParams | None = None,
    hiding: HidingParams | None = None,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write clips mixed from a workspace of recordings, their truth and hidden labels.

    A recording counts if its explicit positives are one class and, maybe, ancestors of it. Audio
    is 16 kHz, 16-bit FLAC under ``work/audio``; files that are there are kept, so an interrupted
    run goes on. Mixtures of other parameters in ``work`` are refused.
    """
    params, hiding = params or MixtureParams(), hiding or HidingParams(recall_range=(0.3, 0.9))
    sources = find_sources(recordings, params)
    root = Path(work)
    noted = params.model_dump(mode="json", exclude={"n_clips"})
    listed = [[one.clip_id, one.class_id, one.group] for one in sources.recordings]
    claim_folder(root, "mixtures", noted | {"recordings": digest(listed)})
    waiting = [i for i in range(params.n_clips) if not (root / _audio_name(i)).exists()]
    waiting.sort(key=lambda index: (index % params.n_groups, index))  # whole groups at a time
    parts = np.array_split(waiting, max(min(engine.n_workers, len(waiting)), 1))
    hands = [part.tolist() for part in parts if len(part)]
    engine.map(
        audio_tasks("mixtures", _write_clips, hands, root=root, params=params, sources=sources),
        progress,
    )
    drawn = [draw_events(params, sources, index) for index in range(params.n_clips)]
    clips = _clip_table(params)
    states = _states(drawn, sources.ontology)  # [clip, class]
    truth = LabelSet.from_dense(states, clips["clip_id"], sources.ontology.class_ids)
    labels = hide(truth, sources.ontology, hiding)
    write_table(root / CONTENTS, _contents(clips["clip_id"].to_list(), drawn))
    workspace = write_dataset(work, clips, sources.ontology, labels, truth, replace=True)
    notes = _notes(recordings, sources, int(n_missing(truth, labels).sum()), labels)
    return ImportSummary(workspace, params.n_clips, params.n_clips, 0, notes)


def draw_events(params: MixtureParams, sources: Sources, index: int) -> list[Event]:
    """Draw what a clip is made of; see :func:`mixed_sound` for its sound."""
    rng = np.random.default_rng([params.seed, index, 0])
    own = sources.by_group[index % params.n_groups]
    names = [name for name in sources.class_ids if name in own]
    weights = np.array([_prior(params, sources, name) for name in names])
    n_sounds = min(int(rng.integers(1, params.max_sounds + 1)), len(names))
    chosen = rng.choice(len(names), n_sounds, replace=False, p=weights / weights.sum())
    return [_draw_event(rng, own[names[place]], params) for place in chosen.tolist()]


def mixed_sound(params: MixtureParams, sources: Sources, index: int) -> NDArray[np.int16]:
    """Return the samples of a clip, int16 [sample]; turned down as a whole where it would clip."""
    events = draw_events(params, sources, index)
    rng = np.random.default_rng([params.seed, index, 1])
    n_samples = round(params.clip_seconds * SAMPLE_RATE_HZ)
    mixed = _background(rng, n_samples, rng.uniform(*params.background_range_db))
    for event in events:
        sound = _stretch(event, n_samples)
        start = round(event.at * (n_samples - len(sound)))
        mixed[start : start + len(sound)] += sound
    loudest = max(int(np.abs(mixed).max()) >> _FRACTION_BITS, 1)
    if loudest > _LOUDEST:
        mixed = mixed // loudest * _LOUDEST
    half = 1 << (_FRACTION_BITS - 1)
    return ((mixed + half) >> _FRACTION_BITS).astype(np.int16)


def _prior(params: MixtureParams, sources: Sources, class_id: str) -> float:
    """Return a class's weight: rank ** -exponent, the ranks drawn by name and seed."""
    rank = _ranks(sources.class_ids, params.seed)[class_id]
    return float(rank**-params.prior_exponent)


@lru_cache
def _ranks(class_ids: tuple[str, ...], seed: int) -> dict[str, int]:
    order = sorted(class_ids, key=lambda name: draw_by_name(seed, "rank", name))
    return {name: rank for rank, name in enumerate(order, 1)}


def _draw_event(rng: np.random.Generator, own: Sequence[Recording], params: MixtureParams) -> Event:
    recording = own[int(rng.integers(len(own)))]
    level_db = float(rng.uniform(*params.level_range_db))
    shortest, longest = math.log(params.shortest_sound_seconds), math.log(params.clip_seconds)
    seconds = math.exp(rng.uniform(shortest, longest))
    return Event(recording, level_db, seconds, float(rng.random()), float(rng.random()))


@dataclass(frozen=True)
class _Sound:
    """A recording's samples, which of its blocks are not silent, and what brings it to 0 dB."""

    samples: NDArray[np.int16]
    heard: NDArray[np.int64]
    gain: float


@lru_cache(maxsize=2_000)  # of 5 s: 320 MB
def _read(place: str | Path, start: float | None, end: float | None) -> _Sound:
    waveform = read_clip(place, SAMPLE_RATE_HZ, start, end)
    samples = np.rint(np.clip(waveform, -1, 1) * np.float32(_FULL_SCALE)).astype(np.int16)
    whole = np.pad(samples, (0, -len(samples) % _BLOCK_SAMPLES)).astype(np.int64)
    energies = np.square(whole).reshape(-1, _BLOCK_SAMPLES).sum(axis=1)
    heard = np.flatnonzero(energies * _SILENT_SHARE > energies.max())
    if not len(heard):
        raise UnreadableAudio(place, "the recording is silent; take it out of the dataset")
    power = int(energies[heard].sum()) / (len(heard) * _BLOCK_SAMPLES)
    return _Sound(samples, heard, _LEVEL / math.sqrt(power))


def _stretch(event: Event, n_samples: int) -> Samples:
    """Return a stretch of a recording around something that is not silent, at its level."""
    recording = event.recording
    sound = _read(recording.place, recording.start_seconds, recording.end_seconds)
    length = min(round(event.seconds * SAMPLE_RATE_HZ), len(sound.samples), n_samples)
    block = int(sound.heard[int(event.where * len(sound.heard))])
    start = min(max(block * _BLOCK_SAMPLES - length // 2, 0), len(sound.samples) - length)
    cut = sound.samples[start : start + length].astype(np.int64)
    cut *= _fixed(sound.gain, event.level_db)
    n_fade = min(_FADE_SAMPLES, length // 4)
    ramp = np.arange(n_fade)
    for edge in (cut[:n_fade], cut[::-1][:n_fade]):
        edge[:] = edge * ramp // max(n_fade, 1)
    return cut


def _background(rng: np.random.Generator, n_samples: int, level_db: float) -> Samples:
    """Return noise: a sum of random numbers, each row of them held twice as long as the last."""
    octaves = _NOISE_OCTAVES[int(rng.integers(len(_NOISE_OCTAVES)))]
    noise = np.zeros(n_samples + -n_samples % (1 << octaves), np.int32)
    for octave in range(octaves):
        held = noise.reshape(-1, 1 << octave)  # the same memory
        held += rng.integers(-1_024, 1_025, (len(held), 1), np.int32)
    samples: Samples = noise[:n_samples].astype(np.int64)
    power = int(np.square(samples).sum()) / n_samples
    return samples * _fixed(_LEVEL / math.sqrt(max(power, 1)), level_db)


def _fixed(gain: float, level_db: float) -> int:
    """Return a gain as a whole number of 2 ** -16."""
    return round(gain * 10 ** (level_db / 20) * (1 << _FRACTION_BITS))


def _states(drawn: Sequence[Sequence[Event]], ontology: Ontology) -> NDArray[np.int8]:
    """Return which classes, and ancestors of them, are present in every clip [clip, class]."""
    columns = {
        class_id: [ontology.index[name] for name in above if name in ontology.index]
        for class_id in ontology.class_ids
        for above in [{class_id, *ontology.ancestors(class_id)}]
    }
    states = np.full((len(drawn), len(ontology.class_ids)), NOT_PRESENT, np.int8)
    for row, events in enumerate(drawn):
        for event in events:
            states[row, columns[event.recording.class_id]] = PRESENT
    return states


def _contents(clip_ids: Sequence[str], drawn: Sequence[Sequence[Event]]) -> pl.DataFrame:
    rows = [
        (clip_id, one.recording.clip_id, one.recording.class_id, one.seconds, one.at, one.level_db)
        for clip_id, events in zip(clip_ids, drawn, strict=True)
        for one in events
    ]
    columns = ["clip_id", "recording", "class_id", "longest_seconds", "place", "level_db"]
    return pl.DataFrame(rows, columns, orient="row")


def _write_clips(
    root: Path, params: MixtureParams, sources: Sources, indices: Sequence[int], meter: Meter
) -> None:
    """Write the sound of some clips, each file whole or not at all."""
    soundfile = load_library("soundfile", "mixing recordings", "audio")
    for index in indices:
        samples = mixed_sound(params, sources, index)
        with write_aside(root / _audio_name(index)) as aside:
            # Level 0 chooses its predictors by integers: the same bytes on every processor.
            soundfile.write(
                aside, samples, SAMPLE_RATE_HZ, "PCM_16", format="FLAC", compression_level=0.0
            )
        meter.advance(1)


def _clip_table(params: MixtureParams) -> pl.DataFrame:
    indices = range(params.n_clips)
    groups = [index % params.n_groups for index in indices]
    columns = {
        "clip_id": [f"mixture-{index:06d}" for index in indices],
        "audio": [_audio_name(index) for index in indices],
        "start_seconds": np.zeros(params.n_clips),
        "end_seconds": np.full(params.n_clips, params.clip_seconds),
        "split": [params.split_of(group) for group in groups],
        "source": [f"group-{group:02d}" for group in groups],
    }
    return pl.DataFrame(columns, schema=CLIP_SCHEMA)


def _audio_name(index: int) -> str:
    return f"{AUDIO_FOLDER}/mixture-{index:06d}.flac"


def _notes(
    recordings: Workspace, sources: Sources, n_hidden: int, labels: LabelSet
) -> tuple[str, ...]:
    n_used, n_there = len(sources.recordings), len(recordings.clips)
    passed = f"; {n_there - n_used:,} of no or several classes were passed over"
    n_given = int(labels.present.sum())
    return (
        f"mixed from {counted(n_used, 'recording')} of "
        f"{counted(len(sources.class_ids), 'class', 'classes')}"
        + (passed if n_there > n_used else ""),
        f"{n_given:,} labels are given and {n_hidden:,} hidden; truth.parquet has all of them",
    )
