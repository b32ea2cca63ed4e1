"""Class maps: which class of a dataset each output of a pretrained network stands for.

A class map is a table (CSV, TSV or Parquet) with a column ``output`` or ``index`` (the number of an
output from 0, or its name in the model) and a column ``class_id`` (or ``mid``, ``class``, ``name``,
``display_name``) with a class of the workspace by identifier or name. Rows without a class or
without an output are ignored. YAMNet's ``yamnet_class_map.csv`` is a class map.

:func:`match_network` makes a class map by comparing names, :func:`write_class_map` writes it for
its owner to edit, and :func:`map_classes` uses the one that is given or kept in the workspace.

``yamnet_classes.csv`` holds the facts of Google's ``yamnet_class_map.csv`` (Apache-2.0): the 521
classes of AudioSet that YAMNet scores, in the order of its outputs.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import polars as pl

from earmark.datasets import Workspace
from earmark.errors import EarmarkError, first_few, reader
from earmark.labels import CLASS_COLUMNS, NamedClass, NameMatch, Ontology, match_classes
from earmark.models.pretrained.network import NetworkFacts
from earmark.storage import LINE, file_sha256, read_noted, read_source, write_aside, write_json


@dataclass(frozen=True)
class MappedClasses:
    """Which outputs are which classes (None: not one), what to say of it, and the file."""

    class_map: ClassMap | None
    told: str
    path: Path


def map_classes(
    workspace: Workspace,
    facts: NetworkFacts,
    path: str | Path | None = None,
    *,
    skip_unknown: bool = False,
) -> MappedClasses:
    """Map classes by a given file, by the one that is kept if it was edited, or by name.

    What names came to is written into the workspace; nobody has edited it while it is as written,
    and it is then made anew, for the classes that are there now.
    """
    ontology, kept = workspace.ontology, workspace.class_map_path
    if not facts.n_outputs:
        return MappedClasses(None, f"{facts.name} has no classes of its own", kept)
    note = kept.with_suffix(".json")  # what the map was when it was written
    is_edited = kept.exists() and not _is_as_written(kept, note)
    source = Path(path) if path is not None else kept if is_edited else None
    if source is not None:
        found = _read(source, ontology, facts, skip_unknown, is_kept=path is None)
        n_mapped = len(set(found.columns))
        told = f"{n_mapped:,} of {len(ontology.class_ids):,} classes are mapped by {source}"
        return MappedClasses(found, told, source)
    matched = match_network(facts, ontology)
    write_class_map(kept, matched)
    write_json(note, {"sha256": file_sha256(kept)})
    has_any = bool(matched.class_map.outputs)
    return MappedClasses(matched.class_map if has_any else None, matched.told, kept)


def _read(
    source: Path, ontology: Ontology, facts: NetworkFacts, skip_unknown: bool, *, is_kept: bool
) -> ClassMap:
    """Read a class map; of one that is kept, say how to begin anew."""
    names = facts.output_names
    try:
        return read_class_map(source, ontology, facts.n_outputs, names, skip_unknown=skip_unknown)
    except EarmarkError as error:
        if not is_kept:
            raise
        anew = f"If it was edited for another network, or other classes, delete it: {source}"
        raise EarmarkError(f"{error}. {anew}") from None


def _is_as_written(class_map: Path, note: Path) -> bool:
    return note.exists() and read_noted(note).get("sha256") == file_sha256(class_map)


_OUTPUT_COLUMNS = ("output", "index")

_MATCH_SCHEMA = pl.Schema(
    {
        "class_id": pl.String(),
        "name": pl.String(),
        "output": pl.Int32(),
        "output_name": pl.String(),
        "how": pl.String(),
        "suggestions": pl.List(pl.String),
    }
)


@dataclass(frozen=True)
class ClassMap:
    """Outputs of a model and the columns of the workspace's classes that they score, in pairs."""

    outputs: tuple[int, ...]
    columns: tuple[int, ...]

    def unscored(self, ontology: Ontology) -> list[str]:
        """Return the classes that no output stands for."""
        scored = set(self.columns)
        return [name for column, name in enumerate(ontology.class_ids) if column not in scored]


