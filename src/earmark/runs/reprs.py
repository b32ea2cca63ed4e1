"""How results show themselves at a prompt: on one line, whatever they hold.

A dataclass that holds arrays or tables has ``__repr__ = short_repr`` in its body.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sized
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

_LONGEST = 60
"""Characters of one value."""


def short_repr(result: Any) -> str:
    """Return a dataclass on one line: arrays and tables by their sizes, long values cut short.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass
    ... class Found:
    ...     name: str
    ...     scores: np.ndarray
    ...     __repr__ = short_repr
    >>> Found("dogs", np.zeros((400, 3)))
    Found(name='dogs', scores=<float64 400 x 3>)
    """
    shown = (f"{one.name}={_shown(getattr(result, one.name))}" for one in fields(result))
    return f"{type(result).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if hasattr(value, "columns") and hasattr(value, "height"):
        return f"<{value.height:,} x {value.width} table>"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        size = " x ".join(f"{length:,}" for length in value.shape)
        return f"<{value.dtype} {size or 'number'}>"
    if isinstance(value, Path):
        return repr(str(value))
    if is_dataclass(value):
        return f"<{type(value).__name__}>"
    text = _SHORT.repr(value)
    if len(text) <= _LONGEST:
        return text
    is_many = isinstance(value, Mapping | tuple | list | set | frozenset)
    return f"<{len(value):,} items>" if is_many and isinstance(value, Sized) else text


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST
_SHORT.maxlevel = 2
