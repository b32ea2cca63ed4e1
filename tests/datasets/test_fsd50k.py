from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.datasets import import_fsd50k
from earmark.errors import EarmarkError

GUITAR, MUSIC, BARK, CRUSH = "/m/02sgy", "/m/04rlf", "/m/05tny_", "/m/07plct2"

VOCABULARY = """\
0,Bark,/m/05tny_
1,Crushing,/m/07plct2
2,Electric_guitar,/m/02sgy
3,Music,/m/04rlf
"""
DEV = """\
fname,labels,mids,split
64760,"Electric_guitar,Music","/m/02sgy,/m/04rlf",train
21914,Crushing,/m/07plct2,val
137,Bark,/m/05tny_,train
"""
EVAL = """\
fname,labels,mids
37199,"Electric_guitar,Music","/m/02sgy,/m/04rlf"
99,Crushing,/m/07plct2
"""


def official_layout(root: Path, **replaced: str) -> Path:
    texts = {"vocabulary": VOCABULARY, "dev": DEV, "eval": EVAL} | replaced
    (root / "FSD50K.ground_truth").mkdir(parents=True)
    for name, text in texts.items():
        (root / "FSD50K.ground_truth" / f"{name}.csv").write_text(text, encoding="utf-8")
    metadata = root / "FSD50K.metadata"
    metadata.mkdir()
    infos = {
        "dev": {"64760": "casualsamples", "137": "casualsamples", "21914": "64760"},
        "eval": {"37199": "someone"},
    }
    for name, uploaders in infos.items():
        content = {
            clip_id: {"title": "t", "description": "", "tags": [], "uploader": uploader}
            for clip_id, uploader in uploaders.items()
        }
        (metadata / f"{name}_clips_info_FSD50K.json").write_text(json.dumps(content))
    for name in ("dev_audio/64760", "dev_audio/21914", "eval_audio/37199"):
        path = root / f"FSD50K.{name}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, np.zeros(441), 44_100)
    return root


def test_clips_splits_files_and_uploaders(tmp_path: Path) -> None:
    summary = import_fsd50k(official_layout(tmp_path / "fsd"), tmp_path / "w")
    clips = summary.workspace.clips
    assert clips["clip_id"].to_list() == ["64760", "21914", "137", "37199", "99"]
    assert clips["split"].to_list() == ["train", "tune", "train", "eval", "eval"]
    assert (summary.n_listed, summary.n_found, summary.n_missing) == (5, 3, 2)
    assert clips["audio"].is_null().to_list() == [False, False, True, False, True]
    assert clips["audio"][0] == str(tmp_path / "fsd/FSD50K.dev_audio/64760.wav")
    source = dict(clips.select("clip_id", "source").iter_rows())
    assert source["64760"] == source["137"]
    # An uploader whose name is a clip's number, and a clip without uploader, stay by themselves.
    assert len(set(source.values())) == 4


def test_the_ground_truth_and_the_exhaustive_eval_set(tmp_path: Path) -> None:
    summary = import_fsd50k(official_layout(tmp_path / "fsd"), tmp_path / "w")
    labels = summary.workspace.labels
    assert labels.class_ids == (BARK, CRUSH, GUITAR, MUSIC)
    assert labels.states().tolist() == [
        [0, 0, 1, 1],  # music propagated from guitar
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [-1, -1, 1, 1],  # eval: what is not listed is absent
        [-1, 1, -1, -1],
    ]
    assert summary.notes == (
        "7 positives of the ground truth, 5 negatives of the exhaustive eval set",
    )


def test_the_ontology_gives_parents_where_it_is_there(tmp_path: Path) -> None:
    root = official_layout(tmp_path / "fsd")
    nodes = [
        {"id": MUSIC, "name": "Music", "description": "d", "child_ids": [GUITAR]},
        {"id": GUITAR, "name": "Electric guitar", "description": "e", "child_ids": []},
    ]
    (root / "ontology.json").write_text(json.dumps(nodes))
    ontology = import_fsd50k(root, tmp_path / "w").workspace.ontology
    assert ontology.ancestors(GUITAR) == {MUSIC}
    assert ontology.find("electric_guitar") == GUITAR


def test_without_metadata_the_ground_truth_is_enough(tmp_path: Path) -> None:
    root = official_layout(tmp_path / "fsd")
    for path in (root / "FSD50K.metadata").iterdir():
        path.unlink()
    summary = import_fsd50k(root, tmp_path / "w")
    assert summary.workspace.clips["source"].n_unique() == 5
    assert summary.workspace.labels.states()[0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("dev", ",val", ",validation", r"dev.csv, line 3: split must be train or val"),
        ("dev", "/m/07plct2", "/m/0", r"dev.csv, line 3: a class is not in vocabulary.csv"),
        ("dev", "fname,labels,mids,split\n", "", r"line 1: expected the columns fname,labels"),
        ("eval", "99,", ",", r"eval.csv, line 3: fname is empty"),
        ("eval", "99,", "137,", r"clip '137' is listed twice"),
        ("eval", '04rlf"', "04rlf", r"eval.csv, line 2: wrong quoting"),
    ],
)
def test_damaged_files_are_refused_with_their_line(
    tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    texts = {"dev": DEV, "eval": EVAL, "vocabulary": VOCABULARY}
    root = official_layout(tmp_path / "fsd", **{name: texts[name].replace(old, new)})
    with pytest.raises(EarmarkError, match=message):
        import_fsd50k(root, tmp_path / "w")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=r"vocabulary.csv: no such file"):
        import_fsd50k(tmp_path, tmp_path / "w")
