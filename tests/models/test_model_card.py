from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from earmark.audio import YAMNET
from earmark.config import ModelParams, NetworkParams
from earmark.datasets import readable_clips
from earmark.errors import EarmarkError
from earmark.metrics import METRICS, evaluate
from earmark.models import (
    Examples,
    StudentCard,
    build,
    card_text,
    load_network,
    read_card,
    score_clips,
    write_card,
    write_measured_card,
    write_network,
)
from earmark.storage import read_json, write_json
from scenes import band_workspace, open_store
from sounds import CLASS_IDS, ONTOLOGY, model_folder, sound_workspace


def test_a_card_says_what_the_network_hears_and_how_it_came_about(tmp_path: Path) -> None:
    workspace = sound_workspace(tmp_path / "w", n_clips=2)
    folder = workspace.model_folder("teacher")
    model_folder(folder, open_store(workspace))
    card = write_card(folder, ONTOLOGY, {"tune_lwlrap": 0.25})
    assert card == read_card(folder)
    assert (card.class_ids, card.class_names) == (CLASS_IDS, ("Hum", "Beep", "Hiss"))
    assert (card.front_end, card.n_inputs, card.patch_frames) == (YAMNET, 64, 96)
    assert (card.network.name, card.network.model.width) == ("teacher", 0.125)
    assert card.metrics == {"tune_lwlrap": 0.25}
    assert {"earmark", "torch", "python"} <= set(card.versions)
    assert json.loads((folder / "card.json").read_text())["digest"] == "run"


def test_people_can_read_it(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=3))
    model_folder(tmp_path / "probe", store)
    text = (tmp_path / "probe" / "README.md").read_text()
    assert text == card_text(read_card(tmp_path / "probe"))
    for expected in ("# probe", "Hum, Beep, Hiss", "embeddings made elsewhere", "3 classes"):
        assert expected in text


def test_a_card_of_another_run_is_refused_with_both_digests(tmp_path: Path) -> None:
    model_folder(tmp_path / "m", open_store(band_workspace(tmp_path, n_clips=3)))
    meta = read_json(tmp_path / "m" / "meta.json")
    write_json(tmp_path / "m" / "meta.json", meta | {"digest": "other"})
    with pytest.raises(EarmarkError, match="run run, the weights are of run other"):
        read_card(tmp_path / "m")


def test_a_missing_or_damaged_card_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"card.json is missing.*earmark train"):
        read_card(tmp_path)
    model_folder(tmp_path / "m", open_store(band_workspace(tmp_path, n_clips=3)))
    card = read_json(tmp_path / "m" / "card.json")
    write_json(tmp_path / "m" / "card.json", card | {"n_inputs": "many"})
    with pytest.raises(EarmarkError, match=r"card.json: not a model card.*n_inputs"):
        read_card(tmp_path / "m")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("{}", "network: Field required"),
        ("[]", "valid dictionary"),
        ("3", "valid dictionary"),
    ],
)
def test_what_is_no_card_is_named(tmp_path: Path, text: str, told: str) -> None:
    model_folder(tmp_path / "m", open_store(band_workspace(tmp_path, n_clips=3)))
    (tmp_path / "m" / "card.json").write_text(text)
    with pytest.raises(EarmarkError, match=rf"card.json: .*{told}.*delete .* run"):
        read_card(tmp_path / "m")


def test_a_stack_names_its_students_and_what_they_reached(tmp_path: Path) -> None:
    store = open_store(band_workspace(tmp_path, n_clips=3))
    model_folder(tmp_path / "m", store, ModelParams(architecture="linear_probe"), n_students=2)
    students = (StudentCard(name="cnn-mask0", metrics={"tune_map": 0.5}), StudentCard(name="b"))
    card = write_card(tmp_path / "m", ONTOLOGY, students=students)
    assert read_card(tmp_path / "m").students == students
    assert card.metrics == {}
    text = (tmp_path / "m" / "README.md").read_text()
    assert "| student | name | tune_map |" in text
    assert "| 0 | cnn-mask0 | 0.5000 |" in text
    assert "| 1 | b |  |" in text
    assert [card.place_of(name) for name in ("b", "0", "1")] == [1, 0, 1]
    for nobody in ("c", "2", "-1"):
        with pytest.raises(EarmarkError, match=r"no student .*from 0 to 1, or a name"):
            card.place_of(nobody)


def test_the_card_has_the_networks_figures_on_the_tune_split(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w")
    folder, store = tmp_path / "probe", open_store(workspace)
    model = ModelParams(width=0.125)
    network = NetworkParams(name="m", model=model)
    write_network(folder, network, build(model, 64, 3), workspace.labels.class_ids, store, "run")
    card = write_measured_card(workspace, network, folder)
    assert card == read_card(folder)
    clips = readable_clips(workspace, store, "tune")
    (logits,) = score_clips(load_network(folder), Examples(store, clips.store_rows))
    overall = evaluate(clips.labels, logits).overall
    assert set(card.metrics) <= {f"tune_{name}" for name in METRICS}
    assert card.metrics["tune_lwlrap"] == pytest.approx(overall["lwlrap"])
    assert all(np.isfinite(value) for value in card.metrics.values())
