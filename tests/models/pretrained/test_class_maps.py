from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.datasets import CLIP_SCHEMA, Workspace, write_dataset
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology
from earmark.models.pretrained import (
    ClassMap,
    NetworkFacts,
    map_classes,
    match_network,
    read_class_map,
    read_yamnet_classes,
    write_class_map,
)
from sounds import ONTOLOGY

ONTOLOGY_OF_STRANGERS = Ontology(("qux", "crane"))


def network(*names: str, ids: tuple[str, ...] = ()) -> NetworkFacts:
    return NetworkFacts(
        name="net",
        digest="0",
        sample_rate_hz=16_000,
        frame_seconds=0.96,
        hop_seconds=0.48,
        n_features=None,
        output_names=names,
        output_ids=ids,
        n_outputs=max(len(names), len(ids)),
    )


def yamnet() -> NetworkFacts:
    classes = read_yamnet_classes()
    return network(*classes.names, ids=classes.ids)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "map.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "output,class_id\n4,/m/hum\n0,/m/hiss\n",
        "index,mid,display_name\n4,/m/hum,Hum\n0,/m/hiss,Hiss\n",
        "output,name\n4,hum\n0,Hiss\n2,\n",
        "output,class_id,how\n4,/m/hum,name\n,/m/beep,\n0,/m/hiss,\n",
        "output,class_id\nfour,/m/hum\nzero,/m/hiss\n",
    ],
)
def test_outputs_and_classes_go_by_number_identifier_or_name(tmp_path: Path, text: str) -> None:
    names = ("zero", "one", "two", "three", "four")
    found = read_class_map(write(tmp_path, text), ONTOLOGY, 5, names)
    assert found == ClassMap(outputs=(4, 0), columns=(0, 2))
    assert found.unscored(ONTOLOGY) == ["/m/beep"]


