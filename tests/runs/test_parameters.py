from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from pydantic import ValidationError

from earmark.errors import EarmarkError
from earmark.runs.parameters import (
    PAPER_DISCARD_PERCENTS,
    FrontEndParams,
    Recipe,
    SweepParams,
    TaskResources,
    TrainParams,
    digest,
    read_recipe,
)


def recipe_file(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_the_paper_has_18_operating_points() -> None:
    assert len(PAPER_DISCARD_PERCENTS) == 18
    assert PAPER_DISCARD_PERCENTS[:3] == (0, 0.1, 0.2)


def test_front_end_derives_the_numbers_of_the_paper() -> None:
    params = FrontEndParams()
    assert (params.window_samples, params.hop_samples, params.fft_samples) == (400, 160, 512)
    assert (params.patch_samples, params.patch_hop_samples) == (15_600, 7_680)


def test_front_end_refuses_bands_above_half_the_sample_rate() -> None:
    with pytest.raises(ValidationError, match="half the sample rate"):
        FrontEndParams(sample_rate_hz=8_000)


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
        ("this is not TOML", ["not a TOML file"]),
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
    recipes = [
        p
        for p in (resources.files("earmark.runs") / "recipes").iterdir()
        if p.name.endswith(".toml")
    ]
    assert {"demo.toml", "paper.toml"} <= {path.name for path in recipes}
    for path in recipes:
        with resources.as_file(path) as file:
            assert read_recipe(file).name == file.stem


def test_equal_parameters_have_equal_digests_and_any_change_shows() -> None:
    assert digest(Recipe()) == digest(Recipe())
    assert digest(TrainParams(seed=1)) != digest(TrainParams(seed=2))
    assert digest(SweepParams(), "a") != digest("a", SweepParams())


def test_a_digest_of_an_unknown_thing_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        digest(object())


def test_resources_are_a_part_of_a_gpu_or_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("[resources.train]\ngpus = 0.25\nmemory_gb = 8\n")
    assert read_recipe(path).resources.train == TaskResources(gpus=0.25, memory_gb=8)
    path.write_text("[resources.train]\ngpus = 1.5\n")
    with pytest.raises(EarmarkError, match=r"a part of one or a whole number, got 1\.5"):
        read_recipe(path)


def test_a_run_is_as_long_as_its_epochs_or_its_steps() -> None:
    assert TrainParams().length == "10 epochs"
    by_steps = TrainParams(steps=5_000)
    assert (by_steps.epochs, by_steps.length) == (None, "5,000 steps")
    assert TrainParams.model_validate(by_steps.model_dump()) == by_steps
    for wrong in ({"epochs": 3, "steps": 5}, {"epochs": None}):
        with pytest.raises(ValueError, match="exactly one of epochs and steps"):
            TrainParams(**wrong)
