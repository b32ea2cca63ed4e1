"""The model card: what a trained network is, so that it can be used without its workspace.

``card.json`` stands beside the weights and is read by programs; ``README.md`` says the same to
people. Weights are safetensors: loading a network from a stranger runs no code of theirs.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from earmark.artefacts import read_json, write_json, write_text
from earmark.errors import EarmarkError
from earmark.ontology import Ontology
from earmark.params import FrontEndParams, NetworkParams

LIBRARIES = ("earmark", "torch", "numpy")
"""Libraries whose versions a card names, beside Python's."""


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
    """What was measured, by the name of the metric; empty where nothing was."""
    versions: dict[str, str]
    digest: str
    """Identifies the run: parameters, frames and labels."""


def write_card(
    folder: Path, ontology: Ontology, metrics: Mapping[str, float] | None = None
) -> ModelCard:
    """Write ``card.json`` and ``README.md`` into the folder of a finished network."""
    meta = read_json(folder / "meta.json")
    frames = meta["frames"]
    card = ModelCard(
        network=NetworkParams.model_validate(read_json(folder / "params.json")),
        class_ids=tuple(meta["class_ids"]),
        class_names=tuple(ontology.name(class_id) for class_id in meta["class_ids"]),
        n_inputs=meta["n_inputs"],
        patch_frames=frames["patch_frames"],
        n_students=meta["n_students"],
        front_end=frames["front_end"],
        metrics=dict(metrics or {}),
        versions={name: metadata.version(name) for name in LIBRARIES}
        | {"python": platform.python_version()},
        digest=meta["digest"],
    )
    write_json(folder / "card.json", card.model_dump(mode="json"))
    write_text(folder / "README.md", card_text(card))
    return card


def read_card(folder: Path) -> ModelCard:
    """Read the card of a network; refuse one that is of another run than the weights."""
    path = folder / "card.json"
    try:
        card = ModelCard.model_validate(read_json(path))
        meta = read_json(folder / "meta.json")
    except FileNotFoundError as error:
        raise EarmarkError(
            f"{folder}: no trained network with a model card here ({error.filename} is missing); "
            "`earmark train WORK` writes both to WORK/models/NAME"
        ) from None
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise EarmarkError(
            f"{path}: not a model card that this version reads ({place}: {problem['msg']}); "
            "run `earmark train` again"
        ) from None
    if card.digest != meta["digest"]:
        raise EarmarkError(
            f"{path}: the card is of run {card.digest}, the weights are of run {meta['digest']}; "
            "run `earmark train` again"
        )
    return card


def card_text(card: ModelCard) -> str:
    """Return the card as Markdown, for people."""
    train = card.network.train
    hears = "embeddings made elsewhere" if card.front_end is None else "log-mel patches of sound"
    facts = {
        "network": f"{card.network.model.architecture}, {len(card.class_ids):,} classes",
        "hears": f"{hears}, {card.n_inputs} numbers a frame",
        "training": f"{train.length}, seed {train.seed}",
        **{name: f"{value:.4f}" for name, value in card.metrics.items()},
        "run": card.digest,
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    classes = ", ".join(card.class_names)
    return (
        f"# {card.network.name}\n\nA sound classifier trained by earmark. Everything below is in "
        f"`card.json` for programs; the weights are safetensors.\n\n| | |\n|---|---|\n{rows}\n\n"
        f"Classes, in the order of the outputs: {classes}.\n"
    )