@dataclass(frozen=True)
class MatchedClasses:
    """What a network's outputs and a workspace's classes have in common."""

    network: str
    """Its name, for people."""
    output_names: tuple[str, ...]
    """What it calls its outputs; empty where it names none."""
    class_map: ClassMap
    """The sure matches; there may be none."""
    table: pl.DataFrame
    """One row per class of the workspace, in their order: ``class_id``, ``name``, the ``output``
    that it surely is, that output's ``output_name`` and ``how`` it matched (null where none is),
    and ``suggestions``, the names of outputs that it might be."""

    @property
    def told(self) -> str:
        """What matched and what did not, in a sentence for people."""
        is_matched = self.table["output"].is_not_null()
        known = self.table["name"].filter(is_matched).to_list()
        others = self.table["name"].filter(~is_matched).to_list()
        n_classes = len(self.table)
        if not known:
            return f"not one of {n_classes:,} classes is surely one that {self.network} knows"
        are = "is one" if len(known) == 1 else "are ones"
        sentence = f"{len(known):,} of {n_classes:,} classes {are} that {self.network} knows"
        if not others:
            return f"{sentence} ({first_few(known)})"
        are_not = "is not, or not surely" if len(others) == 1 else "are not, or not surely"
        return f"{sentence} ({first_few(known)}); {len(others):,} {are_not} ({first_few(others)})"


def match_network(facts: NetworkFacts, ontology: Ontology) -> MatchedClasses:
    """Find the outputs that surely stand for a workspace's classes; nothing is guessed.

    An output stands for one class at most. What is unsure has suggestions, for a person to decide
    in the file of :func:`write_class_map`.
    """
    outputs, wanted = _outputs_of(facts), _classes_of(ontology)
    matches = match_classes(wanted, outputs)
    pairs = [(m.target, column) for column, m in enumerate(matches) if m.target is not None]
    class_map = ClassMap(tuple(o for o, _ in pairs), tuple(column for _, column in pairs))
    rows = [_row(*each, outputs) for each in zip(wanted, matches, strict=True)]
    table = pl.DataFrame(rows, _MATCH_SCHEMA, orient="row")
    return MatchedClasses(facts.name, facts.output_names, class_map, table)


def write_class_map(path: str | Path, matched: MatchedClasses) -> None:
    """Write a class map for a person to mend: one line per class of the workspace.

    The columns are ``output``, ``class_id``, ``name``, ``how`` and ``suggestions``. Where no output
    surely stands for a class, ``output`` is empty: one of the suggestions may be written there.
    Outputs without a name of their own are written by number.
    """
    with write_aside(path) as aside, aside.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["output", "class_id", "name", "how", "suggestions"])
        for row in matched.table.iter_rows(named=True):
            is_named = matched.output_names.count(row["output_name"]) == 1
            output = row["output_name"] if is_named else row["output"]
            suggested = " | ".join(row["suggestions"])
            lines.writerow([output, row["class_id"], row["name"], row["how"], suggested])


class OutputClasses(NamedTuple):
    """What a network's outputs stand for, in their order."""

    ids: tuple[str, ...]
    """AudioSet's identifiers."""
    names: tuple[str, ...]


@lru_cache
def read_yamnet_classes() -> OutputClasses:
    """Return the identifiers and names of YAMNet's 521 outputs."""
    text = (
        resources.files("earmark.models.pretrained")
        .joinpath("yamnet_classes.csv")
        .read_text("utf-8")
    )
    rows = list(csv.DictReader(text.splitlines()))
    ids, names = ([row[column] for row in rows] for column in ("mid", "display_name"))
    return OutputClasses(tuple(ids), tuple(names))


