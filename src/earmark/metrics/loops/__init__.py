"""The inner loops over blocks of resamples, in C.

They are built with the package (``ext-modules`` in pyproject.toml) and refuse whatever array they
do not expect. ``compiled.pyi`` says what each does; tests/plain_resamples.py has their slow twins.
"""

from earmark.metrics.loops.compiled import climb_ladders, weigh_pairs

__all__ = ["climb_ladders", "weigh_pairs"]
