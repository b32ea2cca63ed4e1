"""The inner loops over blocks of scores, in C.

They are built with the package (``ext-modules`` in pyproject.toml) and refuse whatever array they
do not expect. ``compiled.pyi`` says what each does; tests/plain_loops.py has a slow twin of each.
"""

from earmark.scores.loops.compiled import (
    add_chances,
    count_last,
    count_scores,
    fill_clues,
    find_fingerprints,
    fit_mixture,
    keep_labels,
    limit_vectors,
    look_at_odds,
    pick_scores,
    place_keys,
    spread_labels,
    squeeze_codes,
)

__all__ = [
    "add_chances",
    "count_last",
    "count_scores",
    "fill_clues",
    "find_fingerprints",
    "fit_mixture",
    "keep_labels",
    "limit_vectors",
    "look_at_odds",
    "pick_scores",
    "place_keys",
    "spread_labels",
    "squeeze_codes",
]
