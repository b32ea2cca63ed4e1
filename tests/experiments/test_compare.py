from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from earmark.cli.app import app
from earmark.config import CompareParams, Recipe, keep_recipe
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.experiments import (
    BASELINE,
    METRICS,
    Basis,
    Evaluations,
    Student,
    StudentResults,
    combine,
    parse_strategy,
    read_comparison,
    run_compare,
    tabulate,
    with_holm,
)
from earmark.experiments.compare import compare
from earmark.metrics import Draws
from earmark.report import comparison_headline, strategy_verdicts, verdict_sentence, verdicts
from earmark.scores import ScoreFolder
from made_up import Page
from scenes import FOLDS, ONE, PROBE, band_workspace, scored_workspace

N_RESAMPLES = 200
BASES = [Basis(split, "given", N_RESAMPLES) for split in ("tune", "eval")]


def students(points: Mapping[str, tuple[float, ...]], seeds: tuple[int, ...]) -> list[Student]:
    found = [(BASELINE, 0.0)]
    for name, own in points.items():
        strategy = parse_strategy(name, [])
        found += [(strategy, point) for point in own]
    return combine([PROBE], {"train": 1.0}, seeds, found)


def made_up(wanted: list[Student], gains: Mapping[tuple[str, str, float], float]) -> Evaluations:
    """Marks that differ from the baseline's 0.5 by the gains of (split, strategy, point)."""
    shared = np.random.default_rng(0).normal(0, 0.05, N_RESAMPLES)
    results = {}
    for place, student in enumerate(wanted):
        own = np.random.default_rng(place).normal(0, 0.005, N_RESAMPLES)
        own = own * (student != student.baseline)
        for basis in BASES:
            value = 0.5 + gains.get((basis.split, student.strategy.name, student.point), 0.0)
            draws = Draws(value, value + shared + own)
            table = pl.DataFrame(
                {
                    "class_id": ["a", "b"],
                    **{name: [9, 9] for name in ("n_positives", "n_negatives")},
                    **{name: [value - 0.1, value + 0.1] for name in ("lwlrap", "ap")},
                    **{name: [value, value] for name in ("d_prime_explicit", "d_prime_all")},
                }
            )
            results[basis, student] = StudentResults(dict.fromkeys(METRICS, draws), table)
    return Evaluations(results)


def test_points_are_chosen_on_tune_and_reported_on_eval() -> None:
    wanted = students({"mask": (1, 2, 5), "soft": (1, 2), "random": (1, 2, 5)}, seeds=(0,))
    gains = {
        ("tune", "mask", 1): 0.0, ("tune", "mask", 2): 0.099, ("tune", "mask", 5): 0.100,
        ("eval", "mask", 1): 0.3, ("eval", "mask", 2): 0.08, ("eval", "mask", 5): 0.09,
        ("tune", "soft", 1): -0.05, ("tune", "soft", 2): -0.05, ("eval", "soft", 2): 0.2,
        ("eval", "random", 5): 0.01,
    }  # fmt: skip
    found = compare(made_up(wanted, gains), wanted, "lwlrap")
    by_name = {
        row["strategy"]: row for row in found.choices.filter(metric="lwlrap").iter_rows(named=True)
    }
    # The best of the mask's points on tune; not the best on eval.
    assert by_name["mask"]["point"] == 5
    assert by_name["mask"]["difference"] == pytest.approx(0.09)
    assert by_name["mask"]["chosen_on_eval_point"] == 1
    assert by_name["mask"]["chosen_on_eval"] == pytest.approx(0.8)
    # Soft lost on tune: doing nothing is chosen, whatever eval says.
    assert by_name["soft"]["point"] is None
    assert by_name["soft"]["difference"] == 0
    # The control ignores as many labels as the chosen mask.
    assert by_name["random"]["point"] == 5
    assert by_name["random"]["difference"] == pytest.approx(0.01)
    assert by_name["baseline"]["p_holm"] is by_name["random"]["p_holm"] is None
    assert by_name["mask"]["p"] == pytest.approx(1 / (N_RESAMPLES + 1))
    assert by_name["mask"]["p_holm"] == pytest.approx(2 / (N_RESAMPLES + 1))


@pytest.mark.parametrize(
    ("on_tune", "on_eval", "answer"),
    [
        ({2: 0.02, 5: 0.021}, {1: 0.3, 2: 0.04, 5: 0.05}, "Yes"),  # a tie within the noise
        ({1: 0.0001, 5: -0.1}, {1: 0.0005, 5: 0.3}, "No"),
        ({1: -0.01, 2: -0.01, 5: -0.01}, {2: 0.3}, "No"),
        ({2: 0.01}, {2: 0.008}, "Cannot tell"),
        ({2: 0.01}, {2: 0.0082, 5: 0.1}, "Cannot tell"),
        ({5: 0.1}, {5: -0.1}, "No"),
    ],
)
@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_a_sweep_and_a_comparison_of_the_same_students_say_the_same(
    on_tune: dict[float, float], on_eval: dict[float, float], answer: str, seeds: tuple[int, ...]
) -> None:
    wanted = students({"mask": (1, 2, 5), "random": (1, 2, 5)}, seeds)
    gains = {
        (split, "mask", point): gain
        for split, own in (("tune", on_tune), ("eval", on_eval))
        for point, gain in own.items()
    }
    evaluations = made_up(wanted, gains)
    (swept,) = verdicts(tabulate(evaluations, wanted).summary)
    choices = compare(evaluations, wanted, "lwlrap").choices
    (compared,) = strategy_verdicts(choices)
    assert (swept.percent, swept.gain, swept.answer) == (
        compared.percent, compared.gain, compared.answer,
    )  # fmt: skip
    assert verdict_sentence(swept) == comparison_headline(choices)
    if len(seeds) == 1:
        assert swept.answer == answer


