from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from earmark.scores import kernels
from earmark.scores.kernels import N_BINS, Kernels, compiled_kernels
from plain_kernels import PLAIN

ODD = (np.nan, np.inf, -np.inf)
scores = st.one_of(
    st.sampled_from([-1.5, -0.0, 0.0, 0.25, 2.0, 3e38, -3e38]), st.floats(-30, 30, width=32)
)


both = pytest.mark.parametrize("choose", [lambda: PLAIN, compiled_kernels], ids=["numpy", "numba"])
Choose = Callable[[], Kernels]


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


def counted(loops: Kernels, block: np.ndarray, lows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    counts = np.zeros(block.shape[1] * N_BINS, np.int32)
    valid = kernels.valid_bits(np.zeros(block.shape[1], bool))
    assert loops.count(block, lows, scales, *valid, counts) == -1
    return counts


def picked(
    loops: Kernels, block: np.ndarray, lows: np.ndarray, scales: np.ndarray, is_hot: np.ndarray
) -> list[tuple[int, int]]:
    columns = np.zeros(block.size + 1, np.int32)
    keys = np.zeros(block.size + 1, np.int64)
    n = loops.pick(block, 100, lows, scales, is_hot, columns, keys)
    return sorted(zip(columns[:n].tolist(), keys[:n].tolist(), strict=True))


@both
@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_loops_equal_the_definition(choose: Choose, case: tuple[np.ndarray, ...]) -> None:
    block, lows, scales, is_hot = case
    counts, expected = np.zeros((block.shape[1], N_BINS), np.int32), []
    for (row, column), score in np.ndenumerate(block):
        place = plain_bin(score, lows[column], scales[column])
        counts[column, place] += place > 0
        if is_hot[column * N_BINS + place]:
            key = kernels.pack(np.array([score]), np.array([100 + row]))
            expected.append((column, int(key[0])))
    assert np.array_equal(counted(choose(), block, lows, scales), counts.ravel())
    assert picked(choose(), *case) == sorted(expected)


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
def test_the_first_row_with_an_odd_score_is_returned(choose: Choose, odd: float) -> None:
    block = np.zeros((6, 3), np.float32)
    block[[3, 5], 1] = odd
    valid = kernels.valid_bits(np.zeros(3, bool))
    floats, counts = np.zeros(3, np.float32), np.zeros(3 * N_BINS, np.int32)
    assert choose().count(block, floats, floats, *valid, counts) == 3


@both
def test_an_unscored_class_is_nan_throughout(choose: Choose) -> None:
    valid = kernels.valid_bits(np.array([False, True]))
    floats, counts = np.zeros(2, np.float32), np.zeros(2 * N_BINS, np.int32)

    def first_odd(last: float) -> int:
        block = np.array([[1.0, np.nan], [-3e38, np.nan], [2.0, last]], np.float32)
        return choose().count(block, floats, floats, *valid, counts)

    assert first_odd(np.nan) == -1
    assert first_odd(-np.nan) == -1
    assert first_odd(0.0) == 2
    assert first_odd(np.inf) == 2


@both
def test_large_scores_whose_sum_is_infinite_are_valid(choose: Choose) -> None:
    block = np.full((4, 2), 3e38, np.float32)
    counts = counted(choose(), block, np.zeros(2, np.float32), np.ones(2, np.float32))
    assert counts.reshape(2, -1)[:, -1].tolist() == [4, 4]


@both
def test_nan_is_never_picked(choose: Choose) -> None:
    block = np.array([[np.nan, 1.0]], np.float32)
    floats, is_hot = np.zeros(2, np.float32), np.ones(2 * N_BINS, np.uint8)
    assert [column for column, _ in picked(choose(), block, floats, floats, is_hot)] == [1]


@both
def test_keys_go_to_their_class_and_not_beyond_it(choose: Choose) -> None:
    out, cursors = np.zeros(4, np.int64), np.array([0, 3])
    columns, keys = np.array([1, 0, 1, 0], np.int32), np.array([10, 20, 30, 40])
    choose().place(columns, keys, cursors, np.array([3, 4]), out)
    assert out.tolist() == [20, 40, 0, 10]
    assert cursors.tolist() == [2, 5]  # which tells that one had no room


@given(hnp.arrays(np.float32, st.integers(0, 60), elements=scores), st.integers(0, 2**32 - 61))
def test_keys_sort_from_high_to_low_and_equal_scores_by_clip(
    values: np.ndarray, first: int
) -> None:
    rows = np.arange(len(values)) + first
    keys = np.sort(kernels.pack(values, rows))
    order = np.argsort(-values, kind="stable")
    assert kernels.unpack_rows(keys).tolist() == rows[order].tolist()
    assert np.array_equal(kernels.unpack_scores(keys), values[order])
    same = values[order] == values[order][:1]
    assert (kernels.first_key(keys)[same] <= keys[:1]).all()


def test_numba_is_loaded_by_the_first_pass_and_not_before() -> None:
    code = (
        "import sys, earmark, earmark.flags.flag, earmark.scores.bins; "
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_where_no_folder_can_be_written_to_the_loops_are_compiled_anew() -> None:
    code = (
        "import numpy as np; from earmark.scores.kernels import compiled_kernels; "
        "out = np.zeros(1, np.int64); "
        "compiled_kernels().place(np.zeros(1, np.int32), np.ones(1, np.int64), "
        "np.zeros(1, np.int64), np.ones(1, np.int64), out); print(out[0])"
    )
    nowhere = {"NUMBA_CACHE_DIR": "/proc/none"}
    only_there = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **nowhere, **only_there},
    )
    assert done.stdout.strip() == "1"
