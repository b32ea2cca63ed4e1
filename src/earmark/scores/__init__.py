"""What a teacher said: scores [clip, class], as logits.

A *matrix* of scores lies in memory or on disk and is read a few rows at a time; a *file* of scores
is what people have, in any format and on either scale; a *folder* of scores is what ``earmark
score`` writes. They are aligned with labels here, and their order statistics are found, exactly,
in two passes over scores of any size. What scores mean for labels is the room of flags.
"""

from earmark.scores.alignment import (
    arrange,
    check_aligned,
    classes_of_columns,
    clips_of_rows,
    leave_out_unscored,
    logits_of,
    match_names,
    named_alike,
    named_as_scored,
    pairing_told,
    scored_labels,
)
from earmark.scores.blocks import ScoreFile, row_blocks
from earmark.scores.folder import UNLOCATED, MadeBy, Origin, ScoreFolder, write_score_folder
from earmark.scores.gaps import leave_out_gaps
from earmark.scores.loops import (
    add_chances,
    fill_clues,
    fit_mixture,
    keep_labels,
    look_at_odds,
    spread_labels,
)
from earmark.scores.matrix import (
    CHUNK_SCORES,
    Chunk,
    HeldScores,
    MappedScores,
    ScoreMatrix,
    ScoresLike,
    TeacherScores,
    find_unscored,
    open_scores,
)
from earmark.scores.odds import expit, logit
from earmark.scores.scale import Scale, detect_scale, scale_of, write_logits
from earmark.scores.score_files import open_score_file
from earmark.scores.sharded import passes_by
from earmark.scores.top_scores import (
    Passes,
    Summary,
    Tail,
    sample_scores,
    scores_above,
    top_scores,
)

__all__ = [
    "CHUNK_SCORES",
    "UNLOCATED",
    "Chunk",
    "HeldScores",
    "MadeBy",
    "MappedScores",
    "Origin",
    "Passes",
    "Scale",
    "ScoreFile",
    "ScoreFolder",
    "ScoreMatrix",
    "ScoresLike",
    "Summary",
    "Tail",
    "TeacherScores",
    "add_chances",
    "arrange",
    "check_aligned",
    "classes_of_columns",
    "clips_of_rows",
    "detect_scale",
    "expit",
    "fill_clues",
    "find_unscored",
    "fit_mixture",
    "keep_labels",
    "leave_out_gaps",
    "leave_out_unscored",
    "logit",
    "logits_of",
    "look_at_odds",
    "match_names",
    "named_alike",
    "named_as_scored",
    "open_score_file",
    "open_scores",
    "pairing_told",
    "passes_by",
    "row_blocks",
    "sample_scores",
    "scale_of",
    "scored_labels",
    "scores_above",
    "spread_labels",
    "top_scores",
    "write_logits",
    "write_score_folder",
]
