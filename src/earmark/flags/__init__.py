"""Which labels are suspect, how many are missing, and how likely each is.

From labels and scores alone: thresholds of the operating points, policies that choose what to flag,
counts and chances of missing labels, and flags held against a truth. What becomes of a flagged
label in training is the room of training; what ears say of it, that of review.
"""
