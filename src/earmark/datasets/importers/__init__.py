"""Importers: one file for each kind of source, and what they share.

``sounds`` imports a folder of sound files with labels of any form, ``tables`` a table of labels,
``audioset`` AudioSet's official lists with sound, and ``audioset_features`` its released VGGish
embeddings. ``hugging_face`` imports what the library ``datasets`` writes, ``webdataset`` tars of
samples. ``fsd50k`` imports FSD50K. ``own_labels`` reads the rows of all tables, ``label_studio``
reads the answers of annotators, ``segments`` cuts long recordings into clips, and ``class_lists``
reads lists of classes.
"""
