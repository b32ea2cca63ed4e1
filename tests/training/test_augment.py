from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earmark.losses import Targets
from earmark.runs.parameters import SpecAugmentParams
from earmark.training.augment import Mix, hidden_stripes, masked_patches

EXPLICIT_POSITIVE, EXPLICIT_NEGATIVE, IMPLICIT, IGNORED = (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1)
"""Target, weight and whether implicit."""


def told(*labels: tuple[int, int, int]) -> Targets:
    """One example with these labels."""
    target, weight, implicit = torch.tensor(labels).T
    return Targets(
        target.float().view(1, 1, -1), weight.float().view(1, 1, -1), implicit.view(1, -1) > 0
    )


def mix_of(*shares: float) -> Mix:
    return Mix(np.arange(len(shares)), np.array(shares, np.float32))


def test_targets_mix_and_an_ignored_label_of_either_stays_ignored() -> None:
    own = told(EXPLICIT_POSITIVE, EXPLICIT_POSITIVE, IGNORED, IMPLICIT, EXPLICIT_NEGATIVE, IMPLICIT)
    other = told(
        EXPLICIT_POSITIVE,
        IGNORED,
        IMPLICIT,
        EXPLICIT_POSITIVE,
        EXPLICIT_NEGATIVE,
        EXPLICIT_NEGATIVE,
    )
    mixed = mix_of(0.75).targets(own, other)
    assert mixed.target.flatten().tolist() == [1, 0.75, 0, 0.25, 0, 0]
    assert mixed.weight.flatten().tolist() == [1, 0, 0, 1, 1, 1]
    assert mixed.implicit.flatten().tolist() == [False, False, True, False, False, True]


def test_every_student_keeps_its_own_ignored_labels() -> None:
    own = Targets(
        torch.zeros(1, 1, 1), torch.tensor([1.0, 0.0]).view(2, 1, 1), torch.ones(1, 1) > 0
    )
    mixed = mix_of(0.5).targets(own, own)
    assert mixed.weight.flatten().tolist() == [1, 0]


def test_patches_mix_by_their_shares() -> None:
    own, other = torch.ones(2, 3, 4), torch.zeros(2, 3, 4)
    (mixed,) = mix_of(0.25, 1.0).inputs((own,), (other,))
    assert mixed[0].unique().tolist() == [0.25]
    assert torch.equal(mixed[1], own[1])


def test_a_shorter_clip_is_repeated_to_the_longer_ones_end() -> None:
    own = torch.tensor([[1.0, 2.0, 0.0]]).view(1, 3, 1), torch.tensor([2])
    other = torch.tensor([[10.0, 20.0, 30.0, 40.0, 50.0]]).view(1, 5, 1), torch.tensor([5])
    frames, n_frames = mix_of(0.5).inputs(own, other)
    assert frames.flatten().tolist() == [5.5, 11, 15.5, 21, 25.5]
    assert n_frames.tolist() == [5]


def test_shares_follow_the_beta_law_and_partners_are_a_permutation() -> None:
    mix = Mix.draw(20_000, 0.5, np.random.default_rng(0))
    assert mix.own_shares.mean() == pytest.approx(0.5, abs=0.01)
    assert mix.own_shares.var() == pytest.approx(1 / 8, abs=0.005)  # 1 / (4 (2 a + 1))
    assert np.array_equal(np.sort(mix.partners), np.arange(20_000))


@given(
    n_frames=st.integers(1, 12),
    n_bands=st.integers(1, 12),
    widest=st.integers(1, 20),
    n_masks=st.integers(0, 3),
)
def test_stripes_are_whole_and_no_wider_than_asked(
    n_frames: int, n_bands: int, widest: int, n_masks: int
) -> None:
    params = SpecAugmentParams(n_time_masks=n_masks, time_mask_frames=widest)
    hidden = hidden_stripes(5, (n_frames, n_bands), params, np.random.default_rng(0))
    assert hidden.shape == (5, n_frames, n_bands)
    assert (hidden.all(axis=2) == hidden.any(axis=2)).all()
    assert (hidden[:, :, 0].sum(axis=1) <= n_masks * widest).all()


def test_time_and_bands_are_both_hidden_and_take_the_patchs_mean() -> None:
    params = SpecAugmentParams(
        n_time_masks=1, time_mask_frames=4, n_band_masks=2, band_mask_bands=3
    )
    hidden = hidden_stripes(400, (20, 10), params, np.random.default_rng(1))
    widths = hidden.all(axis=2).sum(axis=1)
    assert set(widths.tolist()) >= {0, 1, 2, 3, 4}
    assert hidden.all(axis=1).any(axis=0).all()  # every band is hidden sooner or later
    patches = torch.randn(400, 20, 10)
    masked = masked_patches(patches, hidden)
    is_hidden = torch.from_numpy(hidden)
    assert torch.equal(masked[~is_hidden], patches[~is_hidden])
    assert torch.allclose(masked, torch.where(is_hidden, patches.mean((1, 2), True), patches))
