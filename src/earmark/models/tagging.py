"""Tag sound files with a trained network: which classes are heard, how surely, and when.

A file passes through in blocks, so an hour, or a day of it, takes no more memory than a minute.
The score of a file is the mean output over its patches, as everywhere; the model card names the
classes, and no workspace is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.special import expit

from earmark.audio import YAMNET, log_mel, patches, stream_clip
from earmark.config import FrontEndParams
from earmark.errors import EarmarkError
from earmark.models.architectures import Network
from earmark.models.clip_scores import sum_outputs
from earmark.models.model_card import ModelCard, read_card
from earmark.models.saved import load_network

PATCHES_AT_ONCE = 64
"""Patches computed at a time: half a minute."""

MAX_COLUMNS = 4096
"""Columns that a strip keeps; more than any screen shows."""


class Strip:
    """Columns of numbers over time [column, row], in bounded memory however many are added.

    Once there are more than ``MAX_COLUMNS``, neighbours are averaged and every column stands for
    twice as many steps.
    """

    def __init__(self, n_rows: int) -> None:
        self.steps_per_column = 1
        self._columns = np.empty((0, n_rows), np.float32)
        self._rest = np.empty((0, n_rows), np.float32)  # steps that do not fill a column yet

    def add(self, steps: NDArray[np.floating]) -> None:
        """Append steps [step, row]."""
        self._rest = np.concatenate([self._rest, steps], dtype=np.float32)
        n_whole = len(self._rest) // self.steps_per_column
        n_used = n_whole * self.steps_per_column
        self._columns = np.concatenate([self._columns, self._averaged(self._rest[:n_used])])
        self._rest = self._rest[n_used:]
        while len(self._columns) > MAX_COLUMNS:
            self._halve()

    @property
    def columns(self) -> NDArray[np.float32]:
        """The columns [column, row]; the last may stand for fewer steps than the others."""
        rest = self._rest[:1] if not len(self._rest) else self._rest.mean(axis=0, keepdims=True)
        return np.concatenate([self._columns, rest])

    def _averaged(self, steps: NDArray[np.float32]) -> NDArray[np.float32]:
        shape = (-1, self.steps_per_column, steps.shape[1])
        return np.asarray(steps.reshape(shape).mean(axis=1))

    def _halve(self) -> None:
        n_even = len(self._columns) // 2 * 2
        odd = np.repeat(self._columns[n_even:], self.steps_per_column, axis=0)
        self._rest = np.concatenate([odd, self._rest])
        self._columns = self._columns[:n_even].reshape(-1, 2, self._columns.shape[1]).mean(axis=1)
        self.steps_per_column *= 2


@dataclass(frozen=True)
class Tag:
    """One class heard in a file: its mean output, and the middle of its best patch."""

    class_id: str
    name: str
    score: float
    best_seconds: float


@dataclass(frozen=True)
class Tags:
    """What a network hears in one file.

    ``scores`` float64 [class] are probabilities, the means over patches; ``best_seconds`` [class]
    the middles of the patches with the highest output. ``outputs`` [column, class] runs over time,
    a patch a step.
    """

    path: Path
    seconds: float
    card: ModelCard
    scores: NDArray[np.float64]
    best_seconds: NDArray[np.float64]
    outputs: Strip

    def top(self, n: int) -> list[Tag]:
        """Return the best-scored classes, best first."""
        ids, names = self.card.class_ids, self.card.class_names
        return [
            Tag(ids[i], names[i], float(self.scores[i]), float(self.best_seconds[i]))
            for i in self.top_columns(n)
        ]

    def timeline(self, n: int) -> pl.DataFrame:
        """Return the outputs of the ``n`` best-scored classes over time, as rows.

        Columns: audio, start_seconds, end_seconds, class_id, name, probability. A row is one patch;
        of long files it is the mean over neighbouring patches.
        """
        front_end, n_steps = self.card.front_end or YAMNET, self.outputs.steps_per_column
        hop = front_end.patch_hop_samples * n_steps / front_end.sample_rate_hz
        length = front_end.patch_samples + (n_steps - 1) * front_end.patch_hop_samples
        starts = np.arange(len(self.outputs.columns)) * hop
        ends = np.minimum(starts + length / front_end.sample_rate_hz, self.seconds)
        times = pl.DataFrame({"start_seconds": starts, "end_seconds": ends})
        return pl.concat(
            times.select(
                pl.lit(str(self.path)).alias("audio"),
                "start_seconds",
                "end_seconds",
                class_id=pl.lit(self.card.class_ids[column]),
                name=pl.lit(self.card.class_names[column]),
                probability=pl.Series(self.outputs.columns[:, column]),
            )
            for column in self.top_columns(n)
        )

    def top_columns(self, n: int) -> list[int]:
        """Return the columns of the best-scored classes, best first."""
        best: list[int] = np.argsort(-self.scores, kind="stable")[:n].tolist()
        return best


@dataclass(frozen=True)
class Tagger:
    """A trained network and its card; make it with :meth:`open`."""

    network: Network
    card: ModelCard
    front_end: FrontEndParams

    @classmethod
    def open(cls, folder: str | Path) -> Tagger:
        """Open the folder of a network that hears log-mel patches of sound."""
        folder = Path(folder)
        card, network = read_card(folder), load_network(folder)
        if card.front_end is None or not isinstance(network, Network):
            raise EarmarkError(
                f"{folder}: {card.network.model.architecture} was trained on embeddings made "
                "elsewhere, which earmark cannot make from audio; tag with a convolutional network "
                "trained on frames that `earmark features` made"
            )
        return cls(network, card, card.front_end)

    def tag(self, path: str | Path) -> Tags:
        """Tag a sound file, block by block; one that cannot be read raises UnreadableAudio."""
        path, params, n_classes = Path(path), self.front_end, len(self.card.class_ids)
        present, absent = np.zeros(n_classes), np.zeros(n_classes)
        highest, best_patch = np.full(n_classes, -np.inf, np.float32), np.zeros(n_classes, np.int64)
        outputs, n_patches, n_samples = Strip(n_classes), 0, 0

        def blocks() -> Iterator[NDArray[np.float32]]:
            nonlocal n_samples
            for block in stream_clip(path, params.sample_rate_hz):
                n_samples += len(block)
                yield block

        for batch in stream_patches(blocks(), params):
            logits = self._logits(batch)
            batch_present, batch_absent = sum_outputs(logits)
            present += batch_present[0]
            absent += batch_absent[0]
            is_higher = logits.max(axis=0) > highest
            best_patch = np.where(is_higher, logits.argmax(axis=0) + n_patches, best_patch)
            highest = np.maximum(logits.max(axis=0), highest)
            n_patches += len(batch)
            outputs.add(expit(logits))
        seconds = n_samples / params.sample_rate_hz
        middles = best_patch * params.patch_hop_samples + params.patch_samples / 2
        best_seconds = np.minimum(middles / params.sample_rate_hz, seconds)
        return Tags(path, seconds, self.card, present / (present + absent), best_seconds, outputs)

    @torch.inference_mode()
    def _logits(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        device = self.network.head.weight.device
        given = torch.from_numpy(batch.copy()).to(device)  # a copy: the view is read-only
        logits: NDArray[np.float32] = self.network(given).float().cpu().numpy()
        return logits


def stream_patches(
    blocks: Iterable[NDArray[np.float32]], params: FrontEndParams = YAMNET
) -> Iterator[NDArray[np.float32]]:
    """Turn the blocks of a waveform into batches of patches [patch, frame, band].

    Joined they are the patches of the whole waveform's log-mel frames; one that is empty has one
    patch of silence.
    """
    n_advance = PATCHES_AT_ONCE * params.patch_hop_samples
    n_overlap = params.patch_samples - params.patch_hop_samples
    waiting = np.empty(0, np.float32)
    is_first = True
    for block in blocks:
        waiting = np.concatenate([waiting, block])
        while len(waiting) >= n_advance + n_overlap:
            yield patches(log_mel(waiting[: n_advance + n_overlap], params), params)
            waiting, is_first = waiting[n_advance:], False
    if is_first or len(waiting) > n_overlap:  # else the last patch has covered all of it
        yield patches(log_mel(waiting, params), params)
