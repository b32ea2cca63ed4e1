"""Datasets in the forms of other tools, in and out.

``hugging_face`` and ``webdataset`` import; both gather rows of many files (``packed_rows``) and
write the workspace in one way (``gathered``). ``hub_files`` opens Parquet, Arrow and folders of
sound as the library ``datasets`` writes them, ``hub_features`` knows what it says of columns, and
``hub_export`` writes such a folder.
"""
