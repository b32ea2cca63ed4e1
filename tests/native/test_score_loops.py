from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import plain_loops
from earmark import native as compiled_loops
from earmark.scores import (
    N_BINS,
    first_key,
    pack,
    unpack_rows,
    unpack_scores,
    valid_bits,
)

LARGE = float(np.float32(3e38))  # which is the same in both widths
ODD = (np.nan, np.inf, -np.inf)
scores = st.one_of(
    st.sampled_from([-1.5, -0.0, 0.0, 0.25, 2.0, LARGE, -LARGE]), st.floats(-30, 30, width=32)
)


both = pytest.mark.parametrize("loops", [plain_loops, compiled_loops], ids=["numpy", "C"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """A block, lows and scales of its classes, hot bins, and which labels are explicit."""
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=12))
    block = draw(hnp.arrays(np.float32, shape, elements=scores))
    n_classes = shape[1]
    edge = st.one_of(scores, st.sampled_from([np.inf, -np.inf]))
    lows = draw(hnp.arrays(np.float32, n_classes, elements=edge))
    scale = st.sampled_from([0.0, 0.5, 40.0, 2.0**100, np.inf])
    scales = draw(hnp.arrays(np.float32, n_classes, elements=scale))
    is_hot = draw(hnp.arrays(np.uint8, n_classes * N_BINS, elements=st.just(0), fill=st.just(0)))
    hot = draw(st.lists(st.integers(0, N_BINS - 1) | st.sampled_from([0, 1, N_BINS - 1])))
    is_hot.reshape(n_classes, N_BINS)[:, hot] = 1
    is_explicit = draw(hnp.arrays(bool, shape))
    return block, lows, scales, is_hot, is_explicit


