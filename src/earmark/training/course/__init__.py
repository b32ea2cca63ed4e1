"""The course of a training: its history on disk, and the trackers that show it while it lasts."""
