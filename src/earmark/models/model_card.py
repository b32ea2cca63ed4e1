"""The model card: what a trained network is, so that it can be used without its workspace.

``card.json`` stands beside the weights and is read by programs; ``README.md`` says the same to
people. Weights are safetensors: loading a network from a stranger runs no code of theirs. A file
that is damaged, or of another version, is named with what to do about it.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from earmark.config import FrontEndParams, NetworkParams, Params
from earmark.errors import EarmarkError, nearest, reader
from earmark.labels import Ontology
from earmark.storage import read_json, seal_path, write_json, write_text
from earmark.text import markdown

LIBRARIES = ("earmark", "torch", "numpy")
"""Libraries whose versions a card names, beside Python's."""

_AnyRecord = TypeVar("_AnyRecord", bound=BaseModel)


class FrameKind(Params):
    """What frames must have in common with those that a network was trained on."""

    n_bands: int
    patch_frames: int
    patch_hop_frames: int
    front_end: FrontEndParams | None
    """How the frames were made from sound; None for embeddings made elsewhere."""


class NetworkMeta(BaseModel):
    """What ``meta.json``, the seal of a finished network, says of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str
    """Identifies the run: parameters, frames and labels."""
    class_ids: tuple[str, ...]
    n_inputs: int
    n_students: int
    frames: FrameKind


class StudentCard(BaseModel):
    """One student of a sweep: its name in the result tables' folders, and what was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    metrics: dict[str, float] = {}


class ModelCard(BaseModel):
    """What a trained network hears, and how it came about."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    network: NetworkParams
    """The recipe: architecture, training and seed."""
    class_ids: tuple[str, ...]
    class_names: tuple[str, ...]
    """Identifiers and names of the outputs, in their order."""
    n_inputs: int
    """Numbers in one frame."""
    patch_frames: int
    """Frames in one patch."""
    n_students: int
    """Networks in the stack; 1 unless the students of a sweep trained at once."""
    front_end: FrontEndParams | None
    """How the frames were made from sound; None for embeddings made elsewhere."""
    metrics: dict[str, float]
    """What was measured, by the name of the metric; empty for a stack, and where nothing was."""
    versions: dict[str, str]
    digest: str
    """Identifies the run: parameters, frames and labels."""
    students: tuple[StudentCard, ...] = ()
    """The students of a sweep that the folder holds, in the order of the stack."""

    def place_of(self, student: str) -> int:
        """Return a student's place in the stack, given by its name or its number from 0."""
        names = [one.name for one in self.students]
        if student in names:
            return names.index(student)
        if student.isdecimal() and int(student) < self.n_students:
            return int(student)
        raise EarmarkError(
            f"network {self.network.name!r} has no student {student!r}; give a number from 0 to "
            f"{self.n_students - 1}" + (f", or a name{nearest(student, names)}" if names else "")
        )


def write_card(
    folder: Path,
    ontology: Ontology,
    metrics: Mapping[str, float] | None = None,
    students: Sequence[StudentCard] = (),
) -> ModelCard:
    """Write ``card.json`` and ``README.md`` into the folder of a finished network.

    ``students`` are those of a sweep that it holds; one that is alone gives its metrics to the
    whole card.
    """
    meta = read_meta(folder)
    if metrics is None and len(students) == 1:
        metrics = students[0].metrics
    card = ModelCard(
        network=read_params(folder),
        class_ids=meta.class_ids,
        class_names=tuple(ontology.name(class_id) for class_id in meta.class_ids),
        n_inputs=meta.n_inputs,
        patch_frames=meta.frames.patch_frames,
        n_students=meta.n_students,
        front_end=meta.frames.front_end,
        metrics=dict(metrics or {}),
        versions={name: metadata.version(name) for name in LIBRARIES}
        | {"python": platform.python_version()},
        digest=meta.digest,
        students=tuple(students),
    )
    write_text(folder / "README.md", card_text(card))
    write_json(folder / "card.json", card.model_dump(mode="json"))
    return card


