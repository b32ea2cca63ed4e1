"""What a run is made of: its parameters, its files on disk, and where its work is done.

Here live the frozen parameter records with their digests, recipes, artefacts that are either whole
or not there, readers of the tables and arrays that others wrote, files named by a URL, progress,
and the engines that run tasks: this process, the cores of this machine, or a Ray cluster.

Nothing here knows labels, scores or sound; every other room may use it.
"""
