"""Decode sound files, compute log-mel frames, store frames on disk, and play and picture clips.

``decode`` reads a clip from any file as a waveform, ``front_end`` turns it into log-mel frames and
patches, ``frame_store`` keeps the frames of many clips on disk in shards, and ``sources`` detects
sound files that were replaced. ``playback`` makes sounds and pictures for browsers.

The package does not import labels or workspaces. Libraries that decode or draw are imported when
they are needed, so that frames and embeddings from elsewhere can be used without them.
"""

from earmark.audio.decode import SoundHeader, duration_seconds, read_clip, sound_header, stream_clip
from earmark.audio.frame_store import (
    CLIPS_PER_SHARD,
    LAYOUT_VERSION,
    FrameFormat,
    FrameStore,
    Row,
    content_digest,
    damage,
    open_shard,
    part_path,
    read_part,
    seal_store,
    shard_path,
    write_part,
    write_store,
)
from earmark.audio.front_end import (
    YAMNET,
    log_mel,
    log_mel_module,
    mel_matrix,
    patches,
    pooled,
)
from earmark.audio.playback import (
    LOG_MEL_RANGE,
    MOST_COLUMNS,
    PLAYED_HZ,
    BadRange,
    byte_range,
    log_mel_png,
    loudness_gain,
    mp3_bytes,
    picture_png,
    plain_wav,
    seen_frames,
    wav_bytes,
)
from earmark.audio.sources import (
    SuspectFile,
    file_fingerprint,
    is_replaced,
    size_and_time,
    source_of,
    suspect_files,
)
from earmark.storage import UnreadableAudio

__all__ = [
    "CLIPS_PER_SHARD",
    "LAYOUT_VERSION",
    "LOG_MEL_RANGE",
    "MOST_COLUMNS",
    "PLAYED_HZ",
    "YAMNET",
    "BadRange",
    "FrameFormat",
    "FrameStore",
    "Row",
    "SoundHeader",
    "SuspectFile",
    "UnreadableAudio",
    "byte_range",
    "content_digest",
    "damage",
    "duration_seconds",
    "file_fingerprint",
    "is_replaced",
    "log_mel",
    "log_mel_module",
    "log_mel_png",
    "loudness_gain",
    "mel_matrix",
    "mp3_bytes",
    "open_shard",
    "part_path",
    "patches",
    "picture_png",
    "plain_wav",
    "pooled",
    "read_clip",
    "read_part",
    "seal_store",
    "seen_frames",
    "shard_path",
    "size_and_time",
    "sound_header",
    "source_of",
    "stream_clip",
    "suspect_files",
    "wav_bytes",
    "write_part",
    "write_store",
]
