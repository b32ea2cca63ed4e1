from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from earmark.config import (
    PAPER_DISCARD_PERCENTS,
    MixtureParams,
    Params,
    PretrainedParams,
    Recipe,
    ReviewParams,
    TaskResources,
    find_recipe,
    has_kept_recipe,
    keep_recipe,
    kept_recipe,
    read_recipe,
    shipped_recipes,
)
from earmark.errors import EarmarkError


def recipe_file(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_is_read_with_defaults_for_what_it_leaves_out(tmp_path: Path) -> None:
    recipe = read_recipe(recipe_file(tmp_path, "[teacher]\nname='t'\ntrain={epochs=3}\n"))
    assert recipe.teacher.train.epochs == 3
    assert recipe.sweep.discard_percents == PAPER_DISCARD_PERCENTS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[teacher]\nname='t'\n[teacher.train]\nepoch=3\n", ["teacher.train.epoch", "'epochs'"]),
        ("[sweeep]\n", ["sweeep", "'sweep'"]),
        ("[[students]]\nname='s'\nmodle={}\n", ["students.0.modle", "'model'"]),
        ("[scenes]\nn_trian=4\n", ["scenes.n_trian", "'n_train'"]),
        ("[teacher]\nname='t'\ntrain={epochs=0}\n", ["teacher.train.epochs", "got 0"]),
        ("[sweep]\ndiscard_percents=[1, 2]\n", ["needs 0", "baseline"]),
        ("[sweep]\ndiscard_percents=[0, 2, 1]\n", ["must rise"]),
        ("[[students]]\nname='teacher'\n", ["names of their own"]),
        ("[sweep.train_sets]\n'../out'=1.0\n", ["sweep.train_sets", "should match pattern"]),
        ("[compare.train_sets]\n'a/b'=1.0\n", ["compare.train_sets", "should match pattern"]),
        ("[teacher]\nname='..'\n", ["teacher.name", "should match pattern"]),
        ("this is not TOML", ["cannot be read as TOML"]),
    ],
)
def test_a_bad_recipe_is_refused_by_name(tmp_path: Path, text: str, told: list[str]) -> None:
    path = recipe_file(tmp_path, text)
    with pytest.raises(EarmarkError) as error:
        read_recipe(path)
    for words in (str(path), *told):
        assert words in str(error.value)


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"nowhere\.toml: no such recipe"):
        read_recipe(tmp_path / "nowhere.toml")


def test_every_shipped_recipe_can_be_read() -> None:
    recipes = shipped_recipes()
    assert {"scenes", "find", "paper"} <= recipes.keys()
    for name, path in recipes.items():
        assert find_recipe(name) == read_recipe(path)
        assert read_recipe(path).name == name


def test_an_unknown_recipe_lists_the_choices() -> None:
    with pytest.raises(EarmarkError, match="no recipe is called 'scene'; did you mean 'scenes'"):
        find_recipe("scene")


def test_resources_are_a_part_of_a_gpu_or_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("[resources.train]\ngpus = 0.25\nmemory_gb = 8\n")
    assert read_recipe(path).resources.train == TaskResources(gpus=0.25, memory_gb=8)
    path.write_text("[resources.train]\ngpus = 1.5\n")
    with pytest.raises(EarmarkError, match=r"a part of one or a whole number, got 1\.5"):
        read_recipe(path)


