"""Write and load finished networks, one or a stack of students, and measure them for their card.

A finished network is a folder: ``weights.safetensors``, ``params.json`` and, written last,
``meta.json`` with its classes, the frames that it takes and the digest of its run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from earmark.audio import FrameStore
from earmark.config import NetworkParams
from earmark.datasets import Split, Workspace, open_frames, readable_clips
from earmark.errors import EarmarkError, reader, reading
from earmark.metrics import evaluate
from earmark.models.architectures import AnyNetwork, build
from earmark.models.clip_scores import score_clips
from earmark.models.examples import examples_of
from earmark.models.model_card import (
    FrameKind,
    ModelCard,
    NetworkMeta,
    make_again,
    named_metrics,
    read_meta,
    read_params,
    write_card,
)
from earmark.storage import break_seal, digest, seal, write_aside, write_json


def write_network(
    folder: Path,
    params: NetworkParams,
    network: AnyNetwork,
    class_ids: Sequence[str],
    store: FrameStore,
    run_digest: str,
) -> None:
    """Write a finished network that was trained on a store's frames."""
    break_seal(folder)
    weights = {name: value.contiguous() for name, value in network.state_dict().items()}
    with write_aside(folder / "weights.safetensors") as aside:
        save_file(weights, aside)
    write_json(folder / "params.json", params.model_dump(mode="json"))
    meta = NetworkMeta(
        digest=run_digest,
        class_ids=tuple(class_ids),
        n_inputs=store.n_bands,
        n_students=network.n_students,
        frames=_kind_of_frames(store),
    )
    seal(folder, meta.model_dump(mode="json"))


@reader("a network")
def load_network(
    folder: Path, store: FrameStore | None = None, class_ids: Sequence[str] | None = None
) -> AnyNetwork:
    """Load a finished network, ready for scoring.

    ``store`` holds the frames that it is going to score, and ``class_ids`` are the classes of its
    scores; where it was trained on frames of another kind, or on other classes, it is refused.
    """
    meta, params = read_meta(folder), read_params(folder).model
    if store is not None:
        _check_frames(folder, meta.frames, store)
    if class_ids is not None:
        _check_classes(folder, meta.class_ids, class_ids)
    network = build(params, meta.n_inputs, len(meta.class_ids), meta.n_students)
    network.load_state_dict(_read_weights(folder, network))
    return network.eval()


def _read_weights(folder: Path, network: AnyNetwork) -> dict[str, Tensor]:
    """Read weights; refuse a damaged file, and tensors that are not the network's."""
    path = folder / "weights.safetensors"
    if not path.exists():
        raise EarmarkError(
            f"{folder}: no finished network here ({path.name} is missing); {make_again(folder)}"
        )
    with reading(path, "weights in safetensors", make_again(folder)):
        weights: dict[str, Tensor] = load_file(path)
    expected = {name: list(values.shape) for name, values in network.state_dict().items()}
    came = {name: list(values.shape) for name, values in weights.items()}
    for name in sorted(expected.keys() | came.keys()):
        if expected.get(name) != came.get(name):
            raise EarmarkError(
                f"{path}: not the weights of {folder / 'params.json'}: expected {name} with shape "
                f"{expected.get(name)}, got {came.get(name)}; {make_again(folder)}"
            )
    return weights


def _kind_of_frames(store: FrameStore) -> FrameKind:
    kind: FrameKind = FrameKind.model_validate(
        {name: getattr(store.meta, name) for name in FrameKind.model_fields}
    )
    return kind


def _check_frames(folder: Path, trained_on: FrameKind, store: FrameStore) -> None:
    given = _kind_of_frames(store)
    if trained_on == given:
        return
    expected, here = _flat(trained_on), _flat(given)
    differing = [
        f"{name} ({value}, here {here[name]})"
        for name, value in expected.items()
        if name in here and here[name] != value
    ]
    raise EarmarkError(
        f"{folder}: trained on frames {trained_on.digest()}, but {store.folder} holds frames "
        f"{given.digest()} with other {', '.join(differing)}; make them alike with `earmark "
        "features WORK --recipe RECIPE`, or train again with the command that trained it, such as "
        "`earmark train WORK`"
    )


def _flat(kind: FrameKind) -> dict[str, Any]:
    values = kind.model_dump()
    front_end = values["front_end"]
    values["front_end"] = "another program's" if front_end is None else "earmark's"
    return values | (front_end or {})


def _check_classes(folder: Path, trained_on: Sequence[str], given: Sequence[str]) -> None:
    if list(trained_on) == list(given):
        return
    raise EarmarkError(
        f"{folder}: trained on {len(trained_on)} classes {digest(list(trained_on))}, but the "
        f"labels have {len(given)} classes {digest(list(given))}, or these in another order; train "
        "again with the command that trained it, such as `earmark train WORK`"
    )


def write_measured_card(
    workspace: Workspace, network: NetworkParams, folder: Path, split: Split = "tune"
) -> ModelCard:
    """Measure a finished network on a split, and write its card with the results.

    The metrics are those of :data:`earmark.metrics.evaluation.METRICS`, named after the split
    (``tune_lwlrap``), those that could be measured; none where the split has no clips, or the
    folder holds a stack of students.
    """
    store = open_frames(workspace, network.model)
    found: Mapping[str, float] = {}
    trained = load_network(folder, store, workspace.labels.class_ids)
    if len(workspace.rows(split)):
        clips = readable_clips(workspace, store, split)
        logits = score_clips(trained, examples_of(network.model, store, clips.store_rows))
        if len(logits) == 1:
            found = evaluate(clips.labels, logits[0]).overall
    return write_card(folder, workspace.ontology, named_metrics(split, found))
