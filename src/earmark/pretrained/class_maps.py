"""Which class of a dataset each output of a pretrained network stands for.

A class map says which output stands for which class of the workspace. It is a table (CSV, TSV or
Parquet) with a column ``output`` or ``index``, the number of an output from 0 or its name in the
model, and a column ``class_id`` (or ``mid``, ``class``, ``name``, ``display_name``) with a class of
the workspace by identifier or name. A line without a class maps nothing. YAMNet's
``yamnet_class_map.csv`` is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from earmark.errors import EarmarkError, first_few, nearest
from earmark.labels import CLASS_COLUMNS, Ontology
from earmark.runs import LINE, read_source

_OUTPUT_COLUMNS = ("output", "index")


@dataclass(frozen=True)
class ClassMap:
    """Outputs of a model and the columns of the workspace's classes that they score, in pairs."""

    outputs: tuple[int, ...]
    columns: tuple[int, ...]

    def unscored(self, ontology: Ontology) -> list[str]:
        """Return the classes that no output stands for."""
        scored = set(self.columns)
        return [name for column, name in enumerate(ontology.class_ids) if column not in scored]


def read_class_map(
    path: str | Path,
    ontology: Ontology,
    n_outputs: int,
    output_names: Sequence[str] = (),
    *,
    skip_unknown: bool = False,
) -> ClassMap:
    """Read a class map; refuse, with the line, what neither the model nor the workspace has.

    With ``skip_unknown`` lines that name a class the workspace lacks are left out.
    """
    path = Path(path)
    table = read_source(path)
    of_output = _column(path, table.columns, _OUTPUT_COLUMNS)
    of_class = _column(path, table.columns, CLASS_COLUMNS)
    pairs: list[tuple[int, int]] = []
    line_of: dict[int, int] = {}
    for line, output, name in table.rows.select(LINE, of_output, of_class).iter_rows():
        where = table.at(line)
        number = _output(where, output, n_outputs, output_names)
        if name is None or not str(name).strip():
            continue
        column = _find(where, str(name).strip(), ontology, skip_unknown)
        if column is None:
            continue
        if column in line_of:
            raise EarmarkError(
                f"{where}: class {name!r} has an output already, on line {line_of[column]}"
            )
        line_of[column] = line
        pairs.append((number, column))
    return _checked(str(path), pairs)


def map_by_names(
    model: str | Path, class_ids: Sequence[str], ontology: Ontology, *, skip_unknown: bool = False
) -> ClassMap:
    """Map a model's outputs by the class identifiers that it carries itself."""
    unknown = [class_id for class_id in class_ids if class_id not in ontology.index]
    if unknown and not skip_unknown:
        raise EarmarkError(
            f"{model}: {len(unknown):,} of the model's {len(class_ids):,} classes are not the "
            f"workspace's ({first_few(unknown)}); say which is which with --class-map, or leave "
            "them out with --skip-unknown"
        )
    pairs = [
        (output, ontology.index[class_id])
        for output, class_id in enumerate(class_ids)
        if class_id in ontology.index
    ]
    return _checked(str(model), pairs)


def _column(path: Path, columns: Sequence[str], wanted: Sequence[str]) -> str:
    found = next((name for name in wanted if name in columns), None)
    if found is None:
        raise EarmarkError(
            f"{path}: expected a column {' or '.join(wanted)}, got {', '.join(columns)}"
        )
    return found


def _output(where: str, output: object, n_outputs: int, names: Sequence[str]) -> int:
    """Return the number of an output given by number or name."""
    text = "" if output is None else str(output).strip()
    if text in names:
        return list(names).index(text)
    if not text.isdecimal():
        hint = nearest(text, names) if names else ", and the model names none: give numbers from 0"
        raise EarmarkError(f"{where}: the model has no output {text!r}{hint}")
    if int(text) >= n_outputs:
        raise EarmarkError(
            f"{where}: output {text} asked of a model with {n_outputs:,} (0 to {n_outputs - 1:,})"
        )
    return int(text)


def _find(where: str, name: str, ontology: Ontology, skip_unknown: bool) -> int | None:
    try:
        return ontology.index[ontology.find(name)]
    except EarmarkError as error:
        if skip_unknown:
            return None
        raise EarmarkError(
            f"{where}: {error}; delete the line, or leave such lines out with --skip-unknown"
        ) from None


def _checked(source: str, pairs: Iterable[tuple[int, int]]) -> ClassMap:
    outputs, columns = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    if not outputs:
        raise EarmarkError(f"{source}: not one of the workspace's classes is mapped to an output")
    return ClassMap(outputs, columns)
