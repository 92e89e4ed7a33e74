"""How headings and pages stand in the text that parsers make.

A heading is a line of its own that begins with `#`, one sign a level. Where a page, a slide or a sheet begins, a form feed
stands on a line of its own: the text of page 3 comes after three of them.

`penstock.documents.outline` reads them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["PAGE_MARK", "code_block", "heading", "heading_mark", "joined_blocks", "verbatim", "with_title"]

PAGE_MARK: Final = "\f"
_LEVELS: Final = 6
_MARKED: Final = re.compile(r"^#{1,6} ", re.MULTILINE)
_EMPTY_LINE: Final = re.compile(r"\n[ \t]*(?=\n)")
_HEADING: Final = re.compile(r"^#{1,6} \S", re.MULTILINE)


def heading_mark(level: int) -> str:
    """What a heading's line begins with."""
    return "#" * min(max(level, 1), _LEVELS) + " "


def heading(words: str, level: int) -> str:
    """A heading on one line; nothing where there are no words."""
    flat = " ".join(words.split())
    return heading_mark(level) + flat if flat else ""


def verbatim(text: str) -> str:
    """Text as it stands, but for a blank before lines that would pass for headings: a comment is none."""
    return _MARKED.sub(r" \g<0>", text)


def code_block(text: str) -> str:
    """Code as it stands, as one paragraph: empty lines hold a blank."""
    return _EMPTY_LINE.sub("\n ", verbatim(text))


def joined_blocks(blocks: Iterable[str]) -> str:
    """Blocks as paragraphs, those without words left out; marks of pages count only where there are words."""
    kept = [block for block in blocks if block == PAGE_MARK or block.strip()]
    return "\n\n".join(kept) if any(block != PAGE_MARK for block in kept) else ""


def with_title(text: str, title: str | None) -> str:
    """The text, under its title where it has no heading of its own."""
    if not title or not text or _HEADING.search(text):
        return text
    return f"{heading(title, 1)}\n\n{text}"
