"""Where classes are heard, in the files of other programs: Raven, Audacity, DCASE and AOEF.

A *selection* is a stretch of a sound file in which a class is heard. Its times count from the start
of the file, of which a clip may be a part: ``sound_files`` knows which. ``heard`` makes selections
of answers, and answers of selections; ``tables`` and ``aoef`` hold the formats, which ``formats``
tells apart; ``exchange`` does it all for a workspace.
"""

from earmark.review.selections.exchange import export_selections, import_selections
from earmark.review.selections.formats import SELECTION_FORMATS, SelectionFormat, selection_format

__all__ = [
    "SELECTION_FORMATS",
    "SelectionFormat",
    "export_selections",
    "import_selections",
    "selection_format",
]
