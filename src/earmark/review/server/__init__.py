"""The listening page: a local server on which people judge flags by ear.

``app`` serves the page and needs Starlette and uvicorn. ``session`` answers the page's requests,
``clips`` has sounds, pictures and class cards, and ``figures`` sums up the answers. The page is
plain HTML, CSS and JavaScript in ``static``: it has no build step and loads nothing from elsewhere.
"""

from earmark.errors import load_library


def check_server() -> None:
    """Say which part of earmark to install where the page cannot be served."""
    for library in ("starlette", "uvicorn"):
        load_library(library, "the listening page", "review")