@reader("a class map")
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
    unknown: dict[int, str] = {}
    for line, output, name in table.rows.select(LINE, of_output, of_class).iter_rows():
        where, output, name = table.at(line), _text(output), _text(name)
        number = _output(where, output, n_outputs, output_names) if output else None
        column = _find(name, ontology) if name else None
        if name and column is None:
            unknown[line] = name
        if number is None or column is None:
            continue
        if column in line_of:
            raise EarmarkError(
                f"{where}: class {name!r} has an output already, on line {line_of[column]}"
            )
        line_of[column] = line
        pairs.append((number, column))
    if unknown and not skip_unknown:
        raise _unknown_classes(table.at(min(unknown)), unknown, ontology)
    hint = "write an output beside at least one class; the column suggestions may name some"
    if not pairs:
        raise EarmarkError(
            f"{path}: not one of the workspace's classes is mapped to an output; {hint}"
        )
    outputs, columns = zip(*pairs, strict=True)
    return ClassMap(outputs, columns)


def _outputs_of(facts: NetworkFacts) -> list[NamedClass]:
    """Return the outputs by identifier and name, as far as the network has them."""
    ids, names = facts.output_ids, facts.output_names
    n_named = max(len(ids), len(names))
    if n_named and {len(ids), len(names)} - {0, n_named}:
        raise EarmarkError(
            f"{facts.name}: {len(ids):,} identifiers of outputs for {len(names):,} names"
        )
    return [
        NamedClass(ids[place] if ids else "", names[place] if names else ids[place])
        for place in range(n_named)
    ]


def _classes_of(ontology: Ontology) -> list[NamedClass]:
    return [
        NamedClass(
            class_id,
            ontology.name(class_id),
            tuple(sorted(map(ontology.name, ontology.ancestors(class_id)))),
        )
        for class_id in ontology.class_ids
    ]


def _row(wanted: NamedClass, match: NameMatch, outputs: Sequence[NamedClass]) -> tuple[object, ...]:
    output_name = None if match.target is None else outputs[match.target].name
    suggested = [outputs[place].name for place in match.suggestions]
    return wanted.class_id, wanted.name, match.target, output_name, match.how, suggested


def _column(path: Path, columns: Sequence[str], wanted: Sequence[str]) -> str:
    found = next((name for name in wanted if name in columns), None)
    if found is None:
        raise EarmarkError(
            f"{path}: expected a column {' or '.join(wanted)}, got {', '.join(columns)}"
        )
    return found


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip()


def _output(where: str, text: str, n_outputs: int, names: Sequence[str]) -> int:
    """Return the number of an output given by number or name."""
    if text in names:
        return list(names).index(text)
    if not text.isdecimal():
        hint = _nearest(text, names) if names else ", and the model names none: give numbers from 0"
        raise EarmarkError(f"{where}: the model has no output {text!r}{hint}")
    if int(text) >= n_outputs:
        raise EarmarkError(
            f"{where}: output {text} asked of a model with {n_outputs:,} (0 to {n_outputs - 1:,})"
        )
    return int(text)


def _find(name: str, ontology: Ontology) -> int | None:
    try:
        return ontology.index[ontology.find(name)]
    except EarmarkError:
        return None


def _unknown_classes(where: str, unknown: Mapping[int, str], ontology: Ontology) -> EarmarkError:
    """Return the one error for all lines of a class map whose classes the workspace lacks."""
    first, *others = unknown
    names = [ontology.name(class_id) for class_id in ontology.class_ids]
    more = f" (nor are there the classes of {len(others):,} more lines)" if others else ""
    return EarmarkError(
        f"{where}: no class of the workspace is called {unknown[first]!r}"
        f"{_nearest(unknown[first], names)}{more}; delete such lines, or leave them out with "
        "--skip-unknown"
    )


def _nearest(name: str, choices: Sequence[str]) -> str:
    """Return a hint that names the nearest choices, or the first few where none is near."""
    targets = [NamedClass("", choice) for choice in choices]
    match = match_classes([NamedClass("", name)], targets)[0]
    near = match.suggestions if match.target is None else (match.target,)
    if near:
        return f"; did you mean {' or '.join(repr(choices[place]) for place in near)}?"
    return f"; there are {first_few(choices)}"
