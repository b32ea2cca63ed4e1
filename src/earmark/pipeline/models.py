"""Trained networks in use: tags of sound files, ONNX files, and metrics of scores.

Networks are imported inside the functions: torch takes seconds to load, and is an extra.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl

from earmark.datasets import Workspace
from earmark.errors import EarmarkError, EarmarkWarning, nearest, short_repr
from earmark.labels import Ontology, read_label_file, refuse_no_labels
from earmark.metrics import Evaluation, evaluate
from earmark.options import Argument, Option
from earmark.pipeline.opening import WorkLike
from earmark.scores import ScoreFolder, arrange, leave_out_unscored, open_score_file
from earmark.storage import write_table

if TYPE_CHECKING:
    from earmark.models import Tags


@dataclass(frozen=True)
class TaggedFile:
    """What a network detects in a sound file; ``reason`` says why a file cannot be read."""

    path: Path
    tags: Tags | None = None
    reason: str | None = None

    __repr__ = short_repr


@dataclass(frozen=True)
class ExportedModel:
    """A network written as ONNX, and how far its outputs are from torch's at the most."""

    path: Path
    n_classes: int
    largest_difference: float

    __repr__ = short_repr


def tag_files(
    paths: Annotated[Sequence[str | Path], Argument("Sound files.", "AUDIO...")],
    model: Annotated[str | Path, Option("The folder of a trained network.")],
    *,
    n_top: Annotated[int, Option("Classes to name for each file.", "--top", low=1)] = 5,
    out: Annotated[
        str | Path | None, Option("CSV or Parquet file to write: probabilities over time.")
    ] = None,
) -> Iterator[TaggedFile]:
    """Name the classes heard in sound files of any length, one file after another.

    ``model`` is the folder of a trained network. ``out`` gets the probabilities over time of the
    ``n_top`` best classes of every file.
    """
    from earmark.audio import UnreadableAudio
    from earmark.models import Tagger

    tagger = Tagger.open(model)
    timelines = []
    for path in map(Path, paths):
        try:
            tags = tagger.tag(path)
        except UnreadableAudio as error:
            yield TaggedFile(path, reason=error.reason)
            continue
        if out is not None:
            timelines.append(tags.timeline(n_top))
        yield TaggedFile(path, tags)
    if out is not None and timelines:
        write_table(out, pl.concat(timelines), for_people=True)


def export_model(
    work: WorkLike,
    path: Annotated[str | Path, Argument("ONNX file to write.", "FILE")],
    model: Annotated[
        str | None, Option("onnx: the network's name, a folder of WORK/models.")
    ] = None,
    *,
    with_front_end: Annotated[
        bool, Option("onnx: from waveforms, or from log-mel patches.", "--front-end/--no-front-end")
    ] = True,
    student: Annotated[
        str | None, Option("onnx: one of a stack of probes: its name, or number from 0.")
    ] = None,
) -> ExportedModel:
    """Write a trained network as ONNX, classes in its metadata, checked against torch.

    ``model`` is its name, a folder of the workspace's ``models``. With its front end the graph
    takes waveforms, without it log-mel patches.
    """
    from earmark.models import load_network, read_card, write_onnx

    folder = _model_folder(work, model)
    card, network = read_card(folder), load_network(folder)
    if student is not None:
        network = network.student(card.place_of(student))
    difference = write_onnx(Path(path), network, card, with_front_end=with_front_end)
    return ExportedModel(Path(path), len(card.class_ids), difference)


def _model_folder(work: WorkLike, name: str | None) -> Path:
    """Return the folder of a trained network; refuse a name that is not there, and list those."""
    workspace = work if isinstance(work, Workspace) else Workspace(Path(work))
    names = sorted(path.parent.name for path in workspace.models_folder.glob("*/card.json"))
    if name is None:
        if len(names) == 1:
            return workspace.model_folder(names[0])
        listed = ", ".join(names) or "none: train one with `earmark train`"
        raise EarmarkError(f"{workspace.models_folder}: say which network with --model; {listed}")
    if name not in names:
        raise EarmarkError(
            f"{workspace.models_folder}: no network is called {name!r}{nearest(name, names)}"
        )
    return workspace.model_folder(name)


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
