"""The inner loops over the keys of names, in C.

They are built with the package (``ext-modules`` in pyproject.toml) and refuse whatever array they
do not expect. ``compiled.pyi`` says what each does; tests/plain_names.py has their slow twins.
"""

from earmark.labels.loops.compiled import find_keys, number_keys

__all__ = ["find_keys", "number_keys"]