def test_oracles_are_never_chosen_tested_or_set_aside() -> None:
    points = {
        "mask": (1,),
        "oracle/mask": (1,),
        "truth": (0,),
        "truth+mask": (1, 5),
        "random": (1,),
    }
    wanted = students(points, seeds=(0,))
    gains = {
        ("tune", "oracle/mask", 1): -0.1, ("eval", "oracle/mask", 1): 0.2,
        ("tune", "truth+mask", 5): 0.1, ("eval", "truth", 0): 0.3,
        ("tune", "mask", 1): 0.1, ("eval", "mask", 1): 0.1,
    }  # fmt: skip
    choices = compare(made_up(wanted, gains), wanted, "lwlrap").choices.filter(metric="lwlrap")
    by_name = {row["strategy"]: row for row in choices.iter_rows(named=True)}
    # Poor on tune or not, an oracle acts: there is no user to whom doing nothing would be offered.
    assert by_name["oracle/mask"]["point"] == 1
    assert by_name["oracle/mask"]["difference"] == pytest.approx(0.2)
    assert by_name["truth"]["point"] == 0
    assert by_name["truth+mask"]["point"] == 5
    roles = {name: row["role"] for name, row in by_name.items()}
    assert roles == {
        "baseline": "baseline", "mask": "tested", "random": "control",
        "oracle/mask": "oracle", "truth": "oracle", "truth+mask": "oracle",
    }  # fmt: skip
    assert {name for name, row in by_name.items() if row["p_holm"] is not None} == {"mask"}
    assert by_name["mask"]["p_holm"] == by_name["mask"]["p"]  # of one tested strategy


def test_differences_have_intervals_over_clips_and_over_classes() -> None:
    wanted = students({"mask": (1,)}, seeds=(0,))
    found = compare(made_up(wanted, {("eval", "mask", 1.0): 0.1}), wanted, "lwlrap")
    row = found.points.row(
        by_predicate=(pl.col("strategy") == "mask")
        & (pl.col("split") == "eval")
        & (pl.col("metric") == "lwlrap"),
        named=True,
    )
    assert row["difference_low"] < 0.1 < row["difference_high"]
    assert row["difference_high"] - row["difference_low"] < row["high"] - row["low"]
    assert (row["classes_low"], row["classes_high"]) == pytest.approx((0.1, 0.1))
    calibrated = found.points.filter(metric="lwlrap_calibrated")
    assert calibrated["classes_low"].null_count() == len(calibrated)


def test_seeds_that_disagree_make_a_difference_unsure() -> None:
    widths = []
    for spread in (0.0, 0.1):
        wanted = students({"mask": (1,)}, seeds=(0, 1, 2))
        results = dict(made_up(wanted, {}).results)
        for (basis, student), own in list(results.items()):
            if student != student.baseline:
                shift = 0.2 + spread * (student.seed - 1)
                draws = {
                    name: Draws(one.value + shift, one.resamples + shift)
                    for name, one in own.draws.items()
                }
                results[basis, student] = StudentResults(draws, own.per_class)
        choices = compare(Evaluations(results), wanted, "lwlrap").choices
        row = choices.filter(strategy="mask", metric="lwlrap").row(0, named=True)
        assert row["difference"] == pytest.approx(0.2)
        widths.append(row["difference_high"] - row["difference_low"])
    assert widths[1] > 5 * widths[0]


def test_holm_counts_the_strategies_of_one_comparison() -> None:
    keys = {"student": "s", "train_set": "t", "labels": "given"}
    rows = [
        {**keys, "metric": metric, "strategy": name, "role": role, "p": p}
        for metric in ("lwlrap", "map")
        for name, role, p in (
            ("baseline", "baseline", 1.0), ("mask", "tested", 0.01), ("soft", "tested", 0.03),
            ("truth", "oracle", 0.001),
        )
    ]  # fmt: skip
    groups, is_tested = [*keys, "metric"], pl.col("role") == "tested"
    corrected = with_holm(pl.DataFrame(rows), groups, is_tested)
    assert corrected.filter(metric="map")["p_holm"].to_list() == [None, 0.02, 0.03, None]
    untested = with_holm(pl.DataFrame(rows).filter(~is_tested), groups, is_tested)
    assert untested["p_holm"].null_count() == len(untested)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, ScoreFolder]:
    return scored_workspace(tmp_path_factory.mktemp("compare"))


