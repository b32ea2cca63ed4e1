from __future__ import annotations

import json
import pickle

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.audio import (
    FrameFormat,
    FrameStore,
    Row,
    content_digest,
    open_shard,
    read_part,
    seal_store,
    write_store,
)
from earmark.errors import EarmarkError


def test_frames_are_views_and_cannot_be_overwritten(tmp_path):
    store = write_store(tmp_path, [("a", np.ones((3, 4), np.float16))])
    assert not store.frames(0).flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        store.frames(0)[0, 0] = 1


def test_no_store_and_nothing_to_store_are_users_mistakes(tmp_path):
    with pytest.raises(EarmarkError, match="earmark features"):
        FrameStore.open(tmp_path)
    with pytest.raises(EarmarkError, match="nothing to store"):
        write_store(tmp_path, [])


def test_embeddings_from_elsewhere_fit(tmp_path):
    rng = np.random.default_rng(0)
    clips = [(f"v{i}", rng.integers(0, 256, (i % 11, 128), np.uint8)) for i in range(25)]
    store = write_store(tmp_path, iter(clips), clips_per_shard=10)
    assert (store.n_bands, store.patch_frames, store.meta.n_shards) == (128, 1, 3)
    assert store.n_patches.tolist() == [i % 11 for i in range(25)]
    for i, (_, expected) in enumerate(clips):
        assert np.array_equal(store.frames(i), expected)
    batch = store.patches([20, 3], [8, 0])
    assert batch.dtype == np.uint8
    assert np.array_equal(batch, [clips[20][1][8:9], clips[3][1][0:1]])


def test_a_store_of_clips_without_frames_opens(tmp_path):
    store = write_store(tmp_path, [("a", np.zeros((0, 4), np.float16))])
    assert store.frames(0).shape == (0, 4)
    assert store.patches([], []).shape == (0, 1, 4)


@pytest.fixture(scope="module")
def random_store(tmp_path_factory) -> FrameStore:
    rng = np.random.default_rng(0)
    arrays = [(f"c{i}", rng.random((rng.integers(5, 40), 3))) for i in range(30)]
    folder = tmp_path_factory.mktemp("store")
    return write_store(folder, arrays, patch_frames=5, patch_hop_frames=2, clips_per_shard=7)


@settings(max_examples=50)
@given(data=st.data())
def test_a_batch_of_patches_equals_slicing(random_store, data):
    store = random_store
    clips = data.draw(st.lists(st.integers(0, 29), max_size=20))
    chosen = [data.draw(st.integers(0, int(store.n_patches[clip]) - 1)) for clip in clips]
    batch = store.patches(clips, chosen)
    assert batch.shape == (len(clips), 5, 3)
    for patch, clip, i in zip(batch, clips, chosen, strict=True):
        assert np.array_equal(patch, store.frames(clip)[2 * i : 2 * i + 5])


@settings(max_examples=50)
@given(data=st.data())
def test_a_batch_of_clips_equals_frames_and_zeros(random_store, data):
    clips = data.draw(st.lists(st.integers(0, 29), max_size=20))
    batch, lengths = random_store.clips(clips)
    assert lengths.tolist() == random_store.n_frames[clips].tolist()
    assert batch.shape == (len(clips), max(lengths, default=1), 3)
    for own, clip, length in zip(batch, clips, lengths, strict=True):
        assert np.array_equal(own[:length], random_store.frames(clip))
        assert not own[length:].any()


def test_a_shard_of_another_type_or_width_is_refused(tmp_path):
    for other in (np.zeros((3, 4), "i2"), np.zeros((3, 4), ">f2"), np.zeros((4, 3), np.float16)):
        store = write_store(tmp_path, [("a", np.ones((3, 4), np.float16))])
        np.save(tmp_path / "shard-00000.npy", other)
        for read in (lambda: store.frames(0), lambda: store.clips([0])):  # noqa: B023
            with pytest.raises(EarmarkError, match=r"frames of 4 float16, got .*make it again"):
                read()


def test_patches_that_do_not_exist_are_refused(random_store):
    with pytest.raises(EarmarkError, match=r"row -1 .* could not be read"):
        random_store.patches([-1], [0])
    with pytest.raises(EarmarkError, match="row 30"):
        random_store.frames(30)
    with pytest.raises(EarmarkError, match="patch 99 asked of clip 'c4'"):
        random_store.patches([3, 4], [0, 99])


def test_rows_are_found_by_name(random_store):
    assert random_store.rows_of(["c29", "no such clip", "c0"]).tolist() == [29, -1, 0]
    assert random_store.rows_of([]).tolist() == []


def test_travels_to_another_process_as_a_name(random_store):
    random_store.frames(0)
    message = pickle.dumps(random_store)
    assert len(message) < 500
    assert np.array_equal(pickle.loads(message).frames(7), random_store.frames(7))


def store_of(folder, **facts) -> FrameStore:
    """A store of one clip of ten frames."""
    given = {"n_bands": 2, "dtype": "float32", "patch_frames": 1, "patch_hop_frames": 1, **facts}
    frame_format = FrameFormat(**given)
    with open_shard(folder, 0, "d", frame_format) as add:
        add(Row("a", np.zeros((10, 2), np.float32), None))
    parts = read_part(folder, 0)
    seal_store(folder, parts, frame_format, content_digest(parts, frame_format))
    return FrameStore.open(folder)


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ({}, None),
        ({"front_end": {"hop_seconds": 0.01}, "patch_frames": 96, "patch_hop_frames": 48},
         (0.48, 0.96)),
        ({"network_facts": {"hop_seconds": 0.5, "frame_seconds": 2.0}}, (0.5, 2.0)),
        ({"network_facts": {"hop_seconds": None, "frame_seconds": None}}, None),
        ({"network_facts": {}}, None),
    ],
)  # fmt: skip
def test_a_patch_has_a_time_where_somebody_knows_it(tmp_path, facts, seconds):
    found = store_of(tmp_path, **facts).patch_seconds
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    "change",
    [
        {"n_bands": "x"},
        {"n_bands": 0},
        {"patch_frames": 2**64},
        {"dtype": "x"},
        {"n_clips": {}},
        {"front_end": {"n_bands": 8}},
        {"network_facts": {"hop_seconds": "soon"}},
    ],
)
def test_an_odd_description_is_refused(tmp_path, change):
    store_of(tmp_path)
    meta = tmp_path / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | change))
    with pytest.raises(EarmarkError, match=r"meta\.json: cannot be read as the description"):
        FrameStore.open(tmp_path)


@pytest.mark.parametrize("first_frame", [-1, 10_000, None])
def test_a_clip_beyond_its_shard_is_refused(tmp_path, first_frame):
    store_of(tmp_path)
    path = tmp_path / "index.parquet"
    index = pl.read_parquet(path)
    index.with_columns(first_frame=pl.lit(first_frame)).write_parquet(path)
    with pytest.raises(EarmarkError, match=r"not lie within its shard|has gaps"):
        FrameStore.open(tmp_path)
