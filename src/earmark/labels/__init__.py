"""What people said, about which classes.

A label is explicit (present, or not present) or implicit; a ``LabelSet`` holds the explicit ones
of millions of clips. Here live the rows of labels and what is wrong with them, the tree of
classes, files of labels, classes and clips in the formats that people have, the format of
AudioSet's own lists, and the dealing of recordings into splits, folds and subsets.

Nothing here knows scores, sound or workspaces.
"""
