"""Source files, or no files at all, into clips, classes and labels."""
