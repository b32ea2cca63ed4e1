"""Tasks, and trainings of several processes, on a Ray cluster."""
