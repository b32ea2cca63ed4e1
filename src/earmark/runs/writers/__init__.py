"""Who writes: processes told apart, one writer at a time, and what killed ones left behind."""
