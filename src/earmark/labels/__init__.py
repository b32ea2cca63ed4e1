"""What people said, about which classes.

A label is explicit (present, or not present) or implicit; a ``LabelSet`` holds the explicit ones
of millions of clips. Here live the rows of labels and what is wrong with them, the tree of
classes, files of labels, classes and clips in the formats that people have, the format of
AudioSet's own lists, and the dealing of recordings into splits, folds and subsets.

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
from earmark.labels.label_files import (
    CLASS_COLUMNS,
    LabelFile,
    read_class_list,
    read_clip_list,
    read_label_file,
    sparse_labels,
)
from earmark.labels.label_set import IMPLICIT, NOT_PRESENT, PRESENT, LabelSet
from earmark.labels.lint import ROW_SCHEMA, Finding, checked_table, find_problems
from earmark.labels.ontology import Implied, Ontology, find_implied
from earmark.labels.splits import (
    TUNE_SHARE,
    Deviation,
    assign,
    complete_splits,
    folds,
    largest_deviation,
    subset,
)

__all__ = [
    "CLASSES_FILE",
    "CLASS_COLUMNS",
    "IMPLICIT",
    "NOT_PRESENT",
    "NUMBER",
    "ONTOLOGY_FILE",
    "PRESENT",
    "ROW_SCHEMA",
    "TUNE_SHARE",
    "VIDEO_ID",
    "Deviation",
    "Finding",
    "Implied",
    "LabelFile",
    "LabelSet",
    "Ontology",
    "assign",
    "checked_table",
    "complete_splits",
    "find_implied",
    "find_problems",
    "folds",
    "largest_deviation",
    "read_class_list",
    "read_classes",
    "read_clip_list",
    "read_label_file",
    "read_ontology",
    "read_segments",
    "sparse_labels",
    "subset",
]
