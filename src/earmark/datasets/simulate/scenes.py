"""Synthetic sound scenes whose complete labels are known.

A scene is background noise with a few events at random times and levels. Each event is a sound of
one class (:mod:`earmark.datasets.simulate.sound_sources`), drawn by long-tailed priors. The
classes form a small ontology: siblings sound alike, and a parent is present where a child is.
:mod:`earmark.datasets.simulate.hiding` removes labels as AudioSet's nomination did.

:func:`pooled_scenes` computes the features of a linear probe together with the sound; each part of
the scenes is one task and one file, so an interrupted run resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.audio import log_mel, plain_wav, pooled
from earmark.compute import HERE, SILENT, AsOneJob, Engine, Meter, Progress, Task
from earmark.config import HidingParams, SceneParams
from earmark.datasets.simulate import sound_sources
from earmark.datasets.simulate.hiding import hide
from earmark.datasets.simulate.sound_sources import SAMPLE_RATE_HZ, noise
from earmark.datasets.workspace import (
    AUDIO_FOLDER,
    CLIP_SCHEMA,
    Workspace,
    refuse_others_files,
    write_dataset,
)
from earmark.errors import EarmarkError
from earmark.labels import NOT_PRESENT, PRESENT, LabelSet, Ontology
from earmark.storage import read_noted, write_array, write_aside, write_json, writes

_SCENES_IN_A_PART = 100


def pooled_scenes(
    root: Path, params: SceneParams, *, engine: Engine = HERE, progress: Progress = SILENT
) -> NDArray[np.float32]:
    """Write the sound of all scenes into a folder; return their pooled log-mel [clip, feature].

    Clips are in the order of :func:`write_scenes`, which then finds their sound there. Scenes of
    other parameters are refused.
    """
    claim_folder(root, "scenes", _shape(params))
    n_clips = params.n_train + params.n_tune + params.n_eval
    starts = range(0, n_clips, _SCENES_IN_A_PART)
    parts = [range(start, min(start + _SCENES_IN_A_PART, n_clips)) for start in starts]
    waiting = [part for part in parts if not _part_path(root, part).exists()]
    meter = progress.job("scenes", sum(map(len, waiting)), "clips") if waiting else None
    tasks = [
        Task("scenes", _write_part, {"root": root, "params": params, "part": part}, len(part))
        for part in waiting
    ]
    engine.map(tasks, SILENT if meter is None else AsOneJob(meter))
    return np.concatenate([np.load(_part_path(root, part)) for part in parts])


def _shape(params: SceneParams) -> dict[str, Any]:
    """Return the parameters that shape a scene; the sizes of the splits do not."""
    return params.model_dump(mode="json", include=set(_SHAPING_FIELDS))


def _write_part(root: Path, params: SceneParams, part: range, meter: Meter) -> None:
    features = []
    for index in part:
        waveform = scene(params, index)[0]
        write_sound(root, index, waveform)
        features.append(pooled(log_mel(waveform)))
        meter.advance(1)
    write_array(_part_path(root, part), np.array(features))


def _part_path(root: Path, part: range) -> Path:
    return root / "pooled" / f"{part.start:06d}-{part.stop:06d}.npy"


LOUDEST_PEAK = 0.95
_BACKGROUND_DB = (-52.0, -28.0)
"""Level of the background noise below full scale, drawn uniformly."""
_NOISE_SLOPES = (0.0, 1.0, 2.0)
"""White, pink and brown: the power of the background falls as frequency ** -slope."""

_LEVEL_SAMPLES = SAMPLE_RATE_HZ // 10
_SHAPING_FIELDS = (
    "clip_seconds",
    "max_events",
    "shortest_event_seconds",
    "level_range_db",
    "prior_exponent",
    "seed",
)


@dataclass(frozen=True)
class SceneClass:
    """One row of the class table; a class without a rank is a parent of others."""

    class_id: str
    name: str
    definition: str
    parent: str | None = None
    rank: int | None = None
    """Place in the order of frequency, 1 the most frequent; it mixes the families."""

    @property
    def source(self) -> sound_sources.Source | None:
        """What makes its sound: the function of its name."""
        return getattr(sound_sources, self.class_id) if self.rank else None


CLASSES: tuple[SceneClass, ...] = (
    SceneClass("human", "Human sounds", "Sounds made by people's voices, hands and feet."),
    SceneClass("speech", "Speech", "A person speaking, in words or in babble.", "human"),
    SceneClass("male_speech", "Male speech", "A low voice speaking.", "speech", 1),
    SceneClass("female_speech", "Female speech", "A higher voice speaking.", "speech", 8),
    SceneClass("child_speech", "Child speech", "A child's high voice speaking.", "speech", 22),
    SceneClass("laughter", "Laughter", "Rhythmic breathy calls of amusement.", "human", 29),
    SceneClass("applause", "Applause", "Several hands clapping.", "human", 16),
    SceneClass(
        "footsteps", "Footsteps", "Feet falling on a floor, walking or running.", "human", 12
    ),
    SceneClass("whistling", "Whistling", "A melody whistled with the lips.", "human", 24),
    SceneClass("animal", "Animal", "Sounds made by animals."),
    SceneClass("songbird", "Songbird", "Quick high chirps in phrases.", "animal", 3),
    SceneClass("crow", "Crow", "Harsh caws.", "animal", 31),
    SceneClass("dog_bark", "Dog bark", "Short sharp barks.", "animal", 9),
    SceneClass(
        "cat_meow", "Cat meow", "Long calls with an opening and closing mouth.", "animal", 25
    ),
    SceneClass("cricket", "Cricket", "A high tone in pulses, rubbed by an insect.", "animal", 18),
    SceneClass("vehicle", "Vehicle", "Sounds of machines that carry people and goods."),
    SceneClass("car_engine", "Car engine", "A car's engine, idling or cruising.", "vehicle", 2),
    SceneClass("motorcycle", "Motorcycle", "A buzzing engine that is revved.", "vehicle", 15),
    SceneClass(
        "helicopter", "Helicopter", "Beating rotor blades under a turbine's whine.", "vehicle", 28
    ),
    SceneClass("alarm", "Alarm", "Signals made to catch attention."),
    SceneClass("siren", "Siren", "The wailing, yelping or two-tone horn of a vehicle.", "alarm", 7),
    SceneClass("beep", "Beep", "Even bursts of one electronic tone.", "alarm", 20),
    SceneClass("telephone", "Telephone", "A warbling ring with pauses.", "alarm", 14),
    SceneClass("buzzer", "Buzzer", "A harsh, steady electric buzz.", "alarm", 30),
    SceneClass("mechanism", "Mechanism", "Tools and clockwork."),
    SceneClass(
        "drill", "Drill", "A motor's whine that sags and grinds under load.", "mechanism", 6
    ),
    SceneClass("saw", "Saw", "Rasping strokes of a hand saw.", "mechanism", 21),
    SceneClass("hammer", "Hammer", "Blows on metal.", "mechanism", 26),
    SceneClass("clock_tick", "Clock tick", "The strict small clicks of a clock.", "mechanism", 13),
    SceneClass("music", "Musical instrument", "Instruments, played."),
    SceneClass("bell", "Bell", "Strokes of a bell that ring for long.", "music", 23),
    SceneClass("drum", "Drum", "Beats on a skin, with or without snares.", "music", 11),
    SceneClass("plucked_string", "Plucked string", "Notes of a guitar or harp.", "music", 5),
    SceneClass("flute", "Flute", "Held notes of a wind instrument.", "music", 17),
    SceneClass("nature", "Water and weather", "Sounds of water, air and storms."),
    SceneClass("rain", "Rain", "A steady hiss of many drops.", "nature", 4),
    SceneClass("wind", "Wind", "Gusts of moving air.", "nature", 10),
    SceneClass("drip", "Drip", "Single drops falling into water.", "nature", 19),
    SceneClass("thunder", "Thunder", "A crack and a rolling rumble.", "nature", 27),
)


@dataclass(frozen=True)
class _Event:
    column: int
    start: int
    n_samples: int
    fade_samples: int
    level_db: float


@cache
def ontology(with_parents: bool = True) -> Ontology:
    """Return the classes of all scenes: 31 sounds and their 8 parents, or the sounds alone."""
    chosen = [row for row in CLASSES if with_parents or row.source]
    return Ontology(
        class_ids=tuple(row.class_id for row in chosen),
        parents={row.class_id: (row.parent,) for row in chosen if row.parent and with_parents},
        names={row.class_id: row.name for row in chosen},
        definitions={row.class_id: row.definition for row in chosen},
    )


def priors(params: SceneParams) -> NDArray[np.float64]:
    """Return the chance [class] of each class at every event: rank ** -exponent, 0 for parents."""
    weights = np.array([row.rank**-params.prior_exponent if row.rank else 0.0 for row in CLASSES])
    return np.asarray(weights / weights.sum(), np.float64)


def scene(params: SceneParams, index: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return a scene's waveform [sample] in [-1, 1], and what :func:`scene_truth` says of it.

    The scene is a function of the parameters that shape it and of its index (0 or more) alone;
    the sizes of the splits do not change it.
    """
    rng, events = _begin(params, index)
    waveform = _background(rng, round(params.clip_seconds * SAMPLE_RATE_HZ))
    background_rms = np.sqrt(np.mean(waveform**2))
    for event in events:
        place = slice(event.start, event.start + event.n_samples)
        waveform[place] += background_rms * _render(event, rng)
    waveform /= max(1.0, float(np.abs(waveform).max()) / LOUDEST_PEAK)  # quiet scenes stay quiet
    return waveform.astype(np.float32), _truth(events)


