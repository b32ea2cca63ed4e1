"""The listening page: a local server on which people judge flags by ear.

``sounds`` and ``pictures`` make what is heard and seen of a clip, ``media`` keeps both at hand,
``peaks`` finds where to listen, ``cards`` tells what a class is, ``desk`` answers what the page
asks, ``guard`` lets in only the page itself, and ``server`` puts them on an address. The page is
plain HTML, CSS and JavaScript in ``static``.
"""
