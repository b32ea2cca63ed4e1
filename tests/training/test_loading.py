from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.datasets.readable_clips import readable_clips
from earmark.errors import EarmarkError
from earmark.networks.examples import examples_of
from earmark.runs.parameters import ModelParams, SpecAugmentParams, TrainParams
from earmark.training.batches import Batch, Plan
from earmark.training.loading import N_AHEAD, Loaded, Loader, made_ahead
from earmark.training.supervision import AsLabelled
from scenes import band_workspace, open_store

STRIPES = SpecAugmentParams(n_time_masks=2, n_band_masks=1)


def loader(tmp_path: Path, architecture: str = "mobilenet_v1", **params) -> Loader:
    workspace = band_workspace(tmp_path / "work")
    store = open_store(workspace)
    clips = readable_clips(workspace, store, "train")
    examples = examples_of(ModelParams(architecture=architecture), store, clips.store_rows)
    return Loader(TrainParams(batch_patches=16, **params), examples, AsLabelled(clips.labels))


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
    states = made.supervision.labels.states(batch.clips)
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


def test_the_first_examples_of_a_batch(tmp_path: Path) -> None:
    made = loader(tmp_path)
    loaded = made.load(batches_of(made)[0])
    some = loaded.first(3)
    assert len(some.inputs[0]) == 3
    assert torch.equal(some.targets.target, loaded.targets.target[:, :3])
    assert torch.equal(some.targets.implicit, loaded.targets.implicit[:3])