def scene_truth(params: SceneParams, index: int) -> NDArray[np.bool_]:
    """Return which classes are present [class], without the sound."""
    return _truth(_begin(params, index)[1])


@writes("import scenes", "root", makes=True)
def write_scenes(
    root: Path,
    params: SceneParams,
    hiding: HidingParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> Workspace:
    """Write a dataset of scenes, its truth and its hidden labels into a workspace folder.

    Audio is 16 kHz, 16-bit WAV under ``root/audio``; files that are there already are kept, so
    an interrupted run continues. The truth has an explicit label for every clip and class. Train
    clips come first, then tune, then eval. Scenes that are there become what the parameters say;
    a dataset of others is refused.
    """
    root = Path(root)
    n_clips = params.n_train + params.n_tune + params.n_eval
    claim_folder(root, "scenes", _shape(params))
    waiting = [index for index in range(n_clips) if not (root / _audio_name(index)).exists()]
    n_tasks = min(engine.n_workers, len(waiting))
    hands = [waiting[first::n_tasks] for first in range(n_tasks)]
    engine.map(audio_tasks("scenes", _write_audio, hands, root=root, params=params), progress)
    clips = _clip_table(params, n_clips)
    is_present = np.array([scene_truth(params, index) for index in range(n_clips)])
    tree = ontology(params.with_parents)
    columns = [ontology().index[class_id] for class_id in tree.class_ids]
    states = np.where(is_present[:, columns], np.int8(PRESENT), np.int8(NOT_PRESENT))
    truth = LabelSet.from_dense(states, clips["clip_id"], tree.class_ids)
    labels = hide(truth, tree, hiding)
    return write_dataset(root, clips, tree, labels, truth, replace=True)


def _begin(params: SceneParams, index: int) -> tuple[np.random.Generator, list[_Event]]:
    """Return the scene's generator after it has drawn the events; the sounds come from the rest."""
    rng = np.random.default_rng([params.seed, index])
    columns = rng.choice(len(CLASSES), rng.integers(1, params.max_events + 1), p=priors(params))
    return rng, [_draw_event(rng, int(column), params) for column in columns]


def _draw_event(rng: np.random.Generator, column: int, params: SceneParams) -> _Event:
    longest = params.clip_seconds
    seconds = np.exp(rng.uniform(np.log(params.shortest_event_seconds), np.log(longest)))
    n_samples = int(seconds * SAMPLE_RATE_HZ)
    return _Event(
        column=column,
        start=int(rng.uniform(0, longest - seconds) * SAMPLE_RATE_HZ),
        n_samples=n_samples,
        fade_samples=min(int(rng.uniform(0.01, 0.1) * SAMPLE_RATE_HZ), n_samples // 4),
        level_db=rng.uniform(*params.level_range_db),
    )


def _background(rng: np.random.Generator, n_samples: int) -> NDArray[np.float64]:
    """Return noise of a random colour and level."""
    waveform = noise(rng, n_samples, power_slope=rng.choice(_NOISE_SLOPES))
    rms: float = 10 ** (rng.uniform(*_BACKGROUND_DB) / 20)
    return waveform * (rms / float(np.sqrt(np.mean(waveform**2))))


def _render(event: _Event, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return an event's sound, faded in and out, at its level above a background of RMS 1."""
    source = CLASSES[event.column].source
    if source is None:
        raise ValueError(f"{CLASSES[event.column].class_id} is a parent and has no sound")
    waveform = source(rng, event.n_samples)
    ramp = np.sin(np.linspace(0, np.pi / 2, event.fade_samples)) ** 2
    waveform[: len(ramp)] *= ramp
    waveform[event.n_samples - len(ramp) :] *= ramp[::-1]
    gain: float = 10 ** (event.level_db / 20)
    return waveform * (gain / _loudest_rms(waveform))


def _loudest_rms(waveform: NDArray[np.float64]) -> float:
    """Return the RMS of the loudest tenth of a second, so that sparse clicks are not blown up."""
    starts = np.arange(0, len(waveform), _LEVEL_SAMPLES)
    energies = np.add.reduceat(waveform**2, starts)
    return float(np.sqrt(energies.max() / _LEVEL_SAMPLES)) + 1e-12


def _truth(events: Sequence[_Event]) -> NDArray[np.bool_]:
    is_present = np.zeros(len(CLASSES), np.bool_)
    for event in events:
        is_present[list(_with_ancestors()[event.column])] = True
    return is_present


@cache
def _with_ancestors() -> tuple[tuple[int, ...], ...]:
    """Return, for each class, its own column and those of its ancestors."""
    tree = ontology()
    return tuple(
        (column, *(tree.index[ancestor] for ancestor in sorted(tree.ancestors(class_id))))
        for class_id, column in tree.index.items()
    )


def claim_folder(root: Path, kind: str, params: Mapping[str, Any]) -> None:
    """Note of which parameters a workspace's sounds are; refuse to mix them with others.

    ``kind`` is what they are called: scenes or mixtures. Another dataset is refused, too.
    """
    folder = root / AUDIO_FOLDER
    note = folder / f"{kind}.json"
    if note.exists():
        before = read_noted(note)
        changed = [
            f"{name} {before.get(name)} -> {value}"
            for name, value in params.items()
            if before.get(name) != value
        ]
        if changed:
            raise EarmarkError(
                f"{folder}: holds {kind} of other parameters ({', '.join(changed)}); give another "
                "workspace folder, or delete this one"
            )
    elif Workspace(root).has_dataset() or (folder.is_dir() and any(folder.iterdir())):
        raise EarmarkError(
            f"{root}: there is a dataset or sound in it already, which {kind} would replace; "
            "nothing was changed. Give another folder"
        )
    else:
        refuse_others_files(Workspace(root))
        write_json(note, params)


def audio_tasks(
    kind: str, function: Callable[..., None], hands: Sequence[Sequence[int]], **arguments: Any
) -> list[Task]:
    """Return a task for each part of the clips that are still to be written."""
    return [
        Task(
            label=f"{kind} {number}/{len(hands)}",
            function=function,
            arguments={**arguments, "indices": indices},
            n_units=len(indices),
            unit="clips",
        )
        for number, indices in enumerate(hands, start=1)
    ]


def _write_audio(root: Path, params: SceneParams, indices: Sequence[int], meter: Meter) -> None:
    for index in indices:
        write_sound(root, index, scene(params, index)[0])
        meter.advance(1)


def write_sound(root: Path, index: int, waveform: NDArray[np.float32]) -> None:
    """Write the sound of a scene into a workspace folder, whole or not at all.

    A WAV needs no library: scenes can be made and heard with the core alone.
    """
    with write_aside(root / _audio_name(index)) as aside:
        aside.write_bytes(plain_wav(waveform, SAMPLE_RATE_HZ))


def _clip_table(params: SceneParams, n_clips: int) -> pl.DataFrame:
    sizes = {"train": params.n_train, "tune": params.n_tune, "eval": params.n_eval}
    clip_ids = [_clip_id(index) for index in range(n_clips)]
    columns = {
        "clip_id": clip_ids,
        "audio": [_audio_name(index) for index in range(n_clips)],
        "start_seconds": np.zeros(n_clips),
        "end_seconds": np.full(n_clips, params.clip_seconds),
        "split": np.repeat(list(sizes), list(sizes.values())),
        "source": clip_ids,
    }
    return pl.DataFrame(columns, schema=CLIP_SCHEMA)


def _clip_id(index: int) -> str:
    return f"scene-{index:06d}"


def _audio_name(index: int) -> str:
    return f"{AUDIO_FOLDER}/{_clip_id(index)}.wav"
