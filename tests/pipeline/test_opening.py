from __future__ import annotations

from pathlib import Path

from earmark.config import Recipe
from earmark.pipeline import choose_recipe
from small_recipe import SMALL


def test_a_recipe_is_remembered_for_the_stages_that_come_after(tmp_path: Path) -> None:
    assert choose_recipe(tmp_path) == Recipe()
    assert choose_recipe(tmp_path, SMALL) == SMALL
    assert choose_recipe(tmp_path) == SMALL
    assert choose_recipe(tmp_path, "scenes").name == "scenes"
    assert choose_recipe(str(tmp_path)).name == "scenes"
