"""A scan that was given sounds: its workspace, and what its page plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from earmark.compute import Progress
from earmark.config import Recipe
from earmark.datasets import SCANNED_FOLDER, sounds_of, write_dataset
from earmark.errors import first_few
from earmark.flags import Findings
from earmark.pipeline.flag import keep_flags
from earmark.pipeline.hearing import after_flags, heard_flags
from earmark.pipeline.opening import Scored
from earmark.pipeline.scanning.inputs import Inputs
from earmark.pipeline.scanning.own_scores import give_scores
from earmark.report import HeardFlag, first_to_hear
from earmark.scores import Origin
from earmark.storage import AudioAccess


@dataclass(frozen=True)
class Sounding:
    """The workspace of a scan that was given sounds, and what was found of them."""

    scored: Scored
    notes: tuple[str, ...]

    def heard(
        self, findings: Findings, policy: str | None, options: Mapping[str, Any], out: Path
    ) -> tuple[Sequence[HeardFlag], Mapping[str, str], int]:
        """Keep the flags; return the likeliest to be heard, what to do next, and the sounds' rate.

        The workspace will lie in ``out``.
        """
        keep_flags(self.scored, findings, policy, options)
        listed = first_to_hear(findings)
        heard = heard_flags(self.scored.workspace, self.scored.recipe, self.scored.scores, listed)
        rate_hz = self.scored.recipe.front_end.sample_rate_hz
        return heard, after_flags(out, True, findings), rate_hz


def make_workspace(
    folder: Path, inputs: Inputs, scored_by: Origin, sounds: Path, progress: Progress
) -> Sounding:
    """Write clips with their sounds, classes, labels and scores as the workspace of a scan."""
    root, clip_ids = folder / SCANNED_FOLDER, inputs.labels.clip_ids
    meter = progress.job("find sounds", len(clip_ids), "files")
    audio, notes = sounds_of(clip_ids, sounds, root, meter)
    clips = pl.DataFrame({"clip_id": clip_ids, "audio": audio, "source": clip_ids}).with_columns(
        split=pl.lit("train"),
        start_seconds=pl.lit(None, pl.Float64),
        end_seconds=pl.lit(None, pl.Float64),
    )
    access = AudioAccess(root, (sounds,))
    workspace = write_dataset(root, clips, inputs.ontology, inputs.labels, access=access)
    silent = clip_ids.filter(audio.is_null())
    if len(silent):
        notes += (
            f"{len(silent):,} of {len(clip_ids):,} clips have no sound in {sounds} (such as "
            f"{first_few(silent)})",
        )
    recipe = Recipe()
    logits = np.asarray(inputs.scores.array, np.float32)
    given = (recipe.teacher.name, clip_ids, logits, scored_by)
    scores = give_scores(workspace, *given, out_of_fold=False)
    return Sounding(Scored(workspace, recipe, scores), notes)
