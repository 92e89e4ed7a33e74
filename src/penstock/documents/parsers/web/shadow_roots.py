"""Shadow roots that a page declares (`<template shadowrootmode>`): readers see them, and tree builders put them aside.

They are renamed before the page is parsed, so that their text stands where it is shown. Other templates show nothing
and stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock.documents.parsers.web.nesting import tag_end

__all__ = ["open_shadow_roots"]

_DECLARATION: Final = b"shadowrootmode"
_ATTRIBUTE: Final = re.compile(rb"[\s\"'/]shadowrootmode\s*=")
_MARK: Final = re.compile(rb"<!--|<(script|style|textarea|title)(?=[\s/>])|<(/?)template(?=[\s/>])")
# An element that means nothing, between blanks: words on both sides of it are two.
_SHOWN: Final = {b"": b" <shadow-root", b"/": b" </shadow-root"}


def open_shadow_roots(source: bytes) -> bytes:
    """A page whose declared shadow roots are ordinary elements."""
    lowered = source.lower()
    if _DECLARATION not in lowered:
        return source
    pieces, place = [], 0
    for start, end, slash in _roots(lowered):
        pieces += [source[place:start], _SHOWN[slash]]
        place = end
    return b"".join([*pieces, source[place:]])


def _roots(source: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Where the names of their tags begin and end in a page in lower case, and the slash of those that end."""
    shown: list[bool] = []
    place = 0
    while (found := _MARK.search(source, place)) is not None:
        place = found.end()
        if found.group(2) is None:
            # Neither comments nor scripts hold tags.
            ending = b"-->" if found.group(1) is None else b"</" + found.group(1)
            place = source.find(ending, found.start() + 2)
        elif found.group(2):
            if shown and shown.pop():
                yield found.start(), found.end(), b"/"
        else:
            place = tag_end(source, found.end())
            shown.append(place >= 0 and _ATTRIBUTE.search(source, found.end(), place) is not None)
            if shown[-1]:
                yield found.start(), found.end(), b""
        if place < 0:
            return
