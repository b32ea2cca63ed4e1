from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from earmark.runs.reprs import short_repr


@dataclass
class Held:
    path: Path
    table: pl.DataFrame
    names: tuple[str, ...]
    told: str

    __repr__ = short_repr


def test_a_result_is_one_short_line_whatever_it_holds() -> None:
    table = pl.DataFrame({"clip_id": [str(i) for i in range(5_000)]})
    held = Held(Path("work/flags"), table, tuple(table["clip_id"]), "word " * 1_000)
    shown = repr(held)
    assert shown.startswith("Held(path='work/flags', table=<5,000 x 1 table>, names=(")
    assert len(shown) < 300
    assert "\n" not in shown
