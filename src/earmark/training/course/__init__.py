"""The course of a training: its history on disk, its checkpoints, and the trackers that show it."""
