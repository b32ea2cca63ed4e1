from __future__ import annotations

import hashlib
import wave
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from earmark.compute import LocalEngine
from earmark.config import HidingParams, MixtureParams
from earmark.datasets import (
    CONTENTS,
    Workspace,
    draw_events,
    find_sources,
    import_mixtures,
    import_sounds,
    mixed_sound,
    n_missing,
)
from earmark.datasets.simulate import mixtures
from earmark.errors import EarmarkError

RATE_HZ = mixtures.SAMPLE_RATE_HZ
CLASSES = ("bell", "buzz", "click", "hiss")
SMALL = MixtureParams(
    n_clips=24, clip_seconds=1.0, shortest_sound_seconds=0.3, max_sounds=3, n_groups=4, seed=5,
)  # fmt: skip


def recorded(kind: int, number: int) -> np.ndarray:
    """Return integer samples of a made-up recording, silent at its end."""
    time = np.arange(RATE_HZ // 2)
    saw = time * (40 + 60 * kind + 3 * number) % RATE_HZ // 4 - RATE_HZ // 8
    return np.concatenate([saw * (1 + number) // 8, np.zeros(RATE_HZ // 4, int)]).astype(np.int16)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Eight recordings of each class, two of each source."""
    folder = tmp_path_factory.mktemp("recordings")
    rows = []
    for kind, name in enumerate(CLASSES):
        for number in range(8):
            path = folder / "sounds" / f"{name}-{number}.wav"
            path.parent.mkdir(exist_ok=True)
            with wave.open(str(path), "wb") as file:
                file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
                file.writeframes(recorded(kind, number).tobytes())
            rows.append((path.name, name, f"{name}-{number // 2}"))
    pl.DataFrame(rows, ["filename", "label", "source"], orient="row").write_csv(folder / "l.csv")
    return import_sounds(folder / "sounds", folder / "l.csv", folder / "w").workspace


@pytest.fixture(scope="module")
def mixed(recordings: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    hiding = HidingParams(recall_range=(0.4, 0.6), seed=5)
    return import_mixtures(recordings, tmp_path_factory.mktemp("w"), SMALL, hiding).workspace


def contents(workspace: Workspace) -> pl.DataFrame:
    return pl.read_csv(workspace.root / CONTENTS)


def test_truth_is_what_a_clip_is_made_of_and_labels_are_part_of_it(mixed: Workspace) -> None:
    truth = mixed.truth
    assert truth is not None
    said = truth.rows().filter("present").select("clip_id", "class_id")
    made = contents(mixed).select("clip_id", "class_id")
    assert set(said.iter_rows()) == set(made.iter_rows())
    given = set(mixed.labels.rows().filter("present").select("clip_id", "class_id").iter_rows())
    assert given < set(said.iter_rows())
    assert n_missing(truth, mixed.labels).sum() == len(said) - len(given)
    absent = mixed.labels.rows().filter(~pl.col("present")).select("clip_id", "class_id")
    assert len(absent) > 0
    assert not set(absent.iter_rows()) & set(said.iter_rows())


def test_no_source_recording_is_in_two_groups_and_no_group_in_two_splits(mixed: Workspace) -> None:
    names = [(f"{name}-{n}.wav", f"{name}-{n // 2}") for name in CLASSES for n in range(8)]
    origins = pl.DataFrame(names, ["recording", "origin"], orient="row")
    made = contents(mixed).join(mixed.clips, on="clip_id").join(origins, on="recording")
    assert made.group_by("origin").agg(pl.col("source").n_unique())["source"].max() == 1
    assert mixed.clips.group_by("source").agg(pl.col("split").n_unique())["split"].max() == 1
    assert set(mixed.clips["split"]) == {"train", "tune", "eval"}


def test_samples_are_the_same_on_every_machine(recordings: Workspace) -> None:
    sources = find_sources(recordings, SMALL)
    heard = b"".join(mixed_sound(SMALL, sources, index).tobytes() for index in range(4))
    assert hashlib.sha256(heard).hexdigest()[:16] == "4273ac2dc78c1017"


def test_sounds_differ_in_level_as_drawn(recordings: Workspace) -> None:
    sources = find_sources(recordings, SMALL)
    for index in range(SMALL.n_clips):
        events = draw_events(SMALL, sources, index)
        assert 1 <= len(events) <= 3
        assert len({event.recording.class_id for event in events}) == len(events)
        sound = mixed_sound(SMALL, sources, index)
        assert sound.shape == (RATE_HZ,)
        assert 0 < np.abs(sound.astype(int)).max() < 32_767
    alone = next(i for i in range(24) if len(draw_events(SMALL, sources, i)) == 1)
    own = draw_events(SMALL, sources, alone)[0].level_db
    power = np.square(mixed_sound(SMALL, sources, alone) / 32_768)
    blocks = power[: len(power) // 400 * 400].reshape(-1, 400).mean(axis=1)
    loudest = 10 * np.log10(blocks.max())
    assert loudest == pytest.approx(own - 26, abs=6)


def test_an_interrupted_import_goes_on_and_a_longer_one_begins_like_a_shorter(
    recordings: Workspace, mixed: Workspace, tmp_path: Path
) -> None:
    shorter = import_mixtures(recordings, tmp_path, SMALL.model_copy(update={"n_clips": 9}))
    files = sorted((tmp_path / "audio").glob("*.flac"))
    assert len(files) == 9
    files[3].unlink()
    again = import_mixtures(recordings, tmp_path, SMALL, engine=LocalEngine(2)).workspace
    assert shorter.n_found == 9
    for name in again.clips["audio"]:
        assert (again.root / name).read_bytes() == (mixed.root / name).read_bytes()
    assert soundfile.info(again.root / again.clips["audio"][0]).samplerate == RATE_HZ


def test_mixtures_of_others_are_not_mixed_in(recordings: Workspace, mixed: Workspace) -> None:
    other = SMALL.model_copy(update={"seed": 6})
    with pytest.raises(EarmarkError, match=r"other parameters \(seed"):
        import_mixtures(recordings, mixed.root, other)
    with pytest.raises(EarmarkError, match="a dataset or sound in it already"):
        import_mixtures(recordings, recordings.root, SMALL)


def test_too_few_recordings_are_refused(recordings: Workspace, tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="too few for 40 groups"):
        import_mixtures(recordings, tmp_path, SMALL.model_copy(update={"n_groups": 40}))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_settings_that_cannot_be_are_refused_in_a_sentence() -> None:
    with pytest.raises(EarmarkError, match=r"do not fit into clips of 0\.5 s"):
        MixtureParams.checked(clip_seconds=0.5)
    with pytest.raises(EarmarkError, match="n groups is 2: input should be greater"):
        MixtureParams.checked(n_groups=2)
    with pytest.raises(EarmarkError, match="max sounds is 0"):
        MixtureParams.checked(max_sounds=0)
