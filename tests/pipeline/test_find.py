"""From a folder of sound and labels to the first flag to be heard, in one call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from earmark import pipeline
from earmark.audio import FrameStore
from earmark.compute import SILENT
from earmark.config import Recipe, find_recipe, kept_recipe
from earmark.datasets import scored_frames
from earmark.errors import EarmarkError
from earmark.pipeline import FoundMissing, default_work, open_queue
from earmark.review import CONTROLS, JudgementStore
from earmark.storage import read_json
from made_up_yamnet import install
from sound_folders import wav
from tone_folders import NAMES, ToneFolder, scene, tone_folder

FIND = find_recipe("find")
QUICK = FIND.model_copy(update={"cross_fit": FIND.cross_fit.model_copy(update={"n_folds": 3})})


@pytest.fixture(scope="module", autouse=True)
def _cache(knowing_yamnet: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """YAMNet is on this machine, for this process."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(monkeypatch, tmp_path_factory.mktemp("cache"), knowing_yamnet)
        yield


def find(tones: ToneFolder, work: Path, **options) -> FoundMissing:
    said = {"recipe": QUICK, "progress": SILENT, **options}
    return pipeline.find(tones.sounds, tones.labels, work=work, **said)


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> ToneFolder:
    return tone_folder(tmp_path_factory.mktemp("tones"), 220)


@pytest.fixture(scope="module")
def found(tones: ToneFolder, tmp_path_factory: pytest.TempPathFactory) -> FoundMissing:
    return find(tones, tmp_path_factory.mktemp("found"))


def is_missing(found: FoundMissing, tones: ToneFolder) -> np.ndarray:
    """Tell of each flag, in order, whether its sound is there."""
    flags = found.flagged.flags
    rows = [int(name.removeprefix("clip").removesuffix(".wav")) for name in flags["clip_id"]]
    return tones.present[rows, [NAMES.index(name) for name in flags["class_id"]]]


def test_flags_are_labels_that_are_missing(found: FoundMissing, tones: ToneFolder) -> None:
    right = is_missing(found, tones)
    assert len(right) >= 20
    assert right[:20].mean() > 0.8
    n_missing = int((tones.present & ~tones.given).sum())
    assert n_missing / tones.present.size < 0.3, "chance is far below"


def test_the_first_block_holds_mostly_flags(found: FoundMissing) -> None:
    assert found.is_worth_hearing
    assert found.advice() == []
    assert found.queue is not None
    assert found.queue.queue.grows
    workspace = found.workspace
    with (
        JudgementStore(workspace.judgements_path) as store,
        open_queue(workspace, store, ["ann"]) as live,
    ):
        drawn = live.next_block("ann")
    workspace.judgements_path.unlink()
    workspace.drawn_path.unlink()
    assert drawn is not None
    asked = drawn.items.filter(~pl.col("kind").is_in(CONTROLS))
    flags = found.flagged.flags.select("clip_id", "class_id")
    likely = asked.filter(kind="likely").join(flags, on=["clip_id", "class_id"], how="semi")
    assert len(likely) >= 0.8 * len(asked)
    assert len(asked.filter(kind="sample")) == 2


def test_few_sentences_say_what_was_found(found: FoundMissing, tones: ToneFolder) -> None:
    data, teacher, how_good, *known, missing = found.lines()
    assert data == f"220 clips, 3 classes; {int(tones.given.sum())} labels given."
    assert teacher.startswith("Teacher: yamnet, ")
    assert "220 labelled clips to learn from" in teacher
    assert how_good.startswith("AUC 0.")
    if found.taught.way != "probe":
        assert known == [
            f"It knows 3 of the classes by itself: see {found.workspace.class_map_path}."
        ]
    assert missing == found.flagged.findings.estimates.describe()
    assert missing.startswith(f"{len(found.flagged.flags)} flags, about ")


def test_the_recipe_is_remembered_with_the_way(found: FoundMissing) -> None:
    kept = kept_recipe(found.workspace.root)
    assert (kept.name, kept.way) == ("find", found.taught.way)
    store = scored_frames(found.workspace, kept)
    assert isinstance(store, FrameStore)
    assert store.patch_seconds == pytest.approx((0.48, 0.96))


