"""The listening page: a local server on which people judge flags by ear.

``app`` puts the page on an address and ``guard`` lets in only the page itself; these two need
Starlette and uvicorn. ``desk`` answers what the page asks and ``media`` keeps sounds and pictures
at hand. The page is plain HTML, CSS and JavaScript in ``static``: it has no build step and asks no
other machine for anything.
"""

from earmark.errors import load_library


def check_server() -> None:
    """Say which part of earmark to install where the page cannot be served."""
    for library in ("starlette", "uvicorn"):
        load_library(library, "the listening page", "review")