def test_one_output_may_stand_for_two_classes(tmp_path: Path) -> None:
    path = write(tmp_path, "output,class_id\n1,/m/hum\n1,/m/hiss\n")
    assert read_class_map(path, ONTOLOGY, 2) == ClassMap((1, 1), (0, 2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("output,class_id\n0,/m/hum\n1,/m/moo\n", r"map.csv, line 3: no class.*'/m/moo'.*--skip"),
        ("output,class_id\n7,/m/hum\n", r"line 2: output 7 asked of a model with 3 \(0 to 2\)"),
        ("output,class_id\nhum,/m/hum\n", r"line 2: the model has no output 'hum'.*names none"),
        ("output,class_id\n-1,/m/hum\n", r"line 2: the model has no output '-1'"),
        ("output,class_id\n,/m/hum\n", "not one .* is mapped.*write an output beside"),
        ("output,class_id\n,/m/moo\n", "line 2: no class of the workspace is called '/m/moo'"),
        ("output,name\n0,humm\n", "line 2: .* called 'humm'; did you mean 'Hum'.; delete"),
        ("output,name\n0,a\n1,Hum\n,b\n2,c\n", "line 2: .* 'a'; there are .*of 2 more lines"),
        ("output,class_id\n0,/m/hum\n1,Hum\n", r"line 3: class 'Hum' has an output.*line 2"),
        ("class_id\n/m/hum\n", "expected a column output or index, got class_id"),
        ("output,sound\n0,/m/hum\n", "expected a column class_id or mid"),
        ("output,class_id\n0,\n", "not one of the workspace's classes"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(EarmarkError, match=told):
        read_class_map(write(tmp_path, text), ONTOLOGY, 3)


def test_lines_of_other_classes_are_left_out_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, "output,class_id\n0,/m/moo\n1,/m/hum\n")
    assert read_class_map(path, ONTOLOGY, 2, skip_unknown=True) == ClassMap((1,), (0,))


def test_an_output_that_the_model_lacks_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, "output,class_id\nbarking dog,/m/hum\n")
    with pytest.raises(
        EarmarkError, match=r"line 2: .* no output 'barking dog'; did you mean 'Bark'"
    ):
        read_class_map(path, ONTOLOGY, 521, read_yamnet_classes().names)
    path = write(tmp_path, "output,class_id\nxyz,/m/hum\n")
    with pytest.raises(EarmarkError, match=r"no output 'xyz'; there are 'Speech'.* 518 more$"):
        read_class_map(path, ONTOLOGY, 521, read_yamnet_classes().names)


def test_yamnets_classes_are_521_of_audioset() -> None:
    classes = read_yamnet_classes()
    assert len(set(classes.ids)) == len(set(classes.names)) == len(classes.ids) == 521
    assert all(mid.startswith(("/m/", "/t/dd", "/g/")) for mid in classes.ids)
    assert (classes.ids[0], classes.names[0]) == ("/m/09x0r", "Speech")
    assert dict(zip(classes.ids, classes.names, strict=True))["/m/05tny_"] == "Bark"
    assert classes.names[-1] == "Field recording"


def test_yamnet_knows_its_own_classes_by_identifier_and_by_name() -> None:
    ids, names = read_yamnet_classes()
    everything = ClassMap(tuple(range(521)), tuple(range(521)))
    assert match_network(yamnet(), Ontology(ids)).class_map == everything
    matched = match_network(yamnet(), Ontology(names))
    assert matched.class_map == everything
    assert matched.table["how"].unique().to_list() == ["name"]
    assert matched.told == "521 of 521 classes are ones that net knows ('Speech', " + (
        "'Child speech, kid speaking', 'Conversation' and 518 more)"
    )


def test_what_matches_and_what_is_asked_is_in_the_table() -> None:
    ontology = Ontology(
        ("a", "b", "c", "mouse_click"),
        {"b": ("c",)},
        {"a": "dog_bark", "b": "mouse", "c": "Rodent"},
    )
    matched = match_network(yamnet(), ontology)
    names = read_yamnet_classes().names
    found = (names.index("Bark"), names.index("Mouse"), names.index("Rodents, rats, mice"))
    assert matched.class_map == ClassMap(found, (0, 1, 2))
    assert matched.table["how"].to_list() == ["synonym", "name", "part of a name", None]
    assert matched.table["suggestions"].to_list() == [[], [], [], ["Clicking"]]
    assert matched.table["output_name"].to_list()[0] == "Bark"
    assert matched.class_map.unscored(ontology) == ["mouse_click"]
    assert matched.told == (
        "3 of 4 classes are ones that net knows ('dog_bark', 'mouse', 'Rodent'); "
        "1 is not, or not surely ('mouse_click')"
    )


def test_a_written_map_is_read_and_mended(tmp_path: Path) -> None:
    ontology = Ontology(("dog_bark", "mouse_click", "crane"))
    matched, names = match_network(yamnet(), ontology), read_yamnet_classes().names
    path = tmp_path / "map.csv"
    write_class_map(path, matched)
    assert path.read_text().splitlines() == [
        "output,class_id,name,how,suggestions",
        "Bark,dog_bark,dog_bark,synonym,",
        ",mouse_click,mouse_click,,Clicking",
        ",crane,crane,,",
    ]
    assert read_class_map(path, ontology, 521, names) == matched.class_map
    path.write_text(path.read_text().replace("\n,mouse", "\nClicking,mouse"))
    mended = read_class_map(path, ontology, 521, names)
    assert mended == ClassMap((names.index("Bark"), names.index("Clicking")), (0, 1))


@pytest.mark.parametrize(
    ("facts", "outputs"),
    [
        (network("Dog, a", "Dog, a", ids=("dog", "cat")), ["0", "1"]),
        (network(ids=("dog", "cat")), ["0", "1"]),
        (network("dog", "cat"), ["dog", "cat"]),
    ],
    ids=["the same name twice", "no names", "names"],
)
def test_outputs_without_a_name_of_their_own_are_written_by_number(
    tmp_path: Path, facts: NetworkFacts, outputs: list[str]
) -> None:
    ontology, path = Ontology(("dog", "cat")), tmp_path / "map.csv"
    matched = match_network(facts, ontology)
    write_class_map(path, matched)
    assert [line.split(",")[0] for line in path.read_text().splitlines()[1:]] == outputs
    assert read_class_map(path, ontology, 2, facts.output_names) == ClassMap((0, 1), (0, 1))


def test_a_network_that_knows_nothing_of_a_dataset_says_so(tmp_path: Path) -> None:
    for facts in (yamnet(), network()):
        matched = match_network(facts, ONTOLOGY_OF_STRANGERS)
        assert matched.class_map == ClassMap((), ())
        assert matched.told == "not one of 2 classes is surely one that net knows"
    write_class_map(tmp_path / "map.csv", matched)
    with pytest.raises(EarmarkError, match="not one of the workspace's classes is mapped"):
        read_class_map(tmp_path / "map.csv", ONTOLOGY_OF_STRANGERS, 0)


def test_identifiers_and_names_of_outputs_are_as_many() -> None:
    with pytest.raises(EarmarkError, match="net: 1 identifiers of outputs for 2 names"):
        match_network(network("a", "b", ids=("a",)), ONTOLOGY)


def workspace_of(root: Path, *names: str) -> Workspace:
    row = {"clip_id": "a", "audio": "a.wav", "split": "train", "source": "a"}
    clips = pl.DataFrame([row]).with_columns(start_seconds=None, end_seconds=None)
    labels = LabelSet.from_dense(np.ones((1, len(names)), np.int8), ["a"], names)
    clips = clips.select(list(CLIP_SCHEMA))
    return write_dataset(root, clips, Ontology(names), labels, replace=True)


def test_names_are_matched_and_written_to_be_edited(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Dog", "Qqx")
    mapped = map_classes(workspace, network("Cat", "Dog"))
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((1,), (0,))
    assert mapped.path == workspace.class_map_path
    assert "1 of 2 classes is one that net knows" in mapped.told
    lines = workspace.class_map_path.read_text().splitlines()
    assert lines[0].startswith("output,class_id")
    assert lines[1].startswith("Dog,Dog")
    assert lines[2].startswith(",Qqx")


def test_what_nobody_edited_is_made_anew_for_other_classes_and_networks(tmp_path: Path) -> None:
    map_classes(workspace_of(tmp_path, "Dog", "Qqx"), network("Cat", "Dog"))
    workspace = workspace_of(tmp_path, "Cat", "Bird")
    mapped = map_classes(workspace, network("Cat", "Dog"))
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((0,), (0,))
    mapped = map_classes(workspace, network("Bird", "Horse", "Cow"))
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((0,), (1,))


def test_no_class_in_common_is_no_map_however_often_it_is_asked(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Qqx", "Qqy")
    for _ in range(2):
        mapped = map_classes(workspace, network("Cat", "Dog"))
        assert mapped.class_map is None
        assert mapped.told == "not one of 2 classes is surely one that net knows"


def test_a_network_without_classes_needs_no_map(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Dog")
    mapped = map_classes(workspace, network())
    assert (mapped.class_map, mapped.told) == (None, "net has no classes of its own")
    assert not workspace.class_map_path.exists()


def test_a_file_that_is_given_goes_before_all_and_is_checked(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w", "Dog", "Qqx")
    given = tmp_path / "map.csv"
    given.write_text("output,class_id\nCat,Qqx\nDog,Moo\n")
    with pytest.raises(EarmarkError, match=r"map\.csv, line 3: .* 'Moo'.*--skip-unknown"):
        map_classes(workspace, network("Cat", "Dog"), given)
    mapped = map_classes(workspace, network("Cat", "Dog"), given, skip_unknown=True)
    assert mapped.class_map is not None
    assert (mapped.class_map.outputs, mapped.class_map.columns) == ((0,), (1,))
    assert not workspace.class_map_path.exists(), "what was given is not copied"


def test_what_was_edited_for_another_network_says_how_to_begin_anew(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "Dog", "Qqx")
    map_classes(workspace, network("Cat", "Dog"))
    text = workspace.class_map_path.read_text()
    workspace.class_map_path.write_text(text.replace(",Qqx,", "Cat,Qqx,", 1))
    told = rf"no output 'Dog'.*edited for another network.* delete it: {workspace.class_map_path}"
    with pytest.raises(EarmarkError, match=told):
        map_classes(workspace, network("Horse", "Cow"))
    workspace.class_map_path.unlink()
    assert map_classes(workspace, network("Horse", "Cow")).class_map is None
