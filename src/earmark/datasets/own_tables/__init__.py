"""Any dataset that its owner has as tables, or as an export of Label Studio.

``table`` is the importer, ``forms`` tells the forms of tables apart and guesses columns, and
``label_studio`` reads the answers of annotators.
"""
