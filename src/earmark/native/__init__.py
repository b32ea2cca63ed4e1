"""The inner loops in C: over blocks of scores and resamples.

They are built with the package (``ext-modules`` in pyproject.toml) and refuse whatever array they
do not expect. ``compiled.pyi`` says what each does; tests/plain_loops.py and
tests/plain_resamples.py have slow equivalents.
"""

from earmark.native.compiled import (
    climb_ladders,
    count_scores,
    pick_scores,
    place_keys,
    weigh_pairs,
)

__all__ = [
    "climb_ladders",
    "count_scores",
    "pick_scores",
    "place_keys",
    "weigh_pairs",
]