def test_a_kept_recipe_of_another_version_is_refused_by_key(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text('{"name": "old", "sweeep": {}}')
    with pytest.raises(EarmarkError, match=r"recipe\.json: the recipe cannot be used:\n  sweeep"):
        kept_recipe(tmp_path)


def test_the_recipe_of_find_has_a_pretrained_network_and_probes() -> None:
    recipe = find_recipe("find")
    assert recipe.pretrained == PretrainedParams(network="yamnet")
    assert recipe.way is None, "the best is taken"
    assert recipe.teacher.model.architecture == "linear_probe"
    assert recipe.teacher.train.solver == "lbfgs"
    assert recipe.teacher_of_many is not None
    assert recipe.teacher_of_many.model.is_probe
    assert recipe.teacher_of_many.name == recipe.teacher.name, "under the same name of scores"
    assert all(student.model.is_probe for student in recipe.students)


@pytest.mark.parametrize(
    ("way", "taught", "scores"),
    [
        (None, "teacher", "teacher"),
        ("probe", "teacher", "teacher"),
        ("zero-shot", "teacher", "teacher-zero-shot"),
        ("blend", "teacher", "teacher-blend"),
        ("fine-tuned", "teacher-fine-tuned", "teacher-fine-tuned"),
    ],
)
def test_each_way_has_its_network_and_scores_of_its_own(way, taught: str, scores: str) -> None:
    recipe = Recipe(pretrained=PretrainedParams(network="yamnet"), way=way)
    assert (recipe.taught.name, recipe.scores_name) == (taught, scores)


def test_a_way_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, "way = 'best'\n[pretrained]\nnetwork = 'yamnet'\n")
    with pytest.raises(EarmarkError, match=r"way: .*'zero-shot', 'probe', 'blend'.*got 'best'"):
        read_recipe(path)
    path = recipe_file(tmp_path, "[pretrained]\nnetwok = 'yamnet'\n")
    with pytest.raises(EarmarkError, match=r"pretrained\.netwok: no such key.*'network'"):
        read_recipe(path)


def test_a_workspace_remembers_its_recipe(tmp_path: Path) -> None:
    assert not has_kept_recipe(tmp_path)
    assert kept_recipe(tmp_path) == Recipe()
    recipe = find_recipe("find").model_copy(update={"way": "blend"})
    keep_recipe(tmp_path, recipe)
    assert has_kept_recipe(tmp_path)
    assert kept_recipe(tmp_path) == recipe


def numbers_in(schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every number that a JSON schema describes, under its dotted name."""
    if isinstance(schema, dict):
        if schema.get("type") in ("number", "integer"):
            yield name, schema
        for key, value in schema.items():
            yield from numbers_in(value, f"{name}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from numbers_in(value, name)


@pytest.mark.parametrize("record", [Recipe, MixtureParams, ReviewParams])
def test_every_number_has_limits(record: type[Params]) -> None:
    """Percentages and shares of train sets are checked together, by validators."""
    unlimited = {
        name
        for name, number in numbers_in(record.model_json_schema())
        if not {"maximum", "exclusiveMaximum"} & number.keys()
        or not {"minimum", "exclusiveMinimum"} & number.keys()
    }
    assert {name for name in unlimited if "_percents" not in name and "train_sets" not in name} == (
        set()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[scenes]\nclip_seconds = 1e9", r"scenes\.clip_seconds: .*less than or equal to 4000"),
        ("[front_end]\nn_bands = 1000000000", r"front_end\.n_bands: .*equal to 10000"),
        ("[front_end]\nn_bands = 9999", r"9,999 mel bands, but windows of 400 samples"),
        ("[front_end]\nhop_seconds = 1e-9", r"windows of 400 samples, hops of 0 "),
        ("[front_end]\npatch_frames = 100000\nhop_seconds = 1.0", r"are not between 1 and 10,000,"),
        ("[sweep]\nn_resamples = 1000000000000", r"sweep\.n_resamples: .*equal to 1000000"),
        ("[sweep]\nseeds = [-1]", r"sweep\.seeds\.0: .*greater than or equal to 0"),
        ("[teacher]\nname = 't'\ntrain.learning_rate = inf", r"learning_rate: .*finite number"),
        ("[teacher]\nname = 't'\ntrain.ridge = nan", r"ridge: .*finite number"),
        ("x = " + "[" * 5_000 + "]" * 5_000, "cannot be read as TOML"),
        ("#" * 1_000_001, "1,000,001 bytes; a recipe has 1,000,000 at most"),
    ],
)
def test_numbers_beyond_all_measure_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(EarmarkError, match=message):
        read_recipe(path)
