"""What ``fuzz.py`` damages: for every reader of files a good file, and how all of it is read.

The good files are written by the project's own writers, or by those of its tests where others write
such files: datasets' releases, networks, annotations.
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))

CLIPS, CLASSES = [f"clip{i}" for i in range(12)], ["dog", "cat", "rain"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reader:
    """A reader of files: ``write`` makes good ones in a folder, ``read`` reads all of them.

    ``read`` is given the folder, with one of the files in ``targets`` damaged, and an empty folder
    to write to. ``needs`` are libraries.
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path, Path], object]
    targets: str | Sequence[str] = "*"
    needs: tuple[str, ...] = ()

    def files(self, folder: Path) -> list[Path]:
        """Return the files of a folder that are damaged in turn."""
        patterns = [self.targets] if isinstance(self.targets, str) else self.targets
        found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
        return sorted(found)


READERS: dict[str, Reader] = {}

QUICK = frozenset(
    (
        "labels npy", "labels JSON", "ontology", "class map", "scores npy", "recipe TOML",
        "recipe.json", "folder of scores", "frame store", "Label Studio answers", "Raven",
        "Audacity", "DCASE", "AOEF", "tar of sounds", "tar.gz of sounds", "sound wav",
        "sound flac", "sound ogg", "sound mp3", "sound aiff", "model folder", "checkpoint",
    )
)  # fmt: skip
"""Readers that need a few milliseconds for an input: the tests give them many."""


def _add(name: str, write: Callable[[Path], object], read: Any, **options: Any) -> None:
    READERS[name] = Reader(name, write, read, **options)


def states() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(-1, 2, (len(CLIPS), len(CLASSES))).astype(np.int8)


def scores() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 2, (len(CLIPS), len(CLASSES))).astype(np.float32)


def long_labels() -> pl.DataFrame:
    found = np.argwhere(states())
    return pl.DataFrame(
        {
            "clip_id": [CLIPS[row] for row, _ in found],
            "class_id": [CLASSES[column] for _, column in found],
            "present": [bool(states()[row, column] > 0) for row, column in found],
        }
    )


def of_tests(file: str) -> Any:
    """Load a file of tests for what it writes; their folders are called like other libraries."""
    path = TESTS / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wav(seconds: float = 0.05, **options: Any) -> bytes:
    import soundfile

    file = io.BytesIO()
    tone = np.sin(np.arange(int(16_000 * seconds)) / 5) / 3
    soundfile.write(file, tone, 16_000, **({"format": "WAV"} | options))
    return file.getvalue()


