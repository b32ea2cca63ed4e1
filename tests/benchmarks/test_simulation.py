from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import simulation
from earmark.labels.ontology import Ontology
from simulated_runs import make_study


def test_a_study_that_is_cut_short_is_balanced() -> None:
    runs = list(simulation.settings(["scenes", "esc10"]))
    assert len({run.name for run in runs}) == len(runs) == 36
    first = runs[:6]
    assert {(run.n_train, run.world) for run in first} == {(4500, 0)}
    assert {(run.dataset, run.missing_rate) for run in first} == {
        (run.dataset, run.missing_rate) for run in runs
    }


def test_the_report_is_short_and_the_file_has_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.report(make_study(), tmp_path)
    assert len(capsys.readouterr().out.splitlines()) < 100
    found = json.loads((tmp_path / "benchmarks" / "results" / "simulation.json").read_text())
    assert (found["n_runs"], found["n_worlds"], found["seconds"]) == (16, 2, 320)
    assert len(found["gains"]) == 8 * 5 * 6  # settings x strategies x metrics
    assert {path.name for path in (tmp_path / "docs" / "figures").glob("*.png")} == {
        "simulation_flags.png", "simulation_gains_500.png", "simulation_gains_4500.png",
    }  # fmt: skip


def test_a_mixture_tells_which_classes_sound() -> None:
    tones = [[np.full(5 * simulation.CLIP_SAMPLES, 0.1, np.float32)] for _ in range(4)]
    rng = np.random.default_rng(0)
    drawn = [simulation._mixture(tones, rng) for _ in range(50)]
    assert {int(present.sum()) for _, present in drawn} == {1, 2, 3}
    assert all(np.abs(waveform).max() <= 1 for waveform, _ in drawn)
    assert {len(waveform) for waveform, _ in drawn} == {simulation.CLIP_SAMPLES}


def test_the_loud_part_is_not_the_silence_at_the_end() -> None:
    recording = np.zeros(5 * simulation.CLIP_SAMPLES, np.float32)
    recording[: simulation.CLIP_SAMPLES] = 0.5
    part = simulation._loud_part(recording, np.random.default_rng(0))
    assert part.tolist() == recording[: simulation.CLIP_SAMPLES].tolist()


def test_siblings_share_a_parent() -> None:
    ontology = Ontology(("dog", "cat", "rain"), {"dog": ("animal",), "cat": ("animal",)})
    assert simulation._siblings(ontology).tolist() == [
        [False, True, False], [True, False, False], [False, False, False],
    ]  # fmt: skip
