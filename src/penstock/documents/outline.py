"""Where in a document a chunk stands: its title, the headings above it, its page, and how the document opens. Pure.

Parsers write headings as lines that begin with `#`, one sign a level, as Markdown does, and a form feed on a line of its
own where a page, a slide or a sheet begins. An outline is followed from
chunk to chunk. The words above a passage are part of what it is about, and the first words of a document say what the
whole of it is about: both are indexed with the passage, as its lead.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["NO_OUTLINE", "PAGE_MARK", "Outline"]

_HEADING: Final = re.compile(r"^(#{1,6}) +(\S.*)$", re.MULTILINE)
# Of headings, blanks and marks of pages at the start of a text.
_ENTRANCE_CHARACTERS_MAX: Final = 2_000
PAGE_MARK: Final = "\f"
HEADING_SEPARATOR: Final = " › "
# A longer line is a paragraph that somebody made a heading of.
_TITLE_CHARACTERS_MAX: Final = 160
# A sentence or two: what manuals and articles need to say what they are about.
_OPENING_WORDS: Final = 40
# A longer run is data and not a word.
_WORD_CHARACTERS_MAX: Final = 64


class Outline(msgspec.Struct, frozen=True, omit_defaults=True):
    """The title of a document, the headings above a place in it from the highest level down, and its first words."""

    title: str = ""
    path: tuple[tuple[int, str], ...] = ()
    # Without headings, and from the title on; as many words as have been met while they are fewer than an opening has.
    opening: str = ""
    # The page of this place, from 1 on; 0 in a text without pages.
    page: int = 0
    # Of the last text that was clearly in one.
    language: str | None = None

    @property
    def lead(self) -> str:
        """Title and headings as one line, each once."""
        parts = [self.title, *(heading for _, heading in self.path)]
        return HEADING_SEPARATOR.join(part for part in dict.fromkeys(parts) if part)

    @property
    def headings(self) -> str:
        """The headings above this place as one line."""
        return HEADING_SEPARATOR.join(heading for _, heading in self.path)

    def titled(self, title: str) -> Outline:
        return msgspec.structs.replace(self, title=_short(title))

    def past(self, text: str) -> Outline:
        """The outline behind `text`, which follows on this place. Without a title, the first heading becomes it."""
        title, path, opening = self.title, list(self.path), self.opening
        end = 0
        for found in _HEADING.finditer(text):
            level, heading = len(found.group(1)), _short(found.group(2))
            path = [above for above in path if above[0] < level]
            path.append((level, heading))
            title = title or heading
            opening = _opening(opening, text[end : found.start()])
            end = found.end()
            # A few words above the title are about the site, the version or the day.
            if heading == title and not _is_full(opening):
                opening = ""
        opening = _opening(opening, text[end:])
        return Outline(title, tuple(path), opening, self.page + text.count(PAGE_MARK), self.language)

    def entering(self, text: str) -> Outline:
        """The outline at the first words of `text`: headings and the beginning of a page before them are passed."""
        end = 0
        for line in text[:_ENTRANCE_CHARACTERS_MAX].splitlines(keepends=True):
            if line.strip() and not _HEADING.match(line):
                break
            end += len(line)
        return self.past(text[:end])

    def speaking(self, language: str | None) -> Outline:
        return self if language in (None, self.language) else msgspec.structs.replace(self, language=language)

    @staticmethod
    def headings_in(text: str) -> list[str]:
        """The headings of a text, in their order."""
        return [_short(found.group(2)) for found in _HEADING.finditer(text)]

    def past_plain(self, text: str) -> Outline:
        """The outline behind a text without headings."""
        return msgspec.structs.replace(self, opening=_opening(self.opening, text))


NO_OUTLINE: Final = Outline()


def _short(line: str) -> str:
    flat = " ".join(line.split())
    return flat if len(flat) <= _TITLE_CHARACTERS_MAX else flat[:_TITLE_CHARACTERS_MAX].rstrip() + "…"


def _is_full(opening: str) -> bool:
    return len(opening.split()) >= _OPENING_WORDS


def _opening(known: str, text: str) -> str:
    """The first words of a document, of which some may be known."""
    if _is_full(known):
        return known
    words = known.split()
    missing = _OPENING_WORDS - len(words)
    return " ".join([*words, *(word[:_WORD_CHARACTERS_MAX] for word in text.split(maxsplit=missing)[:missing])])
