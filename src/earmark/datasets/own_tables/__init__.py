"""Any dataset given as tables of its owner, or as an export of Label Studio."""
