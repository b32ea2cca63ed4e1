"""Queues on disk: ``review/queue.json`` names the queue of a workspace, and seals its files.

A queue that measures is two tables: its items, and the sizes of its cells. A queue that learns is
its population (:mod:`earmark.review.candidates`) and the blocks drawn so far.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from earmark.config import (
    ReviewParams,
)
from earmark.datasets import Workspace, refuse_stale, stale_of, stamped, warn_stale, write_stamp
from earmark.errors import EarmarkError, quoted, reading
from earmark.flags import FLAG_SCHEMA
from earmark.review.candidates import Candidates, Population
from earmark.review.queue_items import GROWING, QUEUE_SCHEMA, DrawnBlocks, QueueSnapshot
from earmark.storage import (
    is_finished,
    read_noted,
    read_seal,
    read_sealed,
    read_table,
    seal_path,
    write_json,
    write_table,
)

_DRAW_AGAIN = "make it again with `earmark review --write-only`: answers are kept elsewhere"


def write_queue(workspace: Workspace, queue: QueueSnapshot, made_from: str = "") -> None:
    """Write a queue into the workspace's review folder; ``queue.json`` seals it.

    ``made_from`` is a digest of labels, scores and parameters, for those who want to know whether
    the queue is still current.
    """
    workspace.queue_seal_path.unlink(missing_ok=True)
    write_table(workspace.queue_path, queue.items)
    write_table(workspace.queue_sizes_path, queue.sizes)
    told = {name: getattr(queue, name) for name in ("aim", "population")}
    told |= {"digest": queue.digest, "made_from": made_from, **stamped(workspace)}
    write_json(workspace.queue_seal_path, told)


def is_drawn_from(workspace: Workspace, made_from: str) -> bool:
    """Tell whether the workspace's queue was drawn from what a digest stands for, and stamp it."""
    seal = workspace.queue_seal_path
    is_current = seal.exists() and read_noted(seal).get("made_from") == made_from
    if is_current:
        write_stamp(workspace, seal)
    return is_current


def read_queue(workspace: Workspace) -> QueueSnapshot:
    """Read the queue of a workspace's review; refuse one that is not whole.

    A queue that is older than the dataset is said to be; one with clips or classes that are gone
    is refused. Answers are kept by clip and class, whatever becomes of the queue.
    """
    told = _read_seal(workspace)
    with reading(workspace.review_folder, "a queue", _DRAW_AGAIN):
        if told.get("aim") in GROWING:
            population = read_population(workspace)
            with open_drawn(workspace, population) as drawn:
                blocks = [block.items for block in drawn.since(0)]
                queue = population.snapshot(blocks, drawn)
        else:
            tables = (
                read_table(workspace.queue_path, QUEUE_SCHEMA),
                read_table(workspace.queue_sizes_path),
            )
            queue = QueueSnapshot(*tables, told.get("aim", "measure"), told.get("population", ""))
            _check_digest(workspace, queue, told.get("digest"))
        _check_age(workspace, queue)
    return queue


def read_population(workspace: Workspace) -> Population:
    """Read what a queue that grows is drawn from; flags are those that were written since."""
    told = _read_seal(workspace)
    candidates = Candidates.read(workspace.candidates_path)
    names = read_table(_names_path(workspace))
    if len(names) != len(candidates):
        raise EarmarkError(
            f"{workspace.candidates_path}: does not fit {_names_path(workspace)}; changed "
            f"or damaged? make both with `earmark review {quoted(workspace.root)} --write-only`"
        )
    population = Population(
        candidates,
        names,
        read_table(_controls_path(workspace)),
        candidates.sample[:0],
        params_of(workspace).aim,
        told["digest"],
        told.get("population", ""),
        lambda: workspace.labels.rows(),
        told["n_positives"],
    )
    return population.with_flags(_written_flags(workspace, population.population))


def params_of(workspace: Workspace) -> ReviewParams:
    """Return how the workspace's queue, one that grows, is drawn."""
    return ReviewParams.model_validate(_read_seal(workspace)["params"])


def write_population(workspace: Workspace, population: Population, params: ReviewParams) -> None:
    """Write what a queue that grows is drawn from; ``queue.json`` seals it.

    Blocks that were drawn of the same population before stay drawn.
    """
    workspace.queue_seal_path.unlink(missing_ok=True)
    population.candidates.write(workspace.candidates_path)
    write_table(_names_path(workspace), population.names)
    write_table(_controls_path(workspace), population.controls)
    told: dict[str, Any] = {
        "digest": population.digest,
        "made_from": population.digest,
        "aim": population.aim,
        "n_positives": population.n_positives,
    }
    told |= {"population": population.population, "params": params.model_dump(mode="json")}
    write_json(workspace.queue_seal_path, {**told, **stamped(workspace)})


def open_drawn(workspace: Workspace, population: Population) -> DrawnBlocks:
    """Open the blocks that were drawn of a population; close them."""
    return DrawnBlocks(workspace.drawn_path, population.digest)


def _names_path(workspace: Workspace) -> Path:
    """The clip and the class of each candidate."""
    return workspace.candidates_path.with_suffix(".parquet")


def _controls_path(workspace: Workspace) -> Path:
    """Known labels that test raters."""
    return workspace.candidates_path.with_name("controls.parquet")


def _written_flags(workspace: Workspace, population: str) -> pl.DataFrame | None:
    """Return the flags that `earmark flag` wrote of the same labels and scores, if any."""
    if not is_finished(workspace.flags_folder):
        return None
    if read_seal(workspace.flags_folder).get("flags_digest") != population:
        return None
    seal = seal_path(workspace.flags_folder)
    return read_sealed(seal, workspace.flags_path.name, FLAG_SCHEMA)


def _read_seal(workspace: Workspace) -> dict[str, Any]:
    if not workspace.queue_seal_path.exists():
        remedy = f"make it with `earmark review {quoted(workspace.root)} --write-only`"
        raise EarmarkError(f"{workspace.review_folder}: no queue there yet; {remedy}")
    told: dict[str, Any] = read_noted(workspace.queue_seal_path)
    return told


def _check_digest(workspace: Workspace, queue: QueueSnapshot, expected: str | None) -> None:
    if queue.digest != expected:
        raise EarmarkError(
            f"{workspace.queue_path}: its digest is {queue.digest}, expected {expected}; changed "
            f"or damaged? make it with `earmark review {quoted(workspace.root)} --write-only`"
        )


def _check_age(workspace: Workspace, queue: QueueSnapshot) -> None:
    path, seal = workspace.queue_path, workspace.queue_seal_path
    stale = stale_of(workspace, path, seal, "review")
    if stale is None:
        return
    is_there = queue.items["clip_id"].is_in(workspace.clips["clip_id"].implode())
    is_there &= queue.items["class_id"].is_in(list(workspace.ontology.class_ids))
    if not is_there.all():
        refuse_stale(stale)
    warn_stale(stale, "answers count for what it was drawn from, and are kept")
