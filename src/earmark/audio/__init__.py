"""Decode sound files, compute log-mel frames, store frames on disk, and play and picture clips.

``decode`` reads a clip from any file as a waveform, ``front_end`` turns it into log-mel frames and
patches, ``frame_store`` keeps the frames of many clips on disk in shards, and ``sources`` detects
sound files that were replaced. ``playback`` makes sounds and pictures for browsers.

The package does not import labels or workspaces. Libraries that decode or draw are imported when
they are needed, so that frames and embeddings from elsewhere can be used without them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
