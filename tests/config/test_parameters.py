from __future__ import annotations

import pytest
from pydantic import ValidationError

from earmark.config import (
    PAPER_DISCARD_PERCENTS,
    CompareParams,
    FrontEndParams,
    NetworkParams,
    Recipe,
    SweepParams,
    TrainParams,
)
from earmark.storage import (
    digest,
)


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


def test_equal_parameters_have_equal_digests_and_any_change_shows() -> None:
    assert digest(Recipe()) == digest(Recipe())
    assert digest(TrainParams(seed=1)) != digest(TrainParams(seed=2))
    assert digest(SweepParams(), "a") != digest("a", SweepParams())


def test_how_often_a_run_is_saved_is_no_part_of_it() -> None:
    often = TrainParams(checkpoint_seconds=1)
    assert often.digest() == TrainParams().digest()
    network = NetworkParams(name="a", train=often)
    assert network.digest() == NetworkParams(name="a").digest()
    recipe = Recipe(teacher=NetworkParams(name="t", train=often), students=[network])
    usual = Recipe(teacher=NetworkParams(name="t"), students=[NetworkParams(name="a")])
    assert recipe.digest() == usual.digest()
    assert network.model_dump()["train"]["checkpoint_seconds"] == 1, "it is kept all the same"


def test_a_digest_of_an_unknown_thing_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        digest(object())


def test_a_run_is_as_long_as_its_epochs_or_its_steps() -> None:
    assert TrainParams().length == "10 epochs"
    by_steps = TrainParams(steps=5_000)
    assert (by_steps.epochs, by_steps.length) == (None, "5,000 steps")
    assert TrainParams.model_validate(by_steps.model_dump()) == by_steps
    for wrong in ({"epochs": 3, "steps": 5}, {"epochs": None}):
        with pytest.raises(ValueError, match="exactly one of epochs and steps"):
            TrainParams(**wrong)


@pytest.mark.parametrize("name", ["../../out", "..", ".hidden", "a/b", "a\\b", "", "a\0b", "a\n"])
def test_a_name_of_a_folder_leads_nowhere_else(name: str) -> None:
    for params in (SweepParams, CompareParams):
        with pytest.raises(ValidationError):
            params(train_sets={name: 1.0})
    with pytest.raises(ValidationError):
        NetworkParams(name=name)
