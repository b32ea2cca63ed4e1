"""The class map of a workspace: given, or made by name and kept for its owner to edit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.labels import Ontology
from earmark.pretrained.class_maps import ClassMap, match_network, read_class_map, write_class_map
from earmark.pretrained.network import NetworkFacts
from earmark.runs import file_sha256, read_noted, write_json


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
    is_edited = kept.exists() and not _is_as_written(kept)
    source = Path(path) if path is not None else kept if is_edited else None
    if source is not None:
        found = _read(source, ontology, facts, skip_unknown, is_kept=path is None)
        n_mapped = len(set(found.columns))
        told = f"{n_mapped:,} of {len(ontology.class_ids):,} classes are mapped by {source}"
        return MappedClasses(found, told, source)
    matched = match_network(facts, ontology)
    write_class_map(kept, matched)
    write_json(_note_of(kept), {"sha256": file_sha256(kept)})
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


def _note_of(class_map: Path) -> Path:
    """Return the file that says what a class map was when it was written."""
    return class_map.with_suffix(".json")


def _is_as_written(class_map: Path) -> bool:
    note = _note_of(class_map)
    return note.exists() and read_noted(note).get("sha256") == file_sha256(class_map)
