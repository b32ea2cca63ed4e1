"""Trained networks in use: which classes sound files hold, and networks for other programs.

Networks are imported inside the functions: torch takes seconds to load, and is an extra.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from earmark.datasets import Workspace
from earmark.errors import EarmarkError, nearest, short_repr
from earmark.options import Argument, Option
from earmark.pipeline.opening import WorkLike

if TYPE_CHECKING:
    from earmark.models import Tags


@dataclass(frozen=True)
class TaggedFile:
    """What a network heard in a sound file, and the picture of when.

    A file that cannot be read has a ``reason`` and nothing else.
    """

    path: Path
    tags: Tags | None = None
    picture: Path | None = None
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
    n_drawn: Annotated[int, Option("Classes to name for each file.", "--top", low=1)] = 5,
    out: Annotated[str | Path, Option("Folder for the pictures.", default=Path("tags"))] = "tags",
) -> Iterator[TaggedFile]:
    """Name the classes heard in sound files of any length, and draw when; one file after another.

    ``model`` is the folder of a trained network. Pictures of files of one name from several folders
    are numbered.
    """
    from earmark.audio import UnreadableAudio
    from earmark.models import Tagger
    from earmark.report import timeline_figure, write_png

    tagger = Tagger.open(model)
    seen: Counter[str] = Counter()
    for path in map(Path, paths):
        seen[path.name] += 1
        try:
            tags = tagger.tag(path)
        except UnreadableAudio as error:
            yield TaggedFile(path, reason=error.reason)
            continue
        number = f"-{seen[path.name]}" if seen[path.name] > 1 else ""
        picture = Path(out) / f"{path.name}{number}.png"
        write_png(timeline_figure(tags, n_drawn), picture)
        yield TaggedFile(path, tags, picture)


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
    from earmark.models import load_network, read_card, student_of, write_onnx

    folder = _model_folder(work, model)
    card, network = read_card(folder), load_network(folder)
    if student is not None:
        network = student_of(network, card.place_of(student))
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