def test_a_comparison_trains_measures_and_writes_its_tables(
    scored: tuple[Workspace, ScoreFolder],
) -> None:
    workspace, scores = scored
    params = CompareParams(
        strategies=("mask", "soft+adjust", "adjust", "em@0.1", "random", "oracle/mask", "truth"),
        discard_percents=(5, 20),
        seeds=(0, 1),
        n_resamples=100,
        ignored_percent=10,
    )
    found = run_compare(workspace, [PROBE], params, scores, FOLDS, engine=ONE)
    n_points = 1 + 2 + 2 + 1 + 1 + 2 + 1 + 1
    assert len(found.points) == n_points * 2 * 3 * len(METRICS)  # splits x labels
    assert set(found.points["labels"]) == {"given", "ignored", "truth"}
    assert set(found.points["n_seeds"]) == {2}
    assert len(found.choices) == (1 + 7) * 3 * len(METRICS)
    read = read_comparison(workspace)
    assert read.choices.equals(found.choices, null_equal=True)
    # Logit adjustment moves lwlrap alone: no metric within a class can change.
    adjusted = found.points.filter(strategy="adjust", split="eval", metric="d_prime_all")
    assert adjusted["difference"].abs().max() == pytest.approx(0, abs=1e-9)


def test_oracles_need_the_truth(scored: tuple[Workspace, ScoreFolder], tmp_path: Path) -> None:
    workspace, scores = scored
    without = band_workspace(tmp_path)
    without.truth_path.unlink()
    params = CompareParams(strategies=("truth",))
    with pytest.raises(EarmarkError, match="'truth' needs the truth"):
        run_compare(Workspace.open(without.root), [PROBE], params, scores, FOLDS)
    twice = CompareParams(strategies=("mask@1", "mask@2"))
    with pytest.raises(EarmarkError, match="listed twice"):
        run_compare(workspace, [PROBE], twice, scores, FOLDS)


def keep_comparison(workspace: Workspace) -> None:
    compared = {"strategies": ["mask"], "seeds": [0], "n_resamples": 100}
    recipe = {"students": [PROBE], "cross_fit": FOLDS, "compare": compared}
    keep_recipe(workspace.root, Recipe.model_validate(recipe))


def test_the_verb_prints_a_table_and_names_mistakes(scored: tuple[Workspace, ScoreFolder]) -> None:
    workspace, _ = scored
    keep_comparison(workspace)
    command = ["compare", str(workspace.root), "--workers", "1", "--points", "20"]
    result = CliRunner().invoke(app, [*command, "--strategy", "mask", "--strategy", "truth"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(("Yes: ", "No: ", "Cannot tell: "))
    assert "truth (oracle)" in result.stdout
    assert " of 1 strategies raise lwlrap" in result.stdout.replace("\n", " ")
    told = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(told.stdout.splitlines()[-1])["strategies"] == 1
    for extra, message in (
        (["--strategy", "maks"], "did you mean 'mask'"),
        (["--seeds", "a"], "--seeds: expected numbers with commas between"),
        (["--choose-by", "f1"], "makes no sense"),
    ):
        failed = CliRunner().invoke(app, [*command, *extra])
        assert isinstance(failed.exception, EarmarkError)
        assert message in str(failed.exception)


def test_a_mask_of_nothing_is_the_baseline(scored: tuple[Workspace, ScoreFolder]) -> None:
    workspace, scores = scored
    params = CompareParams(strategies=("mask@0,20",), seeds=(0, 1), n_resamples=100)
    found = run_compare(workspace, [PROBE], params, scores, FOLDS, engine=ONE)
    assert set(found.points["n_seeds"]) == {2}
    assert found.choices["strategy"].unique(maintain_order=True).to_list() == ["baseline", "mask"]


def report(workspace: Workspace) -> Page:
    done = CliRunner().invoke(app, ["report", str(workspace.root)])
    assert done.exception is None, done.exception
    return Page((workspace.report_folder / "index.html").read_text(encoding="utf-8"))


def test_a_comparison_alone_makes_a_report(tmp_path: Path) -> None:
    workspace, _ = scored_workspace(tmp_path)
    keep_comparison(workspace)
    flags_alone = CliRunner().invoke(app, ["report", str(workspace.root)])
    assert flags_alone.exit_code == 0  # without students it is the page of flags
    options = [str(workspace.root), "--workers", "1", "--seeds", "0", "--strategy"]

    asked = ["mask", "--strategy", "random", "--strategy", "truth", "--points", "20"]
    CliRunner().invoke(app, ["compare", *options, *asked])
    page = report(workspace)
    names = {"comparison", "comparison_ignored", "comparison_truth"}
    assert {"finding", "compared", "counts", "methods"} | names < set(page.ids)
    assert not {"discard", "table", "classes"} & set(page.ids)
    assert "truth (oracle)" in page.text
    assert "random (control)" in page.text
    assert "(1 seed: 0): mask;" in page.text
    written = {path.name for path in (workspace.report_folder / "tables").glob("comparison*")}
    assert written == {f"{name}.{ending}" for name in names for ending in ("csv", "tex")}
