"""Where in a document a chunk stands: its title, and the headings above it. Pure, and followed from chunk to chunk.

Parsers write headings as lines that begin with `#`, one sign a level, as Markdown does. The words above a passage are
part of what it is about: they are indexed with it, as its lead.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["NO_OUTLINE", "Outline"]

_HEADING: Final = re.compile(r"^(#{1,6}) +(\S.*)$", re.MULTILINE)
# A longer line is a paragraph that somebody made a heading of.
_TITLE_CHARACTERS_MAX: Final = 160


class Outline(msgspec.Struct, frozen=True, omit_defaults=True):
    """The title of a document, and the headings above a place in it from the highest level down."""

    title: str = ""
    path: tuple[tuple[int, str], ...] = ()

    @property
    def lead(self) -> str:
        """Title and headings as one line, each once."""
        parts = [self.title, *(heading for _, heading in self.path)]
        return " › ".join(part for part in dict.fromkeys(parts) if part)

    def titled(self, title: str) -> Outline:
        return msgspec.structs.replace(self, title=_short(title))

    def past(self, text: str) -> Outline:
        """The outline behind `text`, which follows on this place. Without a title, the first heading becomes it."""
        title, path = self.title, list(self.path)
        for found in _HEADING.finditer(text):
            level, heading = len(found.group(1)), _short(found.group(2))
            path = [above for above in path if above[0] < level]
            path.append((level, heading))
            title = title or heading
        return Outline(title, tuple(path))


NO_OUTLINE: Final = Outline()


def _short(line: str) -> str:
    flat = " ".join(line.split())
    return flat if len(flat) <= _TITLE_CHARACTERS_MAX else flat[:_TITLE_CHARACTERS_MAX].rstrip() + "…"
