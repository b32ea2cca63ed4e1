"""Where a network hears a class: what it says of every patch of a clip.

A network of patches has an output for each. A probe sees a clip through statistics of its frames,
and has no output for a part of it: it is asked again about the clip without each patch (of
embeddings a patch is a frame), and what its logit loses is that patch's *evidence*. A patch alone
tells less, because a probe was never trained on clips of one frame.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio import FrameStore
from earmark.networks.architectures import Probe
from earmark.networks.device import own_device
from earmark.networks.examples import Examples, floats
from earmark.networks.stacks import AnyNetwork

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
    return np.asarray(outputs.reshape(-1, *outputs.shape[-2:])[0])


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