def tar_of(path: Path, members: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


# Labels, classes, clips


def read_labels(folder: Path, _work: Path) -> None:
    from earmark.labels import read_label_file

    read_label_file(next(folder.glob("l.*")))


_LISTS = [[0, 2], [1], [], ["dog"]]
_WIDE = pl.DataFrame({"clip_id": CLIPS, **dict(zip(CLASSES, states().T.tolist(), strict=True))})
_add("labels CSV", lambda f: long_labels().write_csv(f / "l.csv"), read_labels)
_add("labels CSV, wide", lambda f: _WIDE.write_csv(f / "l.csv"), read_labels)
_add("labels TSV", lambda f: long_labels().write_csv(f / "l.tsv", separator="\t"), read_labels)
_add("labels Parquet", lambda f: long_labels().write_parquet(f / "l.parquet"), read_labels)
_add("labels Parquet, wide", lambda f: _WIDE.write_parquet(f / "l.parquet"), read_labels)
_add("labels npy", lambda f: np.save(f / "l.npy", states()), read_labels)
_add(
    "labels npz",
    lambda f: np.savez_compressed(
        f / "l.npz", labels=states(), clip_ids=np.array(CLIPS), class_ids=np.array(CLASSES)
    ),
    read_labels,
)
_add("labels JSON", lambda f: (f / "l.json").write_text(json.dumps(_LISTS[:3])), read_labels)
_SEGMENTS = '# a comment\n--PJHxphWEs, 30.000, 40.000, "/m/09x0r,/t/dd00088"\n' + "".join(
    f'abcdefghi{i:02}, {i}.000, {i + 10}.000, "/m/09x0r"\n' for i in range(12)
)
_add("segments", lambda f: (f / "l.csv").write_text(_SEGMENTS), read_labels)


def write_ontology(folder: Path) -> None:
    rows = "".join(f"{i},/m/{name},{name}\n" for i, name in enumerate(CLASSES))
    (folder / "class_labels_indices.csv").write_text("index,mid,display_name\n" + rows)
    nodes = [
        {"id": f"/m/{name}", "name": name, "description": "d", "child_ids": [f"/m/{child}"]}
        for name, child in zip(CLASSES, [*CLASSES[1:], "none"], strict=True)
    ]
    (folder / "ontology.json").write_text(json.dumps(nodes))


def read_whole_ontology(folder: Path, _work: Path) -> None:
    from earmark.labels import read_classes, read_ontology

    classes = read_classes(folder / "class_labels_indices.csv")
    read_ontology(classes, folder / "ontology.json").ancestors("/m/cat")


_add("ontology", write_ontology, read_whole_ontology)


def write_lists(folder: Path) -> None:
    table = pl.DataFrame({"class_id": CLASSES, "name": CLASSES, "parents": [[], ["dog"], []]})
    table.write_parquet(folder / "classes.parquet")
    pl.DataFrame({"clip_id": CLIPS}).write_parquet(folder / "clips.parquet")
    table.with_columns(pl.col("parents").list.join(";")).write_csv(folder / "classes.csv")
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    (folder / "clips.csv").write_text("clip_id\n" + "\n".join(CLIPS))


def read_lists(folder: Path, _work: Path) -> None:
    from earmark.labels import read_class_list, read_clip_list

    for path in folder.glob("classes.*"):
        read_class_list(path)
    for path in folder.glob("clips.*"):
        read_clip_list(path)


_add("lists of classes and clips", write_lists, read_lists)


def write_class_map(folder: Path) -> None:
    rows = [{"output": i, "class_id": name} for i, name in enumerate(CLASSES)]
    pl.DataFrame(rows).write_csv(folder / "m.csv")


def read_map(folder: Path, _work: Path) -> None:
    from earmark.labels import Ontology
    from earmark.pretrained import read_class_map

    read_class_map(folder / "m.csv", Ontology(tuple(CLASSES)), 5, ("a", "b", "c", "d", "e"))


_add("class map", write_class_map, read_map, needs=("torch",))

# Scores


def read_scores(folder: Path, work: Path) -> None:
    from earmark.scores import open_score_file

    path = next(iter(folder.glob("s.*")), folder)
    open_score_file(path).write_npy(work / "scores.npy")


_LONG_SCORES = pl.DataFrame(
    {
        "clip_id": np.repeat(CLIPS, 3),
        "class_id": CLASSES * len(CLIPS),
        "score": scores().ravel().astype(float),
    }
)
_WIDE_SCORES = pl.DataFrame(
    {"clip_id": CLIPS, **dict(zip(CLASSES, scores().T.tolist(), strict=True))}
)
_add("scores npy", lambda f: np.save(f / "s.npy", scores()), read_scores)
_add(
    "scores npz",
    lambda f: np.savez(
        f / "s.npz", scores=scores(), clip_ids=np.array(CLIPS), class_ids=np.array(CLASSES)
    ),
    read_scores,
)
_add("scores CSV", lambda f: _WIDE_SCORES.write_csv(f / "s.csv"), read_scores)
_add("scores CSV, long", lambda f: _LONG_SCORES.write_csv(f / "s.csv"), read_scores)
_add("scores Parquet", lambda f: _WIDE_SCORES.write_parquet(f / "s.parquet"), read_scores)
_add("scores Parquet, long", lambda f: _LONG_SCORES.write_parquet(f / "s.parquet"), read_scores)


def write_zarr(folder: Path) -> None:
    import zarr

    array = zarr.create_array(folder / "s.zarr", shape=(12, 3), chunks=(4, 3), dtype="f4")
    array[:] = scores()


_add("scores Zarr", write_zarr, read_scores, targets="s.zarr/**/*", needs=("zarr",))


def write_shards(folder: Path) -> None:
    pl.DataFrame({"clip_id": CLIPS}).write_parquet(folder / "clips.parquet")
    pl.DataFrame({"class_id": CLASSES}).write_parquet(folder / "classes.parquet")
    np.save(folder / "part_1.npy", scores()[:6])
    np.save(folder / "part_2.npy", scores()[6:])


_add("scores in shards", write_shards, read_scores)


def write_scan(folder: Path) -> None:
    long_labels().write_csv(folder / "l.csv")
    _WIDE_SCORES.write_csv(folder / "s.csv")
    pl.DataFrame({"class_id": CLASSES, "parents": ["", "dog", ""]}).write_csv(folder / "o.csv")


def read_scan(folder: Path, work: Path) -> None:
    from earmark.stages.scanning.inputs import InputFiles, read_inputs

    files = InputFiles(folder / "l.csv", folder / "s.csv", ontology=folder / "o.csv")
    read_inputs(files, "auto", work)


_add("inputs of a scan", write_scan, read_scan)

# Recipes and what a workspace holds


def write_recipes(folder: Path) -> None:
    from earmark.runs import Recipe, keep_recipe
    from earmark.runs.recipe import shipped_recipes

    keep_recipe(folder, Recipe())
    for name, path in list(shipped_recipes().items())[:2]:
        (folder / f"{name}.toml").write_bytes(path.read_bytes())


def read_recipes(folder: Path, _work: Path) -> None:
    from earmark.runs import find_recipe

    for path in folder.glob("*.toml"):
        find_recipe(str(path)).digest()


def read_kept_recipe(folder: Path, _work: Path) -> None:
    from earmark.runs import kept_recipe

    kept_recipe(folder).digest()


_add("recipe TOML", write_recipes, read_recipes, targets="*.toml")
_add("recipe.json", write_recipes, read_kept_recipe, targets="recipe.json")


def write_workspace(folder: Path) -> None:
    from earmark import stages
    from told_workspace import told_workspace

    workspace, _ = told_workspace(folder)
    stages.write_flags(workspace)
    stages.draw_queue(workspace)


def read_workspace(folder: Path, _work: Path) -> None:
    from earmark.datasets import Workspace, find_stale

    workspace = Workspace.open(folder)
    _ = workspace.clips, workspace.ontology, workspace.labels, workspace.truth
    find_stale(workspace)


def read_stored_flags(folder: Path, work: Path) -> None:
    from earmark import stages

    stages.export_labels(folder, work / "labels.csv")


def read_stored_queue(folder: Path, _work: Path) -> None:
    from earmark.datasets import Workspace
    from earmark.review import read_queue

    read_queue(Workspace.open(folder))


def read_score_folder(folder: Path, _work: Path) -> None:
    from earmark.scores import ScoreFolder

    for meta in folder.glob("scores/*/meta.json"):
        found = ScoreFolder.open(meta.parent)
        found.best_patch(CLIPS[0], CLASSES[0])
        _ = found.logits.sum(), found.told, repr(found)


def read_frame_store(folder: Path, _work: Path) -> None:
    from earmark.audio import FrameStore

    store = FrameStore.open(folder / "frames")
    _ = store.n_patches, store.patch_seconds, store.clip_ids
    for clip in range(min(len(store.index), 3)):
        store.frames(clip).sum()


_add("workspace", write_workspace, read_workspace, targets=("*.parquet", "*/*.json", "*/*/*.json"))
_add("flags", write_workspace, read_stored_flags, targets="flags/*")
_add("queue", write_workspace, read_stored_queue, targets=("review/*", "queue*"))
_add("folder of scores", write_workspace, read_score_folder, targets="scores/*/*")
_add(
    "frame store",
    write_workspace,
    read_frame_store,
    targets=("frames/meta.json", "frames/index.parquet", "frames/*.npy"),
)

# Answers and annotations


def write_judgements(folder: Path) -> None:
    from earmark.review import JudgementStore, write_judgements
    from reviews import judgement

    with JudgementStore(folder / "j.sqlite") as store:
        store.add_all([judgement(number) for number in range(30)])
        store.retract(judgement(3), judgement(99).id, NOW)
        for name in ("j.csv", "j.parquet"):
            write_judgements(folder / name, store.rows())


def read_store(folder: Path, _work: Path) -> None:
    from earmark.review import JudgementStore
    from reviews import judgement

    with JudgementStore(folder / "j.sqlite", must_exist=True) as store:
        store.rows()
        store.current("ann")
        store.add(judgement(50))


def read_judgement_tables(folder: Path, _work: Path) -> None:
    from earmark.review import read_judgements

    for name in ("j.csv", "j.parquet"):
        read_judgements(folder / name, NOW)


_add("judgements.sqlite", write_judgements, read_store, targets="j.sqlite")
_add("judgements as tables", write_judgements, read_judgement_tables, targets="j.[cp]*")


def write_label_studio(folder: Path) -> None:
    tasks = of_tests("datasets/test_label_studio.py").TASKS
    (folder / "t.json").write_text(json.dumps(tasks))


def read_studio(folder: Path, work: Path) -> None:
    from earmark.datasets import import_table

    import_table(None, folder / "t.json", work / "w")


def write_studio_answers(folder: Path) -> None:
    answer = {"from_name": "answer", "value": {"choices": ["present"]}}
    span = {"from_name": "span", "value": {"start": 1.5, "end": 2.5, "labels": ["heard here"]}}
    given = {
        "id": 7,
        "completed_by": {"email": "ann@x", "id": 1},
        "created_at": "2026-01-01T12:00:00Z",
        "result": [answer, span],
        "was_cancelled": False,
    }
    data = {"audio": "a.wav", "item": "i1", "clip_id": "c1", "class_id": "dog"}
    tasks = [{"data": data | {"start_seconds": 1.0}, "annotations": [given]}] * 3
    (folder / "a.json").write_text(json.dumps(tasks))


def read_studio_answers(folder: Path, _work: Path) -> None:
    from earmark.review import read_label_studio_answers

    read_label_studio_answers(folder / "a.json")


_add("Label Studio", write_label_studio, read_studio)
_add("Label Studio answers", write_studio_answers, read_studio_answers)

_RAVEN = (
    "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\t"
    "Begin File\tFile Offset (s)\tAnnotation\n"
    + "".join(
        f"{i}\tSpectrogram 1\t1\t{i}.5\t{i + 1}.5\t0\t8000\tx.wav\t{i}.5\tdog\n" for i in range(5)
    )
)
_DCASE = "filename\tonset\toffset\tevent_label\nx.wav\t1.0\t2.0\tdog\n"
_AUDACITY = "1.0\t2.0\tdog\n\\\t100\t2000\n3.0\t4.5\tcat\n"


def read_selection_file(folder: Path, _work: Path) -> None:
    from earmark.review.selections.formats import read_selections, selection_format

    for path in folder.iterdir():
        told = selection_format(path)
        if told is not None:
            read_selections(path, told)


def write_aoef(folder: Path) -> None:
    from soundevent import data

    from earmark.review.selections.aoef import _tag, _write

    recording = data.Recording(path=Path("x.wav"), duration=9, channels=1, samplerate=8_000)
    clip = data.Clip(recording=recording, start_time=0, end_time=9)
    event = data.SoundEvent(recording=recording, geometry=data.TimeInterval(coordinates=[1.0, 2.0]))
    user = data.User(username="ann")
    heard = data.SoundEventAnnotation(sound_event=event, tags=[_tag("dog")], created_by=user)
    told = data.ClipAnnotation(clip=clip, tags=[_tag("cat")], sound_events=[heard])
    task = data.AnnotationTask(clip=clip)
    project = data.AnnotationProject(name="p", clip_annotations=[told], tasks=[task])
    _write(folder / "x.json", project)


_add("Raven", lambda f: (f / "x.txt").write_text(_RAVEN), read_selection_file)
_add("Audacity", lambda f: (f / "x.txt").write_text(_AUDACITY), read_selection_file)
_add("DCASE", lambda f: (f / "x.tsv").write_text(_DCASE), read_selection_file)
_add("AOEF", write_aoef, read_selection_file, needs=("soundevent",))
