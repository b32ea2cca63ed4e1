"""Augmentation of a batch: mixup of two examples, and SpecAugment's stripes.

Chances are drawn for the whole batch from (seed, epoch, step), and every process takes its share of
them: a resumed run, or one of more processes, sees the same examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.losses import Targets
from earmark.runs.parameters import SpecAugmentParams


@dataclass(frozen=True)
class Mix:
    """Which other example of its batch each one is mixed with, and how much stays its own."""

    partners: NDArray[np.int64]
    own_shares: NDArray[np.float32]

    @classmethod
    def draw(cls, n_examples: int, beta: float, generator: np.random.Generator) -> Mix:
        """Draw a partner for each example, and its own share from Beta(beta, beta)."""
        shares = generator.beta(beta, beta, n_examples).astype(np.float32)
        return cls(generator.permutation(n_examples), shares)

    def part(self, part: slice) -> Mix:
        """Return the draws of a part of the batch."""
        return Mix(self.partners[part], self.own_shares[part])

    def inputs(self, own: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Mix patches, or clips with their numbers of frames; a shorter clip is repeated.

        All are [example, frame, feature] of one width; clips may be padded to different lengths.
        """
        share = torch.from_numpy(self.own_shares).view(-1, 1, 1)
        mine, theirs = own[0], others[0]
        if len(own) == 1:
            return (share * mine + (1 - share) * theirs,)
        longest = max(mine.shape[1], theirs.shape[1])
        mine, theirs = _repeated(mine, own[1], longest), _repeated(theirs, others[1], longest)
        return share * mine + (1 - share) * theirs, torch.maximum(own[1], others[1])

    def targets(self, own: Targets, others: Targets) -> Targets:
        """Mix targets; a label that is ignored in either example stays ignored.

        A label is implicit unless both were asked about, or one is an explicit positive: then the
        class is surely in the mixture.
        """
        share = torch.from_numpy(self.own_shares).view(-1, 1)
        is_present = _explicit_positive(own) | _explicit_positive(others)
        return Targets(
            share * own.target + (1 - share) * others.target,
            torch.minimum(own.weight, others.weight),
            (own.implicit | others.implicit) & ~is_present,
        )


def hidden_stripes(
    n_examples: int,
    shape: tuple[int, int],
    params: SpecAugmentParams,
    generator: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return where patches of a shape (frames, bands) are hidden [example, frame, band].

    Every stripe's width is uniform from 0 to its parameter (or the patch's size), its place uniform
    among those where it fits.
    """
    n_frames, n_bands = shape
    times = _stripes(n_examples, n_frames, params.n_time_masks, params.time_mask_frames, generator)
    bands = _stripes(n_examples, n_bands, params.n_band_masks, params.band_mask_bands, generator)
    return times[:, :, None] | bands[:, None, :]


def masked_patches(patches: Tensor, is_hidden: NDArray[np.bool_]) -> Tensor:
    """Return patches [example, frame, band] with their own mean where they are hidden."""
    means = patches.mean(dim=(1, 2), keepdim=True)
    return torch.where(torch.from_numpy(is_hidden), means, patches)


def _stripes(
    n_examples: int, size: int, n_masks: int, widest: int, generator: np.random.Generator
) -> NDArray[np.bool_]:
    drawn = (n_examples, n_masks, 1)
    widths = generator.integers(0, min(widest, size) + 1, drawn)
    starts = (generator.random(drawn) * (size - widths + 1)).astype(np.int64)
    places = np.arange(size)
    is_hidden = (places >= starts) & (places < starts + widths)  # [example, mask, place]
    hidden: NDArray[np.bool_] = np.asarray(is_hidden.any(axis=1))
    return hidden


def _repeated(frames: Tensor, n_frames: Tensor, n_wanted: int) -> Tensor:
    """Return every clip's valid frames over and over [example, n_wanted, feature]."""
    places = torch.arange(n_wanted) % n_frames.clamp(min=1).unsqueeze(1)
    return frames.gather(1, places.unsqueeze(2).expand(-1, -1, frames.shape[2]))


def _explicit_positive(targets: Targets) -> Tensor:
    return (targets.target[0] > 0.5) & ~targets.implicit