@reader("a model card")
def read_card(folder: Path) -> ModelCard:
    """Read the card of a network; refuse one that is of another run than the weights."""
    card, meta = _read_record(folder / "card.json", ModelCard), read_meta(folder)
    if card.digest != meta.digest:
        raise EarmarkError(
            f"{folder / 'card.json'}: the card is of run {card.digest}, the weights are of run "
            f"{meta.digest}; run `earmark train` again"
        )
    return card


def read_meta(folder: Path) -> NetworkMeta:
    """Read the seal of a finished network."""
    return _read_record(seal_path(folder), NetworkMeta)


def read_params(folder: Path) -> NetworkParams:
    """Read the parameters of a finished network."""
    return _read_record(folder / "params.json", NetworkParams)


def make_again(folder: Path) -> str:
    """Return what a user does about a damaged network: the end of an error's message."""
    return f"delete {folder} and run the command that trained it again, such as `earmark train`"


def card_text(card: ModelCard) -> str:
    """Return the card as Markdown, for people."""
    train = card.network.train
    hears = "embeddings made elsewhere" if card.front_end is None else "log-mel patches of sound"
    facts = {
        "network": f"{card.network.model.architecture}, {len(card.class_ids):,} classes",
        "hears": f"{hears}, {card.n_inputs} numbers a frame",
        "training": f"{train.length}, seed {train.seed}",
        **_shown(card.metrics),
        "run": card.digest,
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
    }
    rows = "\n".join(f"| {name} | {markdown(value)} |" for name, value in facts.items())
    classes = markdown(", ".join(card.class_names))
    return (
        f"# {card.network.name}\n\nA sound classifier trained by earmark. Everything below is in "
        f"`card.json` for programs; the weights are safetensors.\n\n| | |\n|---|---|\n{rows}\n\n"
        f"{_students_text(card)}Classes, in the order of the outputs: {classes}.\n"
    )


def _students_text(card: ModelCard) -> str:
    """Return a table of a stack's students; empty for a network that is alone."""
    if len(card.students) < 2:
        return ""
    names = list(dict.fromkeys(name for one in card.students for name in one.metrics))
    lines = [["student", "name", *names], ["---"] * (2 + len(names))]
    for place, one in enumerate(card.students):
        shown = _shown(one.metrics)
        lines.append([str(place), markdown(one.name), *(shown.get(name, "") for name in names)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"Students that trained at once, each with weights of its own:\n\n{table}\n\n"


def _shown(metrics: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in metrics.items()}


def _read_record(path: Path, kind: type[_AnyRecord]) -> _AnyRecord:
    """Read a JSON file of a network as a record; say what is missing or wrong."""
    if not path.exists():
        raise EarmarkError(
            f"{path.parent}: no finished network here ({path.name} is missing); `earmark train "
            "WORK` writes one, with its model card, to WORK/models/NAME"
        )
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"]) or "the whole"
        raise EarmarkError(
            f"{path}: not a {_NOUNS[kind]} that this version reads ({place}: {problem['msg']}, "
            f"got {str(problem['input'])[:80]!r}); {make_again(path.parent)}"
        ) from None


_NOUNS: Mapping[type[BaseModel], str] = {
    ModelCard: "model card",
    NetworkMeta: "network's description",
    NetworkParams: "network's recipe",
}


def named_metrics(split: str, overall: Mapping[str, float]) -> dict[str, float]:
    """Name metrics after their split, as a card has them.

    What could not be measured, NaN or infinite, is left out: JSON has no such numbers.

    >>> named_metrics("tune", {"lwlrap": 0.5, "map": float("nan")})
    {'tune_lwlrap': 0.5}
    """
    known = {name: value for name, value in overall.items() if math.isfinite(value)}
    return {f"{split}_{name}": value for name, value in known.items()}
