"""A network's scores of some clips as a folder: what was said, in which order, and by whom.

``logits.npy`` and ``best_patches.npy`` [clip, class] are memory-mapped; ``clips.parquet`` and
``meta.json`` name their clips and classes. ``meta.json`` is the seal: without it the scores are
not finished. Where a teacher hears a class is a patch of the frame store, counted from the clip's
start; scores that do not say it have no ``best_patches.npy``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, quoted, reader, reading, short_repr
from earmark.storage import (
    break_seal,
    file_sha256,
    is_current,
    is_finished,
    read_seal,
    read_table,
    refuse_long_header,
    seal,
    seal_path,
    write_array,
)
from earmark.storage import write_table as write_parquet

UNLOCATED = 65_535
"""The best patch of a label of which nobody knows where it is heard."""


@dataclass(frozen=True)
class MadeBy:
    """The network behind scores: its name under ``models``, and a student's place in the stack."""

    network: str
    student: int = 0


@dataclass(frozen=True)
class Origin:
    """Where scores come from that learnt nothing here: a file, or a network that others trained.

    ``path`` is empty where they were never in a file.
    """

    kind: Literal["file", "model"]
    path: str = ""

    @classmethod
    def at(cls, kind: Literal["file", "model"], path: str | Path | None) -> Origin:
        """Return the origin at a path, whatever folder it is named from."""
        return cls(kind, "" if path is None else str(Path(path).resolve()))

    @classmethod
    def noted(cls, meta: dict[str, Any]) -> Origin | None:
        """Return what a seal of scores says; None for scores by a teacher trained here."""
        return cls(**meta["origin"]) if "origin" in meta else None

    @property
    def option(self) -> str:
        """The option of ``earmark score`` that takes such scores again."""
        return f"--{'from' if self.kind == 'file' else 'teacher'} {quoted(self.path or 'FILE')}"

    @property
    def told(self) -> str:
        """What such scores are, in words."""
        is_file = self.kind == "file"
        return "scores of your own" if is_file else f"scores by {Path(self.path).name} as it is"


@dataclass(frozen=True)
class ScoreFolder:
    """A network's scores of some clips: logits float32 [clip, class], memory-mapped.

    ``best_patches`` [clip, class] is the patch with the highest output, UNLOCATED where nobody
    knows, None where nobody knows of any label (ask :meth:`best_patch`). ``made_by`` is None where
    several networks scored, one from elsewhere, or an earlier version of earmark. ``origin`` is
    where scores of the owner's own come from; None for those of a teacher trained here.
    """

    folder: Path
    clip_ids: pl.Series
    class_ids: tuple[str, ...]
    logits: NDArray[np.float32]
    best_patches: NDArray[np.uint16] | None
    out_of_fold: bool
    digest: str
    made_by: MadeBy | None = None
    origin: Origin | None = None

    __repr__ = short_repr

    @property
    def told(self) -> str:
        """Whose scores they are, and what is known of how they were made."""
        if self.origin is None:
            how = "out of fold" if self.out_of_fold else "in-sample"
            return f"scores by {self.folder.name}, {how}"
        return f"{self.origin.told}, {'' if self.out_of_fold else 'not known to be '}out of fold"

    @property
    def logits_path(self) -> Path:
        """The file of the logits."""
        return self.folder / "logits.npy"

    def best_patch(self, clip_id: str, class_id: str) -> int | None:
        """Return the patch in which a class is heard best; None where nobody knows."""
        row = self.clip_ids.index_of(clip_id)
        if self.best_patches is None or row is None or class_id not in self.class_ids:
            return None
        patch = int(self.best_patches[row, self.class_ids.index(class_id)])
        return None if patch == UNLOCATED else patch

    @classmethod
    @reader("a folder of scores", at=1)
    def open(cls, folder: str | Path) -> ScoreFolder:
        """Open the scores in a folder."""
        folder = Path(folder)
        if not is_finished(folder):
            raise EarmarkError(f"{folder}: no finished scores here; make them with `earmark score`")
        meta = read_seal(folder)
        missing = {"class_ids", "out_of_fold", "digest"} - set(meta)
        if missing:
            raise EarmarkError(
                f"{seal_path(folder)}: not of scores (no {', '.join(sorted(missing))}); "
                f"{_make_again(folder)}"
            )
        class_ids = tuple(meta["class_ids"])
        clip_ids = read_table(folder / "clips.parquet")["clip_id"].cast(pl.String)
        shape = (len(clip_ids), len(class_ids))
        has_patches = meta.get("has_best_patches", True)
        return cls(
            folder,
            clip_ids,
            class_ids,
            _open_matrix(folder / "logits.npy", shape),
            _open_matrix(folder / "best_patches.npy", shape) if has_patches else None,
            meta["out_of_fold"],
            meta["digest"],
            MadeBy(**meta["made_by"]) if "made_by" in meta else None,
            Origin.noted(meta),
        )


def write_score_folder(
    folder: Path,
    clip_ids: pl.Series,
    class_ids: Sequence[str],
    logits: NDArray[np.float32],
    best_patches: NDArray[np.uint16] | None,
    *,
    out_of_fold: bool,
    digest: str,
    made_by: MadeBy | None = None,
    origin: Origin | None = None,
) -> ScoreFolder:
    """Write scores into a folder; ``meta.json`` comes last, as its seal.

    ``made_by`` is the network, where it is one; ``origin`` is where scores from elsewhere come
    from. Scores of the same digest are left alone, but for their origin: a task that runs twice
    takes no seal away.
    """
    whence = {} if origin is None else {"origin": asdict(origin)}
    if is_current(folder, digest):
        if read_seal(folder).get("origin") != whence.get("origin"):
            seal(folder, read_seal(folder) | whence)
        return ScoreFolder.open(folder)
    break_seal(folder)
    write_array(folder / "logits.npy", logits)
    if best_patches is not None:
        write_array(folder / "best_patches.npy", best_patches)
    write_parquet(folder / "clips.parquet", pl.DataFrame({"clip_id": clip_ids}))
    meta = {"digest": digest, "out_of_fold": out_of_fold, "class_ids": list(class_ids)}
    meta |= {} if best_patches is not None else {"has_best_patches": False}
    written = (
        "logits.npy",
        "clips.parquet",
        *(() if best_patches is None else ("best_patches.npy",)),
    )
    meta["files"] = {name: file_sha256(folder / name) for name in written}
    network = {} if made_by is None else {"made_by": asdict(made_by)}
    seal(folder, meta | network | whence)
    return ScoreFolder.open(folder)


def _open_matrix(path: Path, shape: tuple[int, int]) -> NDArray[Any]:
    """Map an array [clip, class]; refuse one that is damaged or of another shape."""
    with reading(path, f"an array of shape {shape}", _make_again(path.parent)):
        refuse_long_header(path)
        matrix: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    if matrix.shape != shape:
        raise EarmarkError(
            f"{path} has shape {matrix.shape}, expected {shape}; {_make_again(path.parent)}"
        )
    return matrix


def _make_again(folder: Path) -> str:
    return f"delete {folder} and run the command that made it again, such as `earmark score`"
