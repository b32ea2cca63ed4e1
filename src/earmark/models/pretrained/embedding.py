"""Inference of a pretrained network over a workspace's clips, and scores by its own classes.

The outputs are two frame stores: ``embeddings`` (float16), the features of probes, and ``outputs``
(float32), the network's logits for its own classes. Each clip is decoded once for both, in tasks of
one shard each that can be resumed; memory does not grow with the number of clips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.audio import FrameFormat, FrameStore
from earmark.compute import HERE, SILENT, Engine, Progress
from earmark.config import PretrainedParams
from earmark.datasets import Workspace, readable_clips, write_frames, write_scores, write_stamp
from earmark.errors import EarmarkError, quoted
from earmark.models import sum_outputs
from earmark.models.pretrained.class_maps import ClassMap
from earmark.models.pretrained.network import NetworkFacts, PretrainedNetwork, open_network
from earmark.scores import UNLOCATED, Origin, ScoreFolder
from earmark.storage import digest, is_current, seal_path

CLIPS_PER_SHARD = 512
"""Fewer than for log-mel frames: inference is slower, and an interrupt should cost little."""


@dataclass(frozen=True)
class NetworkFeatures:
    """The frame stores of a network's embeddings and outputs; None for what it does not give."""

    facts: NetworkFacts
    embeddings: FrameStore | None
    outputs: FrameStore | None


@dataclass(frozen=True)
class NetworkExtractor:
    """A pretrained network as a feature extractor; each process opens it at its first clip."""

    params: PretrainedParams
    class_names: tuple[str, ...]
    facts: NetworkFacts

    @property
    def digest(self) -> str:
        """Identifies weights and use."""
        return self.facts.digest

    @property
    def sample_rate_hz(self) -> int:
        """Of the waveforms that the network takes."""
        return self.facts.sample_rate_hz

    @property
    def formats(self) -> tuple[FrameFormat, ...]:
        """Embeddings, then outputs, as far as the network gives them."""
        network_facts = asdict(replace(self.facts, output_names=(), output_ids=()))
        widths = {"float16": self.facts.n_features, "float32": self.facts.n_outputs}
        return tuple(
            FrameFormat(
                n_bands=width,
                dtype=dtype,
                patch_frames=1,
                patch_hop_frames=1,
                network_facts=network_facts,
            )
            for dtype, width in widths.items()
            if width
        )

    def frames(self, waveform: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
        """Return embeddings and logits, frame by frame."""
        (output,) = _opened(self.params, self.class_names).infer([waveform])
        arrays = [values for values in (output.embeddings, output.logits) if values is not None]
        return tuple(
            self._stored(values, frame_format.dtype)
            for values, frame_format in zip(arrays, self.formats, strict=True)
        )

    def _stored(self, values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            stored = values.astype(dtype)
        if not np.isfinite(stored).all():
            raise EarmarkError(
                f"{self.params.network}: it gives {np.abs(values).max():g} for a clip, which is no "
                "number that can be kept; is this the output that is meant (--embedding, --output)?"
            )
        return stored


def embed_clips(
    workspace: Workspace,
    params: PretrainedParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> NetworkFeatures:
    """Write a pretrained network's embeddings and outputs for all clips of a workspace.

    Finished shards are reused. Clips that cannot be read are quarantined.
    """
    names = tuple(workspace.ontology.name(one) for one in workspace.ontology.class_ids)
    facts = _opened(params, names).facts
    if not workspace.has_sound():
        raise EarmarkError(
            f"{workspace.root}: no clip has a sound file, which {facts.name} "
            "needs; import the dataset with its sounds (--audio FOLDER), or give scores of your "
            f"own: earmark score {quoted(workspace.root)} --from FILE"
        )
    places = {
        workspace.embeddings_folder: facts.n_features,
        workspace.outputs_folder: facts.n_outputs,
    }
    folders = tuple(folder for folder, width in places.items() if width)
    stores = write_frames(
        workspace,
        NetworkExtractor(params, names, facts),
        folders,
        label=f"embed with {facts.name}",
        clips_per_shard=CLIPS_PER_SHARD,
        engine=engine,
        progress=progress,
    )
    store_of: dict[Path, FrameStore] = dict(zip(folders, stores, strict=True))
    return NetworkFeatures(facts, *(store_of.get(folder) for folder in places))


def network_facts(params: PretrainedParams, class_names: Sequence[str] = ()) -> NetworkFacts:
    """Return what a network takes and gives; it stays open for inference."""
    return _opened(params, tuple(class_names)).facts


@lru_cache(maxsize=1)
def _opened(params: PretrainedParams, class_names: Sequence[str]) -> PretrainedNetwork:
    return open_network(params, class_names)


_CLIPS_AT_ONCE = 256


def score_zero_shot(
    workspace: Workspace,
    name: str,
    outputs: FrameStore,
    class_map: ClassMap,
    *,
    origin: Origin,
    out_of_fold: bool,
    progress: Progress = SILENT,
) -> ScoreFolder:
    """Score all clips by a network's own classes (``outputs``), under the name ``name``.

    A clip's score is the mean output over frames, stored as a logit, as in
    :mod:`earmark.models.clip_scores`. Classes that the network does not know are unscored: NaN,
    never flagged. ``out_of_fold`` says that the network was not trained on these clips. Returns the
    scores of the train split; those of the others are the held-out scores.
    """
    readable_clips(workspace, outputs, "train")  # refuses where there is none
    mapped = (class_map.outputs, class_map.columns, workspace.ontology.class_ids)
    run_digest = digest("zero-shot", outputs.digest, mapped, out_of_fold, workspace.splits_digest)
    folder = workspace.scores_folder(name)
    if not is_current(folder, run_digest):
        logits, best = _score_outputs(
            outputs, class_map, len(workspace.ontology.class_ids), progress
        )
        write_scores(
            workspace,
            name,
            outputs.clip_ids,
            logits,
            best,
            out_of_fold=out_of_fold,
            digest=run_digest,
            origin=origin,
        )
    write_stamp(workspace, seal_path(folder), of_frames=outputs.folder)
    return ScoreFolder.open(folder)


def _score_outputs(
    outputs: FrameStore, class_map: ClassMap, n_classes: int, progress: Progress
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return logits and best frames [clip, class] of every clip of the store."""
    n_clips = len(outputs.index)
    logits = np.full((n_clips, n_classes), np.nan, np.float32)
    best = np.full((n_clips, n_classes), UNLOCATED, np.uint16)
    meter = progress.job("scores by its own classes", n_clips, "clips")
    columns, taken = list(class_map.columns), list(class_map.outputs)
    for row in range(n_clips):
        frames = outputs.frames(row)[:, taken]  # [frame, output]
        present, absent = sum_outputs(frames)
        logits[row, columns] = (np.log(present) - np.log(absent))[0]
        best[row, columns] = frames.argmax(axis=0)
        if (row + 1) % _CLIPS_AT_ONCE == 0 or row + 1 == n_clips:
            meter.advance((row % _CLIPS_AT_ONCE) + 1)
    return logits, best
