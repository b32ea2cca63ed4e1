"""Clip scores: the mean over a clip's patches of a network's output, and its best patch.

An output is a probability; the mean is stored as its logit.

A network of patches has an output for each patch. A probe sees a clip through statistics of its
frames, so it scores the clip again without each patch (a patch of embeddings is one frame): the
fall of the logit is that patch's *evidence*. The output for a patch alone would tell less, because
probes are not trained on clips of one frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from earmark.audio import FrameStore
from earmark.models.architectures import AnyNetwork, Probe, own_device
from earmark.models.examples import Examples, floats

_BATCH_EXAMPLES = 256
"""Clips scored at once, or patches on a GPU."""

CACHED_PATCHES = 32
"""Patches scored at once on a CPU: many more fall out of its cache."""


def score_clips(network: AnyNetwork, examples: Examples) -> NDArray[np.float32]:
    """Return logits float32 [student, clip, class].

    The logit is that of the mean output over a clip's examples (patches), exact also where all
    outputs are tiny.
    """
    logits = np.empty((network.n_students, len(examples.rows), network.n_classes), np.float32)
    for group, z, firsts in _outputs(network, examples):
        logits[:, group] = _logits_of_mean(z, firsts)
    return logits


def score_and_locate(
    network: AnyNetwork, examples: Examples
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Return what :func:`score_clips` does, and the best patches uint16 [student, clip, class].

    The best patch of a clip is the one whose output is highest; of a probe, which hears whole
    clips, the one that it can least do without (:mod:`earmark.models.clip_scores`).
    """
    if isinstance(network, Probe):
        return score_clips(network, examples), best_patches(network, examples)
    logits = np.empty((network.n_students, len(examples.rows), network.n_classes), np.float32)
    best = np.empty(logits.shape, np.uint16)
    for group, z, firsts in _outputs(network, examples):
        logits[:, group], best[:, group] = _logits_of_mean(z, firsts), _best(z, firsts)
    return logits, best


