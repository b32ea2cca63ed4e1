"""Sound to frames on disk, and what is heard and seen of a clip.

``decode`` reads a clip from any file as a waveform, ``front_end`` turns it into log-mel frames and
patches, ``shards`` and ``frame_store`` keep the frames of many clips on disk. ``playback`` and
``pictures`` are for people: a sound that a browser plays, and a picture of it.

Nothing here knows labels or workspaces. Libraries that decode or draw are loaded when they are
needed, so that frames and embeddings from elsewhere can be used without them.
"""
