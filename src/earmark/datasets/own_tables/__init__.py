"""Any dataset that its owner has as tables, or as an export of Label Studio.

``table`` imports tables and ``sounds`` a folder of sound with labels of any form. Both read
``own_labels``; ``label_studio`` reads the answers of annotators and ``embeddings`` brings in frames
from elsewhere. ``recordings`` are found by the names that rows give them, ``pieces`` are what long
ones are cut into, by their ``lengths``, and ``class_lists`` put classes in order.
"""
