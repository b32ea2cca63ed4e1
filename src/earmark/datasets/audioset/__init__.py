"""AudioSet as it is published: official lists, audio as people have it, and VGGish embeddings.

``lists`` finds the label files and makes clips and labels of them, for both importers: ``audio``,
for sound files, and ``features``, for the released embeddings (``tfrecord`` cuts the files into
records, ``embedding`` reads one of them).
How the label files are written is said in :mod:`earmark.labels.audioset_format`.
"""