def test_twice_is_the_same_and_computes_nothing(
    found: FoundMissing, tones: ToneFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    for place in (
        "earmark.models.pretrained.embedding.NetworkExtractor.frames",
        "earmark.models.pretrained.embedding._score_outputs",
        "earmark.training.teacher._train_and_score",
        "earmark.training.blend.learn_weights",
    ):
        monkeypatch.setattr(place, refuse)
    before = read_json(found.workspace.queue_seal_path)
    again = find(tones, found.workspace.root)
    assert again.lines() == found.lines()
    assert again.flagged.flags.equals(found.flagged.flags)
    assert read_json(again.workspace.queue_seal_path) == before


def changed(tones: ToneFolder, tmp_path: Path) -> ToneFolder:
    """The same sounds, and a label less."""
    labels = tmp_path / "fewer.csv"
    labels.write_text("".join(tones.labels.read_text().splitlines(keepends=True)[:-1]))
    return ToneFolder(tones.sounds, labels, tones.present, tones.given)


def test_other_labels_are_refused_and_then_replace_those(tmp_path: Path) -> None:
    tones, work = tone_folder(tmp_path, 30), tmp_path / "w"
    find(tones, work)
    before = (work / "labels.parquet").read_bytes()
    fewer = changed(tones, tmp_path)
    with pytest.raises(EarmarkError, match=r"with other labels; nothing was changed.*--replace"):
        find(fewer, work)
    assert (work / "labels.parquet").read_bytes() == before
    found = find(fewer, work, replace=True)
    assert int(found.workspace.labels.n_positives.sum()) == int(tones.given.sum()) - 1


def test_a_weak_teacher_says_so_and_what_would_help(tmp_path: Path) -> None:
    found = find(tone_folder(tmp_path, 220, is_random=True), tmp_path / "w")
    assert not found.is_worth_hearing
    assert found.taught.is_weak
    told = " ".join([*found.lines(), *found.advice()])
    assert "This teacher is too weak" in told
    assert "What would help: more labelled clips" in told or "matching more classes" in told
    if found.queue is not None:
        assert f"earmark review {tmp_path / 'w'}" in told


def test_few_clips_go_by_the_networks_own_classes(tmp_path: Path) -> None:
    found = find(tone_folder(tmp_path, 30), tmp_path / "w")
    assert found.taught.way == "zero-shot"
    assert "30 labelled clips are too few to learn from (under 200)" in found.lines()[1]


def test_without_a_label_file_folders_are_the_classes(tmp_path: Path) -> None:
    tones = tone_folder(tmp_path, 12)
    for clip, row in enumerate(tones.given):
        folder = tones.sounds / NAMES[int(np.flatnonzero(row)[0])]
        folder.mkdir(exist_ok=True)
        (tones.sounds / f"clip{clip:03}.wav").rename(folder / f"clip{clip:03}.wav")
    found = pipeline.find(tones.sounds, work=tmp_path / "w", recipe=QUICK, progress=SILENT)
    assert set(found.workspace.ontology.class_ids) <= set(NAMES)
    assert len(found.workspace.clips) == 12


def test_labels_that_are_all_absent_are_refused(tmp_path: Path) -> None:
    tones = tone_folder(tmp_path, 4)
    rows = [f"clip{clip:03}.wav,Dog,0" for clip in range(4)]
    tones.labels.write_text("\n".join(["filename,label,present", *rows]))
    with pytest.raises(EarmarkError, match="not one label says that a sound is present"):
        find(tones, tmp_path / "w")
    assert not (tmp_path / "w" / "embeddings").exists()


def test_clips_that_cannot_be_read_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    tones = tone_folder(tmp_path, 30)
    (tones.sounds / "clip003.wav").write_bytes(wav(0.5)[:40])
    found = find(tones, tmp_path / "w")
    assert len(found.taught.scores.clip_ids) == 29
    assert any("clip003" in line for line in found.read_told())


def test_no_clip_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    tones = tone_folder(tmp_path, 3)
    for path in tones.sounds.iterdir():
        path.write_text("no sound")
    with pytest.raises(EarmarkError, match=r"none of the 3 clips .* could be read"):
        find(tones, tmp_path / "w")


def test_no_weights_are_told_before_anything_is_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from earmark.models.pretrained import embedding

    embedding._opened.cache_clear()
    monkeypatch.setenv("EARMARK_TEACHERS", str(tmp_path / "none"))
    with pytest.raises(EarmarkError, match=r"yamnet is not on this machine yet"):
        find(tone_folder(tmp_path, 3), tmp_path / "w")
    assert not (tmp_path / "w").exists(), "nothing was imported in vain"
    embedding._opened.cache_clear()


def test_a_recipe_from_scratch_finds_too(tmp_path: Path) -> None:
    small = {"model": {"width": 0.125}, "train": {"epochs": 1}}
    recipe = Recipe.model_validate(
        {
            "name": "scratch",
            "teacher": {"name": "teacher", **small},
            "students": [{"name": "student", **small}],
            "cross_fit": {"n_folds": 2},
        }
    )
    found = find(tone_folder(tmp_path, 30), tmp_path / "w", recipe=recipe)
    assert found.taught.way is None
    assert "teacher, trained here from scratch" in found.lines()[1]
    assert found.workspace.has_frames()


def test_long_recordings_are_cut_into_clips(tmp_path: Path) -> None:
    rng, sounds = np.random.default_rng(0), tmp_path / "sounds"
    sounds.mkdir()
    rows = []
    for number in range(4):
        row = np.eye(3, dtype=bool)[number % 3]
        soundfile.write(sounds / f"r{number}.wav", scene(rng, row, 2.0), 16_000)
        rows.append(f"r{number}.wav,{NAMES[number % 3]},0.0,2.0")
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(["filename,label,start,end", *rows]))
    found = pipeline.find(
        sounds, labels, work=tmp_path / "w", recipe=QUICK, clip_seconds=0.5, progress=SILENT
    )
    assert len(found.workspace.clips) == 16
    assert found.workspace.clips["source"].n_unique() == 4
    assert found.workspace.labels.n_positives.sum() == 16


def test_the_work_is_kept_beside_the_caller() -> None:
    assert default_work("/data/field/recordings") == Path("recordings-earmark")
    assert default_work(".").name == f"{Path.cwd().name}-earmark"
