"""The workspace, and how data gets into it.

A workspace is one folder with the clips, classes and labels of a dataset and all that is made from
them; its paths are named in ``workspace`` alone. Importers bring data of others in (one file or
folder each, one row in ``importer``), ``extraction`` turns sound into frames, ``quarantine`` lists
what could not be used, ``derived`` makes workspaces from others, and ``label_versions`` reads the
labels as given, as corrected and as they truly are.

What a label, a score or a frame is belongs to the rooms below; nothing here trains or flags.
"""

from earmark.datasets.audio_files import sounds_of
from earmark.datasets.audioset.audio import import_audioset
from earmark.datasets.audioset.features import import_audioset_features
from earmark.datasets.clip_sets import (
    ReadableClips,
    any_frames,
    held_out_clips,
    held_out_digest,
    held_out_folder,
    held_out_scores,
    measured_frames,
    number_recordings,
    open_frames,
    readable_clips,
    scored_frames,
    scores_of,
    single_digest,
    single_folder,
    whole_scores,
    write_scores,
)
from earmark.datasets.derived import derive_workspace, hidden_workspace, subset_workspace
from earmark.datasets.exchange.atlas import Atlas, write_atlas
from earmark.datasets.exchange.hub_export import HubExport, HubLabels, write_hub_folder
from earmark.datasets.exchange.hugging_face import import_hugging_face
from earmark.datasets.exchange.webdataset import import_webdataset
from earmark.datasets.extraction import Ear, extract_frames, write_frames
from earmark.datasets.importer import IMPORTERS, Importer, ImportSummary
from earmark.datasets.label_versions import (
    CHANGE_SCHEMA,
    CONFLICT_SCHEMA,
    CORRECTED,
    FILLED,
    GIVEN,
    PAIR,
    RESERVED_NAMES,
    TRUTH,
    NamedLabels,
    Relabelled,
    RelabelledFolder,
    corrected_names,
    corrections_left_out,
    label_names,
    read_labels,
    read_relabelled,
)
from earmark.datasets.own_tables.label_studio import annotations_of, is_label_studio, read_tasks
from earmark.datasets.own_tables.sounds import import_sounds
from earmark.datasets.own_tables.table import import_table
from earmark.datasets.quarantine import quarantine_told
from earmark.datasets.releases.fsd50k import import_fsd50k
from earmark.datasets.releases.openmic import import_openmic
from earmark.datasets.stamps import (
    Stale,
    find_stale,
    refuse_stale,
    stale_of,
    stamp_of,
    stamp_path,
    warn_stale,
    write_stamp,
)
from earmark.datasets.synthetic.hiding import hide, n_missing, recalls
from earmark.datasets.synthetic.mixtures import import_mixtures
from earmark.datasets.synthetic.pooled_scenes import pooled_scenes
from earmark.datasets.synthetic.scenes import scene, write_scenes
from earmark.datasets.workspace import (
    CLIP_SCHEMA,
    HELD_OUT_SPLITS,
    SCANNED_FOLDER,
    Split,
    Workspace,
    write_dataset,
)

__all__ = [
    "CHANGE_SCHEMA",
    "CLIP_SCHEMA",
    "CONFLICT_SCHEMA",
    "CORRECTED",
    "FILLED",
    "GIVEN",
    "HELD_OUT_SPLITS",
    "IMPORTERS",
    "PAIR",
    "RESERVED_NAMES",
    "SCANNED_FOLDER",
    "TRUTH",
    "Atlas",
    "Ear",
    "HubExport",
    "HubLabels",
    "ImportSummary",
    "Importer",
    "NamedLabels",
    "ReadableClips",
    "Relabelled",
    "RelabelledFolder",
    "Split",
    "Stale",
    "Workspace",
    "annotations_of",
    "any_frames",
    "corrected_names",
    "corrections_left_out",
    "derive_workspace",
    "extract_frames",
    "find_stale",
    "held_out_clips",
    "held_out_digest",
    "held_out_folder",
    "held_out_scores",
    "hidden_workspace",
    "hide",
    "import_audioset",
    "import_audioset_features",
    "import_fsd50k",
    "import_hugging_face",
    "import_mixtures",
    "import_openmic",
    "import_sounds",
    "import_table",
    "import_webdataset",
    "is_label_studio",
    "label_names",
    "measured_frames",
    "n_missing",
    "number_recordings",
    "open_frames",
    "pooled_scenes",
    "quarantine_told",
    "read_labels",
    "read_relabelled",
    "read_tasks",
    "readable_clips",
    "recalls",
    "refuse_stale",
    "scene",
    "scored_frames",
    "scores_of",
    "single_digest",
    "single_folder",
    "sounds_of",
    "stale_of",
    "stamp_of",
    "stamp_path",
    "subset_workspace",
    "warn_stale",
    "whole_scores",
    "write_atlas",
    "write_dataset",
    "write_frames",
    "write_hub_folder",
    "write_scenes",
    "write_scores",
    "write_stamp",
]
