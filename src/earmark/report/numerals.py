"""Numbers as people read them: with a true minus, a dash for the unknown, and their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np

from earmark.metrics import Interval


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number to write."""
    return value is not None and bool(np.isfinite(value))


def number_text(value: float | None, digits: int = 3) -> str:
    """Return a number as people read it; a dash where it is not known."""
    return f"{value:z.{digits}f}".replace("-", "−") if is_known(value) else "–"


def signed_text(value: float | None, digits: int = 3) -> str:
    """Return a difference with its sign; a dash where it is not known."""
    return f"{value:+z.{digits}f}".replace("-", "−") if is_known(value) else "–"


def interval_text(interval: Interval, write: Callable[[float], str] = number_text) -> str:
    """Return a number with its interval in brackets."""
    value, low, high = (write(number) for number in interval)
    return f"{value} [{low}, {high}]"


def interval_in(row: Mapping[str, Any], column: str = "value") -> Interval:
    """Return one number of a row of results, with its interval."""
    ends = ("low", "high") if column == "value" else (f"{column}_low", f"{column}_high")
    return Interval(row[column], row[ends[0]], row[ends[1]])


def ranged_text(
    row: Mapping[str, Any], name: str = "value", write: Callable[[float], str] = number_text
) -> str:
    """Return the number ``name`` of a row of results with its interval; a dash for no number."""
    return "–" if row[name] is None else interval_text(interval_in(row, name), write)


def gain_text(interval: Interval, write: Callable[[float], str] = number_text) -> str:
    """Return a number and its interval as a sentence has them.

    >>> gain_text(Interval(0.0331, 0.027, 0.04))
    '0.033 (0.027 to 0.040)'
    """
    value, low, high = (write(number) for number in interval)
    return f"{value} ({low} to {high})"


def change_text(interval: Interval) -> str:
    """Return a difference and its interval as a sentence has them, with signs."""
    return gain_text(interval, signed_text)


def share_text(share: float | None) -> str:
    """Return a share of a gain as people read it."""
    if share is None:
        return "an unknown part"
    if share <= 0:
        return "nothing"
    if share < 0.01:
        return "less than 1 %"
    return "all" if share >= 1 else f"{100 * share:.0f} %"


def percent_text(share: float) -> str:
    """Return a share in per cent; close to all is never told as all, nor close to none as none.

    >>> percent_text(0.256), percent_text(0.999), percent_text(0.002)
    ('26 %', '>99 %', '<1 %')
    """
    if 0 < share < 0.005:
        return "<1 %"
    return ">99 %" if share > 0.99 else f"{100 * share:.0f} %"


def count_text(n: int, n_all: int) -> str:
    """Return how many of some things, in words where it is all or none."""
    if n_all == 1:
        return f"{n} of 1"
    return f"all {n_all}" if n == n_all else f"{n or 'none'} of the {n_all}"


def rounded(number: float) -> str:
    """Write a count with two or three meaningful digits.

    >>> rounded(12_345.6), rounded(0.2), rounded(87.4)
    ('12,300', '0', '87')
    """
    whole = round(number)
    return f"{round(whole, 3 - len(str(abs(whole)))):,}" if abs(whole) >= 1_000 else f"{whole:,}"
