"""What stands above the title of a page, and is nothing but links: paths of pages, bars of links, the name of the site.

A page without names for its parts shows by its structure where it begins: with its heading of the highest level. Lines
of links above it are left out once it is met, and kept where it never comes: a page may be a list of links. Text that
is no link ends this; it is kept, and so are all links behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["PageHead"]

# Characters outside of links that may stand above the title: the name of a project, a version, a motto.
_TEXT_CHARACTERS_MAX: Final = 200


@dataclass(slots=True)
class PageHead:
    """Blocks of links above the title of a page, as places of pieces of text; each with its number of characters."""

    # Words outside of links that lead away, and their characters.
    words: int = 0
    text_characters: int = 0
    is_over: bool = False
    _blocks: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, text: str, size: int) -> None:
        """Text that is in no link, or in one to its own page."""
        if any(map(str.isalnum, text)):
            self.words += 1
            self.text_characters += size
            self.is_over = self.is_over or self.text_characters > _TEXT_CHARACTERS_MAX

    def add_block(self, start: int, end: int, linked: int) -> None:
        """A block in which all words are links; it takes in those inside it."""
        while self._blocks and self._blocks[-1][0] >= start:
            self._blocks.pop()
        self._blocks.append((start, end, linked))

    def end(self, pieces: list[str]) -> int:
        """The title was met: the blocks are left out, in their places. How many characters they had."""
        self.is_over = True
        for start, end, _ in self._blocks:
            pieces[start:end] = [""] * (end - start)
        return sum(linked for *_, linked in self._blocks)
