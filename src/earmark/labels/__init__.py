"""What people said, about which classes.

A label is explicit (present, or not present) or implicit; a ``LabelSet`` holds the explicit ones
of millions of clips. Here live the rows of labels and what is wrong with them, what changed from
one set to another, the tree of classes, tables of labels in every form, files of labels, classes
and clips in the formats that people have, the format of AudioSet's own lists, and the dealing of
recordings into splits, folds and subsets.

Nothing here knows scores, sound or workspaces.
"""

from earmark.labels.audioset_format import (
    CLASSES_FILE,
    NUMBER,
    ONTOLOGY_FILE,
    VIDEO_ID,
    read_classes,
    read_ontology,
    read_segments,
)
from earmark.labels.changes import KINDS, LabelChanges, find_changes
from earmark.labels.class_names import How, NamedClass, NameMatch, match_classes
from earmark.labels.label_files import (
    CLASS_COLUMNS,
    LabelFile,
    is_label_table,
    read_class_list,
    read_clip_list,
    read_label_file,
    refuse_no_labels,
    sparse_labels,
)
from earmark.labels.label_set import IMPLICIT, NOT_PRESENT, PRESENT, LabelSet
from earmark.labels.label_tables import (
    CLIP_ROLES,
    GUESSED,
    LABEL_ROLES,
    NO_COLUMN,
    LabelTable,
    Reading,
    Zeros,
    check_given,
    column_notes,
    form_labels,
    guess_columns,
    read_label_table,
    row_clips,
)
from earmark.labels.lint import ROW_SCHEMA, Finding, find_problems
from earmark.labels.name_forms import name_words, other_names
from earmark.labels.name_numbers import rows_of
from earmark.labels.ontology import Implied, Ontology, find_implied
from earmark.labels.splits import (
    SPLIT_SHARES,
    TUNE_SHARE,
    Deviation,
    assign,
    complete_splits,
    deal_splits,
    folds,
    largest_deviation,
    subset,
)

__all__ = [
    "CLASSES_FILE",
    "CLASS_COLUMNS",
    "CLIP_ROLES",
    "GUESSED",
    "IMPLICIT",
    "KINDS",
    "LABEL_ROLES",
    "NOT_PRESENT",
    "NO_COLUMN",
    "NUMBER",
    "ONTOLOGY_FILE",
    "PRESENT",
    "ROW_SCHEMA",
    "SPLIT_SHARES",
    "TUNE_SHARE",
    "VIDEO_ID",
    "Deviation",
    "Finding",
    "How",
    "Implied",
    "LabelChanges",
    "LabelFile",
    "LabelSet",
    "LabelTable",
    "NameMatch",
    "NamedClass",
    "Ontology",
    "Reading",
    "Zeros",
    "assign",
    "check_given",
    "column_notes",
    "complete_splits",
    "deal_splits",
    "find_changes",
    "find_implied",
    "find_problems",
    "folds",
    "form_labels",
    "guess_columns",
    "is_label_table",
    "largest_deviation",
    "match_classes",
    "name_words",
    "other_names",
    "read_class_list",
    "read_classes",
    "read_clip_list",
    "read_label_file",
    "read_label_table",
    "read_ontology",
    "read_segments",
    "refuse_no_labels",
    "row_clips",
    "rows_of",
    "sparse_labels",
    "subset",
]