def no_labels(n_clips: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """No explicit label, and no score of one."""
    return np.zeros(n_clips + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)


def listed(is_explicit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Explicit labels as the loops take them, after five that are not theirs."""
    starts = 5 + np.concatenate([[0], is_explicit.sum(axis=1).cumsum()])
    columns = np.concatenate([np.zeros(5, int), np.nonzero(is_explicit)[1]])
    return starts.astype(np.int64), columns.astype(np.int32)


NONE = np.zeros((4096, 0), bool)


def plain_bin(score: np.float32, low: np.float32, scale: np.float32) -> int:
    """The bins as their definition has them, one score at a time."""
    if not score > low:
        return 0
    with np.errstate(over="ignore", invalid="ignore"):
        step = (score - low) * scale
    return N_BINS - 1 if not step < N_BINS - 2 else int(step) + 1


def counted(
    loops: ModuleType,
    block: np.ndarray,
    lows: np.ndarray,
    scales: np.ndarray,
    is_explicit: np.ndarray = NONE,
) -> np.ndarray:
    valid = valid_bits(np.zeros(block.shape[1], bool))
    starts, columns = listed(is_explicit[: len(block)])
    counts = np.zeros((block.shape[1], N_BINS), np.int32)
    explicit = np.zeros(len(columns), np.float32)
    labels = (starts, columns, explicit)
    assert loops.count_scores(block, lows, scales, *valid, *labels, counts) == -1
    if is_explicit is not NONE:
        assert np.array_equal(explicit[5:], block[is_explicit])
    return counts


def picked(
    loops: ModuleType,
    block: np.ndarray,
    lows: np.ndarray,
    scales: np.ndarray,
    is_hot: np.ndarray,
    is_explicit: np.ndarray = NONE,
) -> list[tuple[int, int]]:
    known = listed(is_explicit[: len(block)])
    hot = is_hot.reshape(block.shape[1], N_BINS) > 0
    columns, keys = np.zeros(block.size, np.int32), np.zeros(block.size, np.int64)
    n = loops.pick_scores(block, lows, scales, hot, *known, columns, keys, 100)
    return sorted(zip(columns[:n].tolist(), keys[:n].tolist(), strict=True))


@both
@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_loops_equal_the_definition(loops: ModuleType, case: tuple[np.ndarray, ...]) -> None:
    block, lows, scales, is_hot, is_explicit = case
    counts, expected = np.zeros((block.shape[1], N_BINS), np.int32), []
    for (row, column), score in np.ndenumerate(block):
        if is_explicit[row, column]:
            continue
        place = plain_bin(score, lows[column], scales[column])
        counts[column, place] += 1
        if is_hot[column * N_BINS + place]:
            key = pack(np.array([score]), np.array([100 + row]))
            expected.append((column, int(key[0])))
    assert np.array_equal(counted(loops, block, lows, scales, is_explicit), counts)
    assert picked(loops, *case) == sorted(expected)


@pytest.mark.parametrize(("n_clips", "n_classes"), [(1, 16), (300, 15), (513, 33), (40, 527)])
def test_many_clips_and_classes_are_counted_and_picked_as_by_the_slow_twin(
    n_clips: int, n_classes: int
) -> None:
    rng = np.random.default_rng(n_clips)
    block = rng.normal(size=(n_clips, n_classes)).astype(np.float32)
    lows = rng.normal(size=n_classes).astype(np.float32)
    scales = rng.choice([3.0, 400.0, np.inf], n_classes).astype(np.float32)
    is_hot = (rng.random(n_classes * N_BINS) < 0.05).astype(np.uint8)
    case = (block, lows, scales, is_hot, rng.random(block.shape) < 0.1)
    counts = [counted(loops, *case[:3], case[4]) for loops in (plain_loops, compiled_loops)]
    assert np.array_equal(*counts)
    assert picked(compiled_loops, *case) == picked(plain_loops, *case)


@both
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [(0, 0), (299, 34), (256, 16)])
def test_an_odd_score_is_found_wherever_it_is(
    loops: ModuleType, odd: float, place: tuple[int, int]
) -> None:
    block = np.zeros((300, 35), np.float32)
    block[place] = odd
    valid = valid_bits(np.zeros(35, bool))
    floats, counts = np.zeros(35, np.float32), np.zeros((35, N_BINS), np.int32)
    given = (block, floats, floats, *valid, *no_labels(300), counts)
    assert loops.count_scores(*given) == place[0]


@given(
    hnp.arrays(np.float32, st.integers(2, 30), elements=st.floats(width=32, allow_nan=False)),
    scores,
    st.sampled_from([0.0, 0.5, 1e30, np.inf]),
)
def test_a_higher_score_is_never_in_a_lower_bin(
    values: np.ndarray, low: float, scale: float
) -> None:
    low32, scale32 = np.float32(low), np.float32(scale)
    values = np.sort(values[np.isfinite(values)])
    bins = [plain_bin(value, low32, scale32) for value in values]
    assert bins == sorted(bins)


@both
@pytest.mark.parametrize("odd", ODD)
def test_the_first_row_with_an_odd_score_is_returned(loops: ModuleType, odd: float) -> None:
    block = np.zeros((6, 3), np.float32)
    block[[3, 5], 1] = odd
    valid = valid_bits(np.zeros(3, bool))
    floats, counts = np.zeros(3, np.float32), np.zeros((3, N_BINS), np.int32)
    given = (block, floats, floats, *valid, *no_labels(6), counts)
    assert loops.count_scores(*given) == 3


@both
def test_an_unscored_class_is_nan_throughout(loops: ModuleType) -> None:
    valid = valid_bits(np.array([False, True]))
    floats, counts = np.zeros(2, np.float32), np.zeros((2, N_BINS), np.int32)

    def first_odd(last: float) -> int:
        block = np.array([[1.0, np.nan], [-3e38, np.nan], [2.0, last]], np.float32)
        given = (block, floats, floats, *valid, *no_labels(3), counts)
        return int(loops.count_scores(*given))

    assert first_odd(np.nan) == -1
    assert first_odd(-np.nan) == -1
    assert first_odd(0.0) == 2
    assert first_odd(np.inf) == 2


@both
def test_large_scores_whose_sum_is_infinite_are_valid(loops: ModuleType) -> None:
    block = np.full((4, 2), 3e38, np.float32)
    counts = counted(loops, block, np.zeros(2, np.float32), np.ones(2, np.float32))
    assert counts[:, -1].tolist() == [4, 4]


@both
def test_nan_is_never_picked(loops: ModuleType) -> None:
    block = np.array([[np.nan, 1.0]], np.float32)
    floats, is_hot = np.zeros(2, np.float32), np.ones(2 * N_BINS, np.uint8)
    assert [column for column, _ in picked(loops, block, floats, floats, is_hot)] == [1]


@both
def test_keys_go_to_their_class_and_not_beyond_it(loops: ModuleType) -> None:
    out, cursors = np.zeros(4, np.int64), np.array([0, 3])
    columns, keys = np.array([1, 0, 1, 0], np.int32), np.array([10, 20, 30, 40])
    loops.place_keys(columns, keys, cursors, np.array([3, 4]), out)
    assert out.tolist() == [20, 40, 0, 10]
    assert cursors.tolist() == [2, 5]  # which tells that one had no room


@given(hnp.arrays(np.float32, st.integers(0, 60), elements=scores), st.integers(0, 2**32 - 61))
def test_keys_sort_from_high_to_low_and_equal_scores_by_clip(
    values: np.ndarray, first: int
) -> None:
    rows = np.arange(len(values)) + first
    keys = np.sort(pack(values, rows))
    order = np.argsort(-values, kind="stable")
    assert unpack_rows(keys).tolist() == rows[order].tolist()
    assert np.array_equal(unpack_scores(keys), values[order])
    same = values[order] == values[order][:1]
    assert (first_key(keys)[same] <= keys[:1]).all()


def gapped(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=-1)[..., ::2]


def frozen(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def shifted(array: np.ndarray) -> np.ndarray:
    """The same, one byte beside where such numbers may lie."""
    raw = np.zeros(array.nbytes + 1, np.uint8)
    return raw[1:].view(array.dtype).reshape(array.shape)


def arguments_of(name: str) -> list[Any]:
    """What each loop takes, rightly."""
    floats, bits = np.zeros(3, np.float32), np.zeros(3, np.uint32)
    block, keys = np.zeros((4, 3), np.float32), np.zeros(12, np.int64)
    cursors, ends = np.zeros(3, np.int64), np.full(3, 12)
    labels = listed(np.ones((4, 3), bool))
    return {
        "count_scores": [
            *(block, floats, floats, bits, bits, *labels),
            np.zeros(len(labels[1]), np.float32),
            np.zeros((3, N_BINS), np.int32),
        ],
        "pick_scores": [
            *(block, floats, floats, np.zeros((3, N_BINS), bool), *labels),
            *(np.zeros(12, np.int32), keys, 0),
        ],
        "place_keys": [np.zeros(12, np.int32), keys, cursors, ends, keys.copy()],
    }[name]


WRITTEN = {
    "count_scores": {7, 8},
    "pick_scores": {6, 7},
    "place_keys": {2, 4},
}
FREE = {("count_scores", 8, 1), ("pick_scores", 3, 1)}
"""Axes of any length: bins."""
every_loop = pytest.mark.parametrize("name", WRITTEN)


@every_loop
def test_an_array_of_another_kind_is_refused_by_name(name: str) -> None:
    loop = getattr(compiled_loops, name)
    loop(*arguments_of(name))
    for place, right in enumerate(arguments_of(name)):
        if not isinstance(right, np.ndarray):
            continue
        wrong: list[tuple[type[Exception], str, Any]] = [
            (TypeError, "expected an array of", right.astype(np.complex64)),
            (TypeError, "expected an array of", right.astype(right.dtype.newbyteorder())),
            (ValueError, "axes", right[None]),
            (ValueError, "without gaps", gapped(right)),
            (TypeError, "buffer|bytes-like", right.tolist()),
        ]
        if right.size == 1:  # which has no gaps
            wrong = [one for one in wrong if one[1] != "without gaps"]
        if right.itemsize > 1:
            wrong.append((TypeError, "expected an array of", shifted(right)))
        else:
            wrong[1:2] = []
        if place in WRITTEN[name]:
            wrong.append((ValueError, "can be written to", frozen(right)))
        for kind, words, other in wrong:
            given = arguments_of(name)
            given[place] = other
            with pytest.raises(kind, match=words):
                loop(*given)


@every_loop
def test_an_array_that_is_too_short_is_refused(name: str) -> None:
    loop = getattr(compiled_loops, name)
    for place, right in enumerate(arguments_of(name)):
        for axis in range(np.ndim(right)):
            given = arguments_of(name)
            given[place] = np.ascontiguousarray(np.delete(right, -1, axis=axis))
            if (name, place, axis) in FREE:
                loop(*given)
                continue
            with pytest.raises(ValueError, match=r"expected|beyond"):
                loop(*given)


@every_loop
def test_arguments_are_counted(name: str) -> None:
    with pytest.raises(TypeError, match="arguments"):
        getattr(compiled_loops, name)(*arguments_of(name)[:-1])


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
def test_a_class_that_is_not_there_is_refused(wrong: int) -> None:
    given = arguments_of("place_keys")
    given[0][5] = wrong
    with pytest.raises(ValueError, match="beyond"):
        compiled_loops.place_keys(*given)


def test_places_that_are_not_there_are_refused() -> None:
    for place, wrong in ((2, -1), (2, 2**63 - 1), (3, 13)):
        given = arguments_of("place_keys")
        given[place][1] = wrong
        with pytest.raises(ValueError, match="beyond"):
            compiled_loops.place_keys(*given)


@pytest.mark.parametrize("wrong", [-1, 2**32 - 3, 2**70])
def test_a_clip_that_does_not_fit_a_key_is_refused(wrong: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        compiled_loops.pick_scores(*arguments_of("pick_scores")[:-1], wrong)


def test_no_clips_and_no_classes_are_fine() -> None:
    for n_clips, n_classes in ((0, 3), (2, 0), (0, 0)):
        block = np.zeros((n_clips, n_classes), np.float32)
        floats, bits = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.uint32)
        counts, labels = np.zeros((n_classes, N_BINS), np.int32), no_labels(n_clips)
        given = (block, floats, floats, bits, bits, *labels, counts)
        assert compiled_loops.count_scores(*given) == -1
        columns, keys = np.zeros(0, np.int32), np.zeros(0, np.int64)
        bins = (floats, floats, np.ones((n_classes, N_BINS), bool))
        assert compiled_loops.pick_scores(block, *bins, *labels[:2], columns, keys, 0) == 0


@pytest.mark.parametrize(("place", "wrong"), [(4, -1), (4, 10**6), (5, 3), (5, -1)])
def test_explicit_labels_that_are_not_there_are_refused(place: int, wrong: int) -> None:
    given = arguments_of("pick_scores")
    given[place][-1] = wrong
    with pytest.raises(ValueError, match="beyond"):
        compiled_loops.pick_scores(*given)
