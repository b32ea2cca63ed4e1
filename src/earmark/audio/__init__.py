"""Sound to frames on disk, and what is heard and seen of a clip.

``decode`` reads a clip from any file as a waveform, ``front_end`` turns it into log-mel frames and
patches, ``shards`` and ``frame_store`` keep the frames of many clips on disk. ``playback`` and
``pictures`` are for people: a sound that a browser plays, and a picture of it.

Nothing here knows labels or workspaces. Libraries that decode or draw are loaded when they are
needed, so that frames and embeddings from elsewhere can be used without them.
"""

from earmark.audio.decode import UnreadableAudio, local_file, read_clip, stream_clip
from earmark.audio.frame_store import CLIPS_PER_SHARD, FrameStore, Levels, write_store
from earmark.audio.front_end import YAMNET, log_mel, log_mel_module, mel_matrix, patches
from earmark.audio.headers import SoundHeader, duration_seconds, sound_header
from earmark.audio.pictures import LOG_MEL_RANGE, log_mel_png, picture_png, seen_frames
from earmark.audio.playback import (
    PLAYED_HZ,
    BadRange,
    byte_range,
    mp3_bytes,
    plain_wav,
    wav_bytes,
)
from earmark.audio.pooled import pooled
from earmark.audio.shards import (
    LAYOUT_VERSION,
    FrameFormat,
    Row,
    ShardWriter,
    content_digest,
    damage,
    fingerprint,
    part_path,
    read_part,
    read_parts,
    seal_store,
    shard_path,
    write_shard,
)
from earmark.audio.sources import (
    SuspectFile,
    file_fingerprint,
    is_replaced,
    size_and_time,
    source_of,
    suspect_files,
)

__all__ = [
    "CLIPS_PER_SHARD",
    "LAYOUT_VERSION",
    "LOG_MEL_RANGE",
    "PLAYED_HZ",
    "YAMNET",
    "BadRange",
    "FrameFormat",
    "FrameStore",
    "Levels",
    "Row",
    "ShardWriter",
    "SoundHeader",
    "SuspectFile",
    "UnreadableAudio",
    "byte_range",
    "content_digest",
    "damage",
    "duration_seconds",
    "file_fingerprint",
    "fingerprint",
    "is_replaced",
    "local_file",
    "log_mel",
    "log_mel_module",
    "log_mel_png",
    "mel_matrix",
    "mp3_bytes",
    "part_path",
    "patches",
    "picture_png",
    "plain_wav",
    "pooled",
    "read_clip",
    "read_part",
    "read_parts",
    "seal_store",
    "seen_frames",
    "shard_path",
    "size_and_time",
    "sound_header",
    "source_of",
    "stream_clip",
    "suspect_files",
    "wav_bytes",
    "write_shard",
    "write_store",
]
