from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import plain_loops
from earmark.scores import loops as compiled_loops
from earmark.scores.keys import (
    N_BINS,
    first_key,
    pack,
    unpack_rows,
    unpack_scores,
    valid_bits,
)

ODD = (np.nan, np.inf, -np.inf)
scores = st.one_of(
    st.sampled_from([-1.5, -0.0, 0.0, 0.25, 2.0, 3e38, -3e38]), st.floats(-30, 30, width=32)
)


both = pytest.mark.parametrize("loops", [plain_loops, compiled_loops], ids=["numpy", "C"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A block, lows and scales of its classes, and hot bins."""
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=12))
    block = draw(hnp.arrays(np.float32, shape, elements=scores))
    n_classes = shape[1]
    edge = st.one_of(scores, st.sampled_from([np.inf, -np.inf]))
    lows = draw(hnp.arrays(np.float32, n_classes, elements=edge))
    scale = st.sampled_from([0.0, 0.5, 40.0, 1e30, np.inf])
    scales = draw(hnp.arrays(np.float32, n_classes, elements=scale))
    is_hot = draw(hnp.arrays(np.uint8, n_classes * N_BINS, elements=st.just(0), fill=st.just(0)))
    hot = draw(st.lists(st.integers(0, N_BINS - 1) | st.sampled_from([0, 1, N_BINS - 1])))
    is_hot.reshape(n_classes, N_BINS)[:, hot] = 1
    return block, lows, scales, is_hot


def plain_bin(score: np.float32, low: np.float32, scale: np.float32) -> int:
    """The bins as their definition has them, one score at a time."""
    if not score > low:
        return 0
    with np.errstate(over="ignore", invalid="ignore"):
        step = (score - low) * scale
    return N_BINS - 1 if not step < N_BINS - 2 else int(step) + 1


def counted(
    loops: ModuleType, block: np.ndarray, lows: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    counts = np.zeros(block.shape[1] * N_BINS, np.int32)
    valid = valid_bits(np.zeros(block.shape[1], bool))
    assert loops.count_scores(block, lows, scales, *valid, counts) == -1
    return counts


def picked(
    loops: ModuleType, block: np.ndarray, lows: np.ndarray, scales: np.ndarray, is_hot: np.ndarray
) -> list[tuple[int, int]]:
    columns, keys = np.zeros(block.size, np.int32), np.zeros(block.size, np.int64)
    n = loops.pick_scores(block, lows, scales, is_hot, columns, keys, 100)
    return sorted(zip(columns[:n].tolist(), keys[:n].tolist(), strict=True))


@both
@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_loops_equal_the_definition(loops: ModuleType, case: tuple[np.ndarray, ...]) -> None:
    block, lows, scales, is_hot = case
    counts, expected = np.zeros((block.shape[1], N_BINS), np.int32), []
    for (row, column), score in np.ndenumerate(block):
        place = plain_bin(score, lows[column], scales[column])
        counts[column, place] += place > 0
        if is_hot[column * N_BINS + place]:
            key = pack(np.array([score]), np.array([100 + row]))
            expected.append((column, int(key[0])))
    assert np.array_equal(counted(loops, block, lows, scales), counts.ravel())
    assert picked(loops, *case) == sorted(expected)


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
    floats, counts = np.zeros(3, np.float32), np.zeros(3 * N_BINS, np.int32)
    assert loops.count_scores(block, floats, floats, *valid, counts) == 3


@both
def test_an_unscored_class_is_nan_throughout(loops: ModuleType) -> None:
    valid = valid_bits(np.array([False, True]))
    floats, counts = np.zeros(2, np.float32), np.zeros(2 * N_BINS, np.int32)

    def first_odd(last: float) -> int:
        block = np.array([[1.0, np.nan], [-3e38, np.nan], [2.0, last]], np.float32)
        return loops.count_scores(block, floats, floats, *valid, counts)

    assert first_odd(np.nan) == -1
    assert first_odd(-np.nan) == -1
    assert first_odd(0.0) == 2
    assert first_odd(np.inf) == 2


@both
def test_large_scores_whose_sum_is_infinite_are_valid(loops: ModuleType) -> None:
    block = np.full((4, 2), 3e38, np.float32)
    counts = counted(loops, block, np.zeros(2, np.float32), np.ones(2, np.float32))
    assert counts.reshape(2, -1)[:, -1].tolist() == [4, 4]


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


def some_lists(rng: np.random.Generator, n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    is_in = rng.random((n, n_classes)) < 0.3
    starts = np.concatenate([[0], is_in.sum(axis=1).cumsum()]).astype(np.int64)
    return starts, np.nonzero(is_in)[1].astype(np.int32)


def clue_case(seed: int, n_clips: int = 6, n_classes: int = 21) -> list[np.ndarray]:
    """What clues are made of: tied scores, some far out, a class without any."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_clips, n_classes)).round(1).astype(np.float32)
    scores[rng.random(scores.shape) < 0.05] *= 1e6
    scores[0, :2] = -0.0, 0.0
    scores[:, 7] = np.nan
    table, raised = rng.normal(size=(2, n_classes, 16)).astype(np.float32)
    facts = rng.normal(size=(6, n_classes)).astype(np.float32)
    facts[1] = 5
    together = rng.normal(size=(n_classes, n_classes)).astype(np.float32)
    lists = [some_lists(rng, n, n_classes) for n in (n_clips, *[n_classes] * 5)]
    return [scores, table, raised, facts, together, *(part for pair in lists for part in pair)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_clues", [1, 14])
@pytest.mark.parametrize("is_counted", [True, False])
def test_clues_equal_their_slow_twin_to_the_bit(seed: int, n_clues: int, is_counted: bool) -> None:
    case = clue_case(seed)
    if not is_counted:
        case[4] = np.zeros((0, 0), np.float32)
    found, expected = np.zeros((2, *case[0].shape, n_clues), np.float32)
    compiled_loops.fill_clues(*case, found)
    plain_loops.fill_clues(*case, expected)
    assert np.isnan(found[:, 7]).all()
    assert np.array_equal(found, expected, equal_nan=True)


def chance_case(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-3, 8, size=(40, 19)).astype(np.float32)
    log_odds[0, :4] = np.nan, np.inf, -np.inf, -300
    is_implicit = rng.random(log_odds.shape) < 0.8
    is_implicit[0] = True
    sums = rng.random((2, 19))
    return [log_odds, is_implicit, rng.integers(9, size=(19, 64)), *sums]


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_chances_equal_their_slow_twin(seed: int) -> None:
    found, expected = chance_case(seed), chance_case(seed)
    compiled_loops.add_chances(*found, -8.0, 0.25)
    plain_loops.add_chances(*expected, -8.0, 0.25)
    assert np.array_equal(found[2], expected[2])
    for one, other in zip(found[3:], expected[3:], strict=True):
        assert np.allclose(one, other, rtol=1e-6, atol=0)  # an exponential in float32


def test_a_sum_goes_clip_by_clip_from_what_was_there() -> None:
    log_odds = np.array([[30.0], [-30.0], [0.0]], np.float32)
    counts, n_expected, doubt = np.zeros((1, 4), np.int64), np.array([0.5]), np.zeros(1)
    compiled_loops.add_chances(
        log_odds, np.ones((3, 1), bool), counts, n_expected, doubt, -2.0, 1.0
    )
    assert counts.tolist() == [[1, 0, 1, 1]]
    assert n_expected[0] == pytest.approx(2.0)
    assert doubt[0] == pytest.approx(0.25)


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
    return {
        "count_scores": [block, floats, floats, bits, bits, np.zeros(3 * N_BINS, np.int32)],
        "pick_scores": [
            *(block, floats, floats, np.zeros(3 * N_BINS, np.uint8)),
            *(np.zeros(12, np.int32), keys, 0),
        ],
        "place_keys": [np.zeros(12, np.int32), keys, cursors, ends, keys.copy()],
        "fill_clues": [*clue_case(0), np.zeros((6, 21, 14), np.float32)],
        "add_chances": [*chance_case(0), -8.0, 0.25],
    }[name]


WRITTEN = {
    "count_scores": {5},
    "pick_scores": {4, 5},
    "place_keys": {2, 4},
    "fill_clues": {17},
    "add_chances": {2, 3, 4},
}
FREE = {("count_scores", 0, 0), ("pick_scores", 0, 0), ("add_chances", 2, 1)}
"""Axes of any length: clips where no other array has them, and steps."""
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
    for place in (6, 8, 10, 12, 14, 16):
        given = arguments_of("fill_clues")
        given[place][-1] = wrong if wrong != 3 else 21
        with pytest.raises(ValueError, match="beyond"):
            compiled_loops.fill_clues(*given)


def test_places_that_are_not_there_are_refused() -> None:
    for place, wrong in ((2, -1), (3, 13)):
        given = arguments_of("place_keys")
        given[place][1] = wrong
        with pytest.raises(ValueError, match="beyond"):
            compiled_loops.place_keys(*given)
    for place in (5, 7, 9, 11, 13, 15):
        for wrong in (-1, 10**6):
            given = arguments_of("fill_clues")
            given[place][2] = wrong
            with pytest.raises(ValueError, match="beyond"):
                compiled_loops.fill_clues(*given)


@pytest.mark.parametrize("wrong", [-1, 2**32 - 3, 2**70])
def test_a_clip_that_does_not_fit_a_key_is_refused(wrong: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        compiled_loops.pick_scores(*arguments_of("pick_scores")[:-1], wrong)


@pytest.mark.parametrize(
    ("lowest", "step"), [(0.0, 1.0), (-8.0, 0.0), (-8.0, -1.0), (-1e300, 1e-300)]
)
def test_steps_that_lead_nowhere_are_refused(lowest: float, step: float) -> None:
    with pytest.raises(ValueError, match="steps"):
        compiled_loops.add_chances(*chance_case(0), lowest, step)


def test_no_clips_and_no_classes_are_fine() -> None:
    for n_clips, n_classes in ((0, 3), (2, 0), (0, 0)):
        block = np.zeros((n_clips, n_classes), np.float32)
        floats, bits = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.uint32)
        counts = np.zeros(n_classes * N_BINS, np.int32)
        assert compiled_loops.count_scores(block, floats, floats, bits, bits, counts) == -1
        columns, keys = np.zeros(0, np.int32), np.zeros(0, np.int64)
        is_hot = np.ones(n_classes * N_BINS, np.uint8)
        assert compiled_loops.pick_scores(block, floats, floats, is_hot, columns, keys, 0) == 0
        steps, sums = np.zeros((n_classes, 4), np.int64), np.zeros((2, n_classes))
        compiled_loops.add_chances(block, block > 0, steps, *sums, -1.0, 0.5)
