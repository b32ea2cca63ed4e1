"""Which labels are suspect, how many are missing, and how likely each is.

From labels and scores alone: thresholds of the operating points, policies that choose what to flag,
counts and chances of missing labels, and flags held against a truth. What becomes of a flagged
label in training is the room of training; what ears say of it, that of review.
"""

from earmark.flags.chances.by_score import HEARD
from earmark.flags.chances.chances import Chances, clues_of, find_chances, find_taught
from earmark.flags.chances.clues import CLUES, IMPLIED, Clues
from earmark.flags.chances.labelled_odds import labelled_odds
from earmark.flags.chances.learnt import (
    EFFECT_VARIANCE,
    LEAST_ANSWERS,
    Answers,
    Model,
    Taught,
    learn,
)
from earmark.flags.chances.relatives import Lists, Relatives
from earmark.flags.chances.sums import LOWEST, STEP
from earmark.flags.counts import MOST_TILT, VAGUE, Counts, count_missing, total_missing
from earmark.flags.counts_by_ear import SAMPLED_CLIPS, reach_after
from earmark.flags.findings import ANSWERS_MORE, Findings, find, spread_rows
from earmark.flags.flag import flag, survey, suspicious_positives
from earmark.flags.histograms import (
    N_BINS,
    Histograms,
    blurred,
    moments,
    quantile_bins,
    score_histograms,
    smoothed,
)
from earmark.flags.in_sample import IN_SAMPLE_RATIO, in_sample_warning, tilts_of_missing
from earmark.flags.knowledge import Knowledge, median_auc
from earmark.flags.mixture import (
    CONVERGED,
    EACH_CONVERGED,
    MIN_POSITIVES,
    N_FIRST_STEPS,
    Fit,
    Mixture,
    fit,
    quantiles_of_missing,
)
from earmark.flags.p_missing import (
    PMissing,
    Total,
    allocate,
    estimate_total,
    find_p_missing,
    measure_knowledge,
)
from earmark.flags.policies import POLICIES, check_policy, policy_told, policy_with
from earmark.flags.stored import (
    BY_PER_CENT,
    made_from,
    stored_flags,
    stored_thresholds,
    write_flag_folder,
)
from earmark.flags.strength import (
    GIVEN_PER_FLAG,
    GIVEN_PER_MISSING,
    MOST_SHARE,
    N_FIRST,
    WEAK_SHARE,
    Strength,
    find_strength,
)
from earmark.flags.suspects import FLAG_SCHEMA, FLAGS_AT_ONCE, FlagTable, Suspects
from earmark.flags.thresholds import Thresholds, judge_flags, n_discarded, thresholds

__all__ = [
    "ANSWERS_MORE",
    "BY_PER_CENT",
    "CLUES",
    "CONVERGED",
    "EACH_CONVERGED",
    "EFFECT_VARIANCE",
    "FLAGS_AT_ONCE",
    "FLAG_SCHEMA",
    "GIVEN_PER_FLAG",
    "GIVEN_PER_MISSING",
    "HEARD",
    "IMPLIED",
    "IN_SAMPLE_RATIO",
    "LEAST_ANSWERS",
    "LOWEST",
    "MIN_POSITIVES",
    "MOST_SHARE",
    "MOST_TILT",
    "N_BINS",
    "N_FIRST",
    "N_FIRST_STEPS",
    "POLICIES",
    "SAMPLED_CLIPS",
    "STEP",
    "VAGUE",
    "WEAK_SHARE",
    "Answers",
    "Chances",
    "Clues",
    "Counts",
    "Findings",
    "Fit",
    "FlagTable",
    "Histograms",
    "Knowledge",
    "Lists",
    "Mixture",
    "Model",
    "PMissing",
    "Relatives",
    "Strength",
    "Suspects",
    "Taught",
    "Thresholds",
    "Total",
    "allocate",
    "blurred",
    "check_policy",
    "clues_of",
    "count_missing",
    "estimate_total",
    "find",
    "find_chances",
    "find_p_missing",
    "find_strength",
    "find_taught",
    "fit",
    "flag",
    "in_sample_warning",
    "judge_flags",
    "labelled_odds",
    "learn",
    "made_from",
    "measure_knowledge",
    "median_auc",
    "moments",
    "n_discarded",
    "policy_told",
    "policy_with",
    "quantile_bins",
    "quantiles_of_missing",
    "reach_after",
    "score_histograms",
    "smoothed",
    "spread_rows",
    "stored_flags",
    "stored_thresholds",
    "survey",
    "suspicious_positives",
    "thresholds",
    "tilts_of_missing",
    "total_missing",
    "write_flag_folder",
]