def sum_outputs(
    logits: NDArray[np.floating], firsts: Sequence[int] | NDArray[np.int64] = (0,)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum the outputs of a clip's examples, and what they lack to 1, from logits [..., example, c].

    Returns float64 [..., clip, class] twice, the clips beginning at the examples ``firsts``. Both
    sums keep their digits where all outputs are tiny, or all close to 1. Sums of parts of a clip
    add up; log(first) - log(second) is the logit of the clip's mean output.
    """
    z = logits.astype(np.float64)
    present = np.add.reduceat(expit(z), firsts, axis=-2)
    return present, np.add.reduceat(expit(-z), firsts, axis=-2)


@torch.inference_mode()
def forward_to_numpy(network: AnyNetwork, *inputs: Tensor) -> NDArray[np.float32]:
    """Return a network's logits of inputs that are on its device."""
    logits: NDArray[np.float32] = network(*inputs).float().cpu().numpy()
    return logits


def _n_at_once(network: AnyNetwork) -> int:
    is_on_cpu = next(network.parameters()).device.type == "cpu"
    return CACHED_PATCHES if is_on_cpu and not isinstance(network, Probe) else _BATCH_EXAMPLES


def _groups(per_clip: NDArray[np.int64], n_at_once: int) -> list[slice]:
    """Cut clips into runs of at most ``n_at_once`` examples, but of whole clips."""
    ends = np.cumsum(per_clip)
    groups, first = [], 0
    while first < len(ends):
        used = ends[first - 1] if first else 0
        after = int(np.searchsorted(ends, used + n_at_once, side="right"))
        after = max(after, first + 1)
        groups.append(slice(first, after))
        first = after
    return groups


def _outputs(
    network: AnyNetwork, examples: Examples
) -> Iterator[tuple[slice, NDArray[np.float32], NDArray[np.int64]]]:
    """Yield some clips, logits [student, example, class], and where the examples of each begin."""
    for group in _groups(examples.per_clip, _n_at_once(network)):
        lengths = examples.per_clip[group]
        firsts = np.cumsum(lengths) - lengths
        clips = np.repeat(np.arange(group.start, group.stop), lengths)
        which = np.arange(len(clips)) - np.repeat(firsts, lengths)
        z = forward_to_numpy(network, *examples.inputs(clips, which))
        yield group, z.reshape(-1, len(clips), z.shape[-1]), firsts


def _logits_of_mean(z: NDArray[np.float32], firsts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return logits [student, clip, class] of the mean outputs of each clip's examples."""
    present, absent = sum_outputs(z, firsts)
    return (np.log(present) - np.log(absent)).astype(np.float32)


def _best(z: NDArray[np.float32], firsts: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return the example [student, clip, class] of each clip with the highest output."""
    of_clips = np.split(z, firsts[1:], axis=1)
    return np.stack([own.argmax(axis=1) for own in of_clips], axis=1).astype(np.uint16)


def probe_features(probe: Probe, examples: Examples) -> NDArray[np.float32]:
    """Return what a probe without queries sees of clips [clip, feature]."""
    parts = []
    for first in range(0, len(examples.rows), _BATCH_EXAMPLES):
        clips = np.arange(first, min(first + _BATCH_EXAMPLES, len(examples.rows)))
        with torch.inference_mode():
            features = probe.see(*examples.inputs(clips, np.zeros_like(clips)))[0]
        parts.append(features.cpu().numpy())
    return np.concatenate(parts)


PATCHES_AT_ONCE = 256
"""Patches without which a probe is asked in one go: its weights are read once for all of them."""


def best_patches(probe: Probe, examples: Examples) -> NDArray[np.uint16]:
    """Return the patch with most evidence, uint16 [student, clip, class]; 0 where there is one.

    The evidence of a patch is what a clip's logit loses without it, so the best is the one without
    which the logit is lowest.
    """
    n_patches = examples.store.n_patches[examples.rows]
    best = np.zeros((probe.n_students, len(n_patches), probe.n_classes), np.uint16)
    places = np.flatnonzero(n_patches > 1)
    ends = n_patches[places].cumsum()
    for group in np.split(places, np.flatnonzero(np.diff(ends // PATCHES_AT_ONCE)) + 1):
        if len(group):
            best[:, group] = _best_of_some(probe, examples.store, examples.rows[group])
    return best


def _best_of_some(probe: Probe, store: FrameStore, rows: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return the best patches [student, clip, class] of clips that have several."""
    with torch.inference_mode():
        seen = [_seen_of_clip(probe, store, row) for row in rows.tolist()]
        without = probe.judge(torch.cat(seen, dim=1)).float().cpu().numpy()  # [s, patch, class]
    ends = np.cumsum([one.shape[1] for one in seen])
    of_clips = np.split(without, ends[:-1], axis=1)
    return np.stack([own.argmin(axis=1) for own in of_clips], axis=1).astype(np.uint16)


def patch_outputs(network: AnyNetwork, store: FrameStore, row: int) -> NDArray[np.float32]:
    """Return what speaks for each class in every patch of a clip, float32 [patch, class].

    Probabilities, by a network of patches; a probe's evidence, which may be negative. Of a stack,
    the first student's.
    """
    if isinstance(network, Probe):
        return np.asarray(evidence(network, store, row)[0])
    patches = store.patches(*np.broadcast_arrays(row, np.arange(store.n_patches[row])))
    with torch.inference_mode():
        logits = network(torch.from_numpy(patches.astype(np.float32)).to(own_device()))
        outputs: NDArray[np.float32] = torch.sigmoid(logits).float().cpu().numpy()
    return outputs


def evidence(probe: Probe, store: FrameStore, row: int) -> NDArray[np.float32]:
    """Return what the logits of a clip lose without each patch, float32 [student, patch, class].

    A clip of one patch, or less, has nothing to lose it to: zeros.
    """
    n_patches = int(store.n_patches[row])
    if n_patches < 2:
        return np.zeros((probe.n_students, n_patches, probe.n_classes), np.float32)
    given = floats(store.frames(row)).to(own_device())
    with torch.inference_mode():
        whole = probe(given.unsqueeze(0), torch.tensor([len(given)], device=given.device))
        without = probe.judge(_seen_of_clip(probe, store, row))
        lost: NDArray[np.float32] = (whole - without).float().cpu().numpy()
    return lost


def _seen_of_clip(probe: Probe, store: FrameStore, row: int) -> Tensor:
    """Return what a probe sees of a clip without each of its patches [student, patch, feature]."""
    frames = probe.compressed(floats(store.frames(row)).to(own_device()))
    firsts = torch.arange(int(store.n_patches[row]), device=frames.device) * store.patch_hop_frames
    return _seen_without(probe, frames, firsts, store.patch_frames)


def _seen_without(probe: Probe, frames: Tensor, firsts: Tensor, patch_frames: int) -> Tensor:
    """Return what a probe sees of a clip without each of its patches [student, patch, feature].

    These are :class:`Probe`'s own statistics of frames [frame, feature], by matrix products for all
    patches at once.
    """
    frame = torch.arange(len(frames), device=frames.device)
    first = firsts.unsqueeze(1)
    is_kept = (frame < first) | (frame >= first + patch_frames)  # [patch, frame]
    share = is_kept / is_kept.sum(dim=1, keepdim=True)
    centre = frames.mean(dim=0)  # of squares of what is far from 0 a difference keeps no digits
    offset = share @ (frames - centre)
    variance = (share @ (frames - centre) ** 2 - offset**2).clamp(min=0)
    highest = _highest_without(frames, firsts, patch_frames)
    seen = torch.cat([centre + offset, variance.sqrt(), highest], dim=1).unsqueeze(0)
    if probe.queries is None:
        return seen
    match = torch.einsum("tf,sfq->sqt", frames, probe.queries) / math.sqrt(frames.shape[1])
    match = match.unsqueeze(2).masked_fill(~is_kept, -torch.inf)  # [student, query, patch, frame]
    attended = match.softmax(dim=3) @ frames  # [student, query, patch, feature]
    return torch.cat([seen.expand(len(match), -1, -1), attended.transpose(1, 2).flatten(2)], dim=2)


def _highest_without(frames: Tensor, firsts: Tensor, patch_frames: int) -> Tensor:
    """Return the maximum of all frames before and after each patch [patch, feature]."""
    none = frames.new_full((1, frames.shape[1]), -torch.inf)
    before = torch.cat([none, frames.cummax(dim=0).values])
    after = torch.cat([frames.flip(0).cummax(dim=0).values.flip(0), none])
    return torch.maximum(before[firsts], after[firsts + patch_frames])
