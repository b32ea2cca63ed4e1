"""Linear probes fitted as a whole: by torch and any loss, by numpy alone, and as an estimator."""
