from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earmark.config import ModelParams, SpecAugmentParams, TrainParams
from earmark.datasets import readable_clips
from earmark.errors import EarmarkError
from earmark.losses import BatchTargets
from earmark.models import examples_of
from earmark.training import (
    N_AHEAD,
    Batch,
    Loaded,
    Loader,
    Mix,
    Plan,
    TargetProvider,
    hidden_stripes,
    made_ahead,
    masked_patches,
)
from scenes import band_workspace, open_store

STRIPES = SpecAugmentParams(n_time_masks=2, n_band_masks=1)


def loader(tmp_path: Path, architecture: str = "mobilenet_v1", **params) -> Loader:
    workspace = band_workspace(tmp_path / "work")
    store = open_store(workspace)
    clips = readable_clips(workspace, store, "train")
    examples = examples_of(ModelParams(architecture=architecture), store, clips.store_rows)
    return Loader(TrainParams(batch_patches=16, **params), examples, TargetProvider(clips.labels))


def batches_of(loader: Loader, epoch: int = 0) -> list[Batch]:
    return list(Plan(loader.params, loader.examples.per_clip).batches(epoch))


def alike(one: Loaded, two: Loaded) -> bool:
    pairs = [*zip(one.inputs, two.inputs, strict=True), (one.targets.target, two.targets.target)]
    return all(torch.equal(first, second) for first, second in pairs)


def test_things_come_in_order_whoever_is_faster() -> None:
    def slow_at_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * number

    assert list(made_ahead(slow_at_first, range(20))) == [n * n for n in range(20)]
    assert list(made_ahead(slow_at_first, [])) == []


def test_only_a_few_are_made_ahead() -> None:
    made: list[int] = []
    ahead = made_ahead(made.append, range(1_000))
    next(ahead)
    time.sleep(0.05)
    assert len(made) <= N_AHEAD + 1
    ahead.close()


def test_an_exception_comes_in_the_place_of_its_item() -> None:
    def fails_at_3(number: int) -> int:
        if number == 3:
            raise EarmarkError("clip 3 is gone")
        return number

    seen: list[int] = []
    with pytest.raises(EarmarkError, match="clip 3 is gone"):
        seen.extend(made_ahead(fails_at_3, range(10)))
    assert seen == [0, 1, 2]


def test_closing_ends_the_thread() -> None:
    before = threading.active_count()
    ahead = made_ahead(str, range(1_000))
    next(ahead)
    ahead.close()
    assert threading.active_count() == before


def test_a_plain_batch_is_what_the_store_holds(tmp_path: Path) -> None:
    made = loader(tmp_path)
    batch = batches_of(made)[0]
    loaded = made.load(batch)
    stored = made.examples.store.patches(made.examples.rows[batch.clips], batch.which)
    assert np.array_equal(loaded.inputs[0].numpy(), stored.astype(np.float32))
    states = made.targets.labels.states(batch.clips)
    assert np.array_equal(loaded.targets.target[0].numpy(), states > 0)


@pytest.mark.parametrize(
    "params", [{"mixup": 0.5}, {"specaugment": STRIPES}, {"mixup": 1.0, "specaugment": STRIPES}]
)
def test_augmentation_depends_on_seed_epoch_and_step_alone(tmp_path: Path, params: dict) -> None:
    made = loader(tmp_path, **params)
    batch = batches_of(made)[1]
    first = made.load(batch)
    for _ in range(2):
        made.load(batches_of(made)[0])
    assert alike(first, made.load(batch))
    moved = Batch(batch.epoch + 1, batch.step, batch.clips, batch.which)
    assert not alike(first, made.load(moved))
    assert not alike(first, loader(tmp_path, seed=1, **params).load(batch))


def test_a_probes_clips_mix_too(tmp_path: Path) -> None:
    plain, mixed = (loader(tmp_path, "mlp_probe", mixup=beta) for beta in (0.0, 1.0))
    batch = batches_of(plain)[0]
    one, two = plain.load(batch), mixed.load(batch)
    assert one.inputs[0].shape == two.inputs[0].shape
    assert not torch.equal(one.inputs[0], two.inputs[0])


def test_stripes_of_embeddings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="n_time_masks and n_band_masks to 0"):
        loader(tmp_path, "mlp_probe", specaugment=STRIPES)


EXPLICIT_POSITIVE, EXPLICIT_NEGATIVE, IMPLICIT, IGNORED = (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1)
"""Target, weight and whether implicit."""


def told(*labels: tuple[int, int, int]) -> BatchTargets:
    """One example with these labels."""
    target, weight, implicit = torch.tensor(labels).T
    return BatchTargets(
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
