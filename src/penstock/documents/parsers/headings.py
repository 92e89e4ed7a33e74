"""How headings stand in the text that parsers make: a line of its own that begins with `#`, one sign a level.

`penstock.documents.outline` reads them again.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["heading", "heading_mark", "verbatim", "with_title"]

_LEVELS: Final = 6
_MARKED: Final = re.compile(r"^#{1,6} ", re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6} \S", re.MULTILINE)


def heading_mark(level: int) -> str:
    """What a heading's line begins with."""
    return "#" * min(max(level, 1), _LEVELS) + " "


def heading(words: str, level: int) -> str:
    """A heading on one line; nothing where there are no words."""
    flat = " ".join(words.split())
    return heading_mark(level) + flat if flat else ""


def verbatim(text: str) -> str:
    """Code as it stands, but for a blank before lines that would pass for headings: a comment is none."""
    return _MARKED.sub(r" \g<0>", text)


def with_title(text: str, title: str | None) -> str:
    """The text, under its title where it has no heading of its own."""
    if not title or not text or _HEADING.search(text):
        return text
    return f"{heading(title, 1)}\n\n{text}"
