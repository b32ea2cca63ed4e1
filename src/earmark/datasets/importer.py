"""Which importers there are, and what each of them hands back.

An importer is a function that reads files of others, writes a workspace and returns an
:class:`ImportSummary`. To add one, write one file in this folder and add one row to IMPORTERS;
then give it a verb in ``cli/imports.py`` and a section in ``docs/importing.md``: a test holds both
against the table.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from earmark.datasets.workspace import SPLITS, Workspace
from earmark.errors import EarmarkError, counted


@dataclass(frozen=True)
class Importer:
    """One row of the table of importers.

    ``place`` is the function, as ``module:name``: importers import this file, so that it cannot
    import them. ``needs`` is what a user has to have, ``help`` the command line's line.
    """

    name: str
    place: str
    needs: str
    help: str

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        module, _, function = self.place.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return found


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        "scenes",
        "earmark.datasets.simulate.scenes:write_scenes",
        "nothing: the sounds are made",
        "Make synthetic sound scenes with known truth, and hide labels as nomination does.",
    ),
    Importer(
        "table",
        "earmark.datasets.importers.tables:import_table",
        "a table of labels, and one of clips where the labels do not say it all",
        "Bring in any dataset given as tables; guessed columns are shown.",
    ),
    Importer(
        "sounds",
        "earmark.datasets.importers.sounds:import_sounds",
        "a folder of sound, and a file of labels or folders that are named after them",
        "Bring in a folder of sound with labels of any form; each recording becomes a clip.",
    ),
    Importer(
        "mixtures",
        "earmark.datasets.simulate.mixtures:import_mixtures",
        "a folder of recordings of one class each, such as ESC-50's, or a workspace of them",
        "Mix recordings of one class each into clips with known truth, and hide labels.",
    ),
    Importer(
        "workspace",
        "earmark.datasets.derived:import_workspace",
        "another workspace",
        "Make a workspace of another one: other splits, fewer train clips, labels hidden.",
    ),
    Importer(
        "hf",
        "earmark.datasets.importers.hugging_face:import_hugging_face",
        "a folder that save_to_disk wrote, Parquet as on the hub, or an audiofolder",
        "Bring in a dataset of Hugging Face: saved to disk, Parquet, or a folder of sound.",
    ),
    Importer(
        "webdataset",
        "earmark.datasets.importers.webdataset:import_webdataset",
        "tars of samples: sound, and labels as .json, .cls or .txt",
        "Bring in WebDataset tars: sound, with labels as .json, .cls or .txt beside it.",
    ),
    Importer(
        "audioset",
        "earmark.datasets.importers.audioset:import_audioset",
        "the official lists of segments, class_labels_indices.csv, and audio as far as there is",
        "Bring in AudioSet's official lists, with whatever of the audio is there.",
    ),
    Importer(
        "audioset-features",
        "earmark.datasets.importers.audioset_features:import_audioset_features",
        "features.tar.gz or its TFRecords, and class_labels_indices.csv",
        "Bring in AudioSet's official VGGish embeddings, from the folder or the tar.",
    ),
    Importer(
        "fsd50k",
        "earmark.datasets.importers.fsd50k:import_fsd50k",
        "FSD50K.ground_truth and, as far as there are, its metadata and audio",
        "Bring in FSD50K with its votes: agreed answers become explicit labels.",
    ),
    Importer(
        "openmic",
        "earmark.datasets.importers.openmic:import_openmic",
        "the unpacked release of OpenMIC-2018",
        "Bring in OpenMIC-2018: masked-in labels are explicit, its VGGish features the frames.",
    ),
)
"""Every importer, in the order in which the command line lists them."""


@dataclass(frozen=True)
class ImportSummary:
    """The outcome of one import: every listed clip was either found or is missing.

    ``notes`` are whole sentences about whatever a user should know: what was passed over and why,
    how columns were understood, what was written where.
    """

    workspace: Workspace
    n_listed: int
    n_found: int
    n_missing: int
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.n_found + self.n_missing != self.n_listed:
            raise EarmarkError(
                f"{self.workspace.root}: {self.n_found:,} clips found and {self.n_missing:,} "
                f"missing do not add up to the {self.n_listed:,} listed; please report this"
            )

    @property
    def split_counts(self) -> dict[str, int]:
        """Listed clips of each split, in the order train, tune, eval; 0 where there are none."""
        counts = self.workspace.clips["split"].value_counts()
        by_split = dict(counts.select(pl.col("split"), pl.col("count")).iter_rows())
        return {split: by_split.get(split, 0) for split in SPLITS}

    def lines(self) -> list[str]:
        """Return the summary as lines to print: the sum, the splits, then each note."""
        splits = ", ".join(f"{split} {n:,}" for split, n in self.split_counts.items())
        listed = f"{counted(self.n_listed, 'clip')} listed"
        return [
            f"{listed} = {self.n_found:,} found + {self.n_missing:,} missing",
            splits,
            *self.notes,
        ]
