"""What is said of missing labels: on the page of a scan, and to whoever watches a dataset."""
