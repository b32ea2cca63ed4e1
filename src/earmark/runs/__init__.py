"""What a run is made of: its parameters, its files on disk, and where its work is done.

Here live the frozen parameter records with their digests, recipes, artefacts that are either whole
or not there, readers of the tables and arrays that others wrote (with the words that people write
for present and not present), files named by a URL, progress, and the engines that run tasks: this
process, the cores of this machine, or a Ray cluster.

Nothing here knows what a label, a score or a sound is; every other room may use it.
"""

from earmark.runs.arrays import as_array, choose_key, map_array, names_in, open_archive
from earmark.runs.artefacts import (
    break_seal,
    file_sha256,
    is_current,
    is_finished,
    open_sqlite,
    read_json,
    read_seal,
    read_table,
    seal,
    seal_path,
    write_aside,
    write_json,
    write_table,
    write_text,
)
from earmark.runs.cluster.ray import RayEngine, connect
from earmark.runs.cluster.ray_training import train_together
from earmark.runs.engine import (
    HERE,
    Engine,
    LocalEngine,
    ResourceParams,
    Task,
    default_workers,
)
from earmark.runs.parameters import (
    PAPER_DISCARD_PERCENTS,
    Aim,
    CompareParams,
    CrossFitParams,
    FrontEndParams,
    ModelParams,
    NetworkParams,
    Params,
    QueueAim,
    ReviewParams,
    Runtime,
    SpecAugmentParams,
    SweepParams,
    TrainParams,
    digest,
)
from earmark.runs.pretrained_parameters import InputKind, PretrainedParams, Way
from earmark.runs.progress import FOUND, RESUMED, SILENT, AsOneJob, Display, Meter, Progress, shown
from earmark.runs.recipe import (
    Recipe,
    find_recipe,
    has_kept_recipe,
    keep_recipe,
    kept_recipe,
)
from earmark.runs.remote_files import is_url, local_copy, place_of
from earmark.runs.scene_parameters import HidingParams, MixtureParams, SceneParams
from earmark.runs.tables import (
    AUDIO_SUFFIXES,
    LINE,
    PRESENCE,
    TABLE_ERRORS,
    SourceTable,
    check_unique,
    read_header,
    read_source,
)

__all__ = [
    "AUDIO_SUFFIXES",
    "FOUND",
    "HERE",
    "LINE",
    "PAPER_DISCARD_PERCENTS",
    "PRESENCE",
    "RESUMED",
    "SILENT",
    "TABLE_ERRORS",
    "Aim",
    "AsOneJob",
    "CompareParams",
    "CrossFitParams",
    "Display",
    "Engine",
    "FrontEndParams",
    "HidingParams",
    "InputKind",
    "LocalEngine",
    "Meter",
    "MixtureParams",
    "ModelParams",
    "NetworkParams",
    "Params",
    "PretrainedParams",
    "Progress",
    "QueueAim",
    "RayEngine",
    "Recipe",
    "ResourceParams",
    "ReviewParams",
    "Runtime",
    "SceneParams",
    "SourceTable",
    "SpecAugmentParams",
    "SweepParams",
    "Task",
    "TrainParams",
    "Way",
    "as_array",
    "break_seal",
    "check_unique",
    "choose_key",
    "connect",
    "default_workers",
    "digest",
    "file_sha256",
    "find_recipe",
    "has_kept_recipe",
    "is_current",
    "is_finished",
    "is_url",
    "keep_recipe",
    "kept_recipe",
    "local_copy",
    "map_array",
    "names_in",
    "open_archive",
    "open_sqlite",
    "place_of",
    "read_header",
    "read_json",
    "read_seal",
    "read_source",
    "read_table",
    "seal",
    "seal_path",
    "shown",
    "train_together",
    "write_aside",
    "write_json",
    "write_table",
    "write_text",
]
