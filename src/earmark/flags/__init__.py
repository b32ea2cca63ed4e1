"""Which labels are suspect, how many are missing, and how likely each is.

From labels and scores alone: thresholds of the operating points, policies that choose what to flag,
counts and chances of missing labels, and flags held against a truth. What becomes of a flagged
label in training is the room of training; what ears say of it, that of review.
"""

from earmark.flags.chances.chances import Chances, clues_of, find_taught
from earmark.flags.chances.learnt import LEAST_ANSWERS, Answers, Model, Taught, learn
from earmark.flags.chances.sums import LOWEST, STEP
from earmark.flags.counts import MOST_TILT, VAGUE, Counts, count_missing, total_missing
from earmark.flags.findings import ANSWERS_MORE, Findings, find, spread_rows
from earmark.flags.flag import flag, survey
from earmark.flags.histograms import score_histograms
from earmark.flags.in_sample import IN_SAMPLE_RATIO, in_sample_warning, tilts_of_missing
from earmark.flags.knowledge import median_auc
from earmark.flags.mixture import MIN_POSITIVES
from earmark.flags.policies import POLICIES, check_policy, policy_told, policy_with
from earmark.flags.stored import (
    keep_thresholds,
    made_from,
    stored_flags,
    stored_thresholds,
    write_flag_folder,
)
from earmark.flags.strength import Strength, find_strength
from earmark.flags.suspects import FLAG_SCHEMA, FlagTable
from earmark.flags.thresholds import Thresholds, judge_flags, n_discarded, thresholds

__all__ = [
    "ANSWERS_MORE",
    "FLAG_SCHEMA",
    "IN_SAMPLE_RATIO",
    "LEAST_ANSWERS",
    "LOWEST",
    "MIN_POSITIVES",
    "MOST_TILT",
    "POLICIES",
    "STEP",
    "VAGUE",
    "Answers",
    "Chances",
    "Counts",
    "Findings",
    "FlagTable",
    "Model",
    "Strength",
    "Taught",
    "Thresholds",
    "check_policy",
    "clues_of",
    "count_missing",
    "find",
    "find_strength",
    "find_taught",
    "flag",
    "in_sample_warning",
    "judge_flags",
    "keep_thresholds",
    "learn",
    "made_from",
    "median_auc",
    "n_discarded",
    "policy_told",
    "policy_with",
    "score_histograms",
    "spread_rows",
    "stored_flags",
    "stored_thresholds",
    "survey",
    "thresholds",
    "tilts_of_missing",
    "total_missing",
    "write_flag_folder",
]
