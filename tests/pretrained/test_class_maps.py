from __future__ import annotations

from pathlib import Path

import pytest

from earmark.errors import EarmarkError
from earmark.pretrained.class_maps import ClassMap, map_by_names, read_class_map
from sounds import ONTOLOGY


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
        ("output,class_id\n,/m/hum\n", r"line 2: the model has no output ''"),
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


def test_a_model_that_names_its_classes_needs_no_map() -> None:
    assert map_by_names("m.onnx", ("/m/hiss", "/m/hum"), ONTOLOGY) == ClassMap((0, 1), (2, 0))
    with pytest.raises(EarmarkError, match=r"m.onnx: 1 of the model's 2 classes.*'/m/moo'"):
        map_by_names("m.onnx", ("/m/moo", "/m/hum"), ONTOLOGY)
    kept = map_by_names("m.onnx", ("/m/moo", "/m/hum"), ONTOLOGY, skip_unknown=True)
    assert kept == ClassMap((1,), (0,))
