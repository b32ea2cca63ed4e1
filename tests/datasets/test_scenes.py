from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.compute import LocalEngine
from earmark.config import HidingParams, SceneParams
from earmark.datasets import CLASSES, Workspace, ontology, priors, scene, scene_truth, write_scenes
from earmark.datasets.simulate import scenes
from earmark.errors import EarmarkError

RATE_HZ = scenes.SAMPLE_RATE_HZ
SOUNDS = [row for row in CLASSES if row.source is not None]
PARENTS = [row for row in CLASSES if row.source is None]
SMALL = SceneParams(n_train=5, n_tune=2, n_eval=3, clip_seconds=1.0, seed=7)


def test_ontology_is_complete():
    tree = ontology()
    assert len(set(tree.class_ids)) == len(CLASSES)
    assert all(tree.definitions[class_id].endswith(".") for class_id in tree.class_ids)
    assert tree.ancestors("male_speech") == {"speech", "human"}
    assert tree.siblings("siren") == {"beep", "telephone", "buzzer"}
    assert all(tree.ancestors(row.class_id) for row in SOUNDS)


def test_scenes_are_sound_and_reproducible():
    peaks = []
    for index in range(40):
        waveform = scene(SMALL, index)[0]
        assert waveform.shape == (RATE_HZ,)
        assert waveform.dtype == np.float32
        assert np.isfinite(waveform).all()
        assert np.array_equal(waveform, scene(SMALL, index)[0])
        peaks.append(np.abs(waveform).max())
    assert max(peaks) <= 1
    assert max(peaks) > 5 * min(peaks)  # loud and quiet scenes


def test_scene_depends_on_seed_and_index_but_not_on_the_splits():
    base = scene(SMALL, 3)[0]
    assert not np.array_equal(base, scene(SMALL, 4)[0])
    assert not np.array_equal(base, scene(SMALL.model_copy(update={"seed": 8}), 3)[0])
    assert np.array_equal(base, scene(SMALL.model_copy(update={"n_train": 99}), 3)[0])


def test_truth_holds_parents_and_counts_events():
    params = SceneParams(max_events=3)
    n_sounds = Counter()
    for index in range(200):
        is_present = scene_truth(params, index)
        present = {ontology().class_ids[column] for column in np.flatnonzero(is_present)}
        leaves = {row.class_id for row in SOUNDS} & present
        n_sounds[len(leaves)] += 1
        assert present == leaves.union(*(ontology().ancestors(leaf) for leaf in leaves))
    assert set(n_sounds) == {1, 2, 3}


def test_events_stand_above_the_background_by_their_level():
    params = SceneParams(max_events=1, level_range_db=(25, 25))
    rises_db = []
    for index in range(40):
        waveform = scene(params, index)[0]
        energies = np.square(waveform).reshape(-1, RATE_HZ // 10).mean(axis=1)
        rises_db.append(10 * np.log10(energies.max() / energies.min()))
    assert np.median(rises_db) == pytest.approx(25, abs=2)


def test_priors_are_long_tailed_and_followed():
    params = SceneParams(max_events=1)
    chances = priors(params)
    assert chances.sum() == pytest.approx(1)
    assert chances[ontology().index["male_speech"]] == pytest.approx(
        31 * chances[chances > 0].min()
    )
    counts = sum(scene_truth(params, index).astype(int) for index in range(2_000))
    leaves = [ontology().index[row.class_id] for row in SOUNDS]
    deviation = (counts - 2_000 * chances)[leaves] / np.sqrt(2_000 * chances[leaves])
    assert np.abs(deviation).max() < 4


def test_written_scenes_make_a_workspace(tmp_path):
    written = write_scenes(tmp_path, SMALL, HidingParams(), engine=LocalEngine(1))
    workspace = Workspace.open(written.root)
    assert workspace.clips["split"].to_list() == ["train"] * 5 + ["tune"] * 2 + ["eval"] * 3
    assert workspace.clips["clip_id"][3] == "scene-000003"
    assert workspace.clips["source"].equals(workspace.clips["clip_id"], check_names=False)
    assert (np.abs(workspace.truth.states()) == 1).all()
    assert np.array_equal(workspace.truth.states()[4] == 1, scene_truth(SMALL, 4))
    hidden = workspace.labels.states()
    assert (hidden[hidden != 0] == workspace.truth.states()[hidden != 0]).all()
    assert workspace.ontology.to_table().equals(ontology().to_table())


def test_audio_is_16_bit_wav_of_the_scene(tmp_path):
    workspace = write_scenes(tmp_path, SMALL, HidingParams(), engine=LocalEngine(1))
    for index, name in enumerate(workspace.clips["audio"]):
        path = workspace.audio_path(name)
        waveform, sample_rate_hz = soundfile.read(path, dtype="float32")
        assert (soundfile.info(path).format, soundfile.info(path).subtype) == ("WAV", "PCM_16")
        assert sample_rate_hz == RATE_HZ
        assert np.abs(waveform - scene(SMALL, index)[0]).max() <= 2**-14


def test_interrupted_run_continues_and_keeps_what_is_there(tmp_path):
    workspace = write_scenes(tmp_path, SMALL, HidingParams(), engine=LocalEngine(1))
    lost = workspace.audio_path("audio/scene-000002.wav")
    content = lost.read_bytes()
    kept = sorted(path for path in (tmp_path / "audio").glob("*.wav") if path != lost)
    times = [path.stat().st_mtime_ns for path in kept]
    lost.unlink()
    again = write_scenes(tmp_path, SMALL, HidingParams(), engine=LocalEngine(1))
    assert lost.read_bytes() == content
    assert [path.stat().st_mtime_ns for path in kept] == times
    assert again.labels.digest == workspace.labels.digest


@pytest.mark.parametrize("name", ["audio/scene-000000.wav", "labels.parquet"])
def test_a_folder_with_files_of_others_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(EarmarkError, match="nothing was changed"):
        write_scenes(tmp_path, SMALL, HidingParams(), engine=LocalEngine(1))
    assert path.read_text() == "mine"


def test_scenes_of_other_parameters_are_not_mixed_in(tmp_path):
    write_scenes(tmp_path, SMALL, HidingParams(), engine=LocalEngine(1))
    larger = SMALL.model_copy(update={"n_eval": 4})
    assert len(write_scenes(tmp_path, larger, HidingParams(), engine=LocalEngine(1)).clips) == 11
    with pytest.raises(EarmarkError, match=r"other parameters \(seed 7 -> 8\)"):
        write_scenes(
            tmp_path, SMALL.model_copy(update={"seed": 8}), HidingParams(), engine=LocalEngine(1)
        )
