"""Which heading of a page is its title. Pure.

A page names itself in its `title` element, mostly with the name of its site before or behind. The first heading is
often something else: the site's own name, `1. Introduction`, or the caption of a menu. Where the first heading is not
what the page calls itself, the text begins with the heading that is, or with the page's own name for itself; a line
above all headings that has this name is made the heading.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.documents.parsers.headings import heading, with_title

__all__ = ["under_page_title"]

_HEADING: Final = re.compile(r"^#{1,6} (\S.*)$", re.MULTILINE)
_TOP_HEADING: Final = re.compile(r"^# \S", re.MULTILINE)
_WORD: Final = re.compile(r"[^\W_]+")
# What stands between the name of a page and that of its site.
_SEPARATOR: Final = re.compile(r" [|–—·•»›>:-]+ |: ")
# Site, section and page come among the first headings; further down stand parts of the text.
_HEADINGS_MAX: Final = 5
# Lines above them in which it may stand plainly.
_LINES_MAX: Final = 20
_LINE: Final = re.compile(r"^\S.*$", re.MULTILINE)
# A longer name is a sentence for search engines.
_TITLE_CHARACTERS_MAX: Final = 160
# One word may be anything: `Home`, `Document`.
_TITLE_WORDS_MIN: Final = 2
_NO_NAME: Final = ("untitled", "no title")


def under_page_title(text: str, title: str | None) -> str:
    """The text of a page, under what the page calls itself."""
    name = " ".join((title or "").split())
    headings = [found.group(1) for _, found in zip(range(_HEADINGS_MAX), _HEADING.finditer(text), strict=False)]
    if not headings or not name or len(name) > _TITLE_CHARACTERS_MAX:
        return with_title(text, name)
    named = _named(name, headings)
    # The site's heading stands above that of the page.
    chosen = named[-1] if named else headings[0]
    if not named and not _has_top_heading(text):
        line = _name_line(text, name)
        if line is not None:
            return f"{text[: line.start()]}{heading(name, 1)}{text[line.end() :]}"
        if _differs(name, chosen):
            chosen = name
    return text if chosen == headings[0] else f"{heading(chosen, 1)}\n\n{text}"


def _name_line(text: str, name: str) -> re.Match[str] | None:
    """The line above the first heading that is what the page calls itself."""
    first = next(_HEADING.finditer(text)).start()
    lines = zip(range(_LINES_MAX), _LINE.finditer(text, 0, first), strict=False)
    return next((line for _, line in lines if _words(line.group()) == _words(name)), None)


def _has_top_heading(text: str) -> bool:
    """Whether a text has one heading of the highest level, and begins with it."""
    first = next(_HEADING.finditer(text))
    return len(_TOP_HEADING.findall(text)) == 1 and first.group().startswith("# ")


def _differs(name: str, first: str) -> bool:
    """Whether a page calls itself something, and its first heading has less than half of its words from that."""
    words, known = set(_words(first)), _words(name)
    is_name = len(known) >= _TITLE_WORDS_MIN and not name.lower().startswith(_NO_NAME)
    return is_name and 2 * len(words & set(known)) < len(words)


def _named(name: str, headings: list[str]) -> list[str]:
    """The headings that are one or more whole parts of the name, without those that are a part of another one."""
    parts = [_words(part) for part in _SEPARATOR.split(name)]
    ends = range(len(parts) + 1)
    runs = {tuple(word for part in parts[low:high] for word in part) for low in ends for high in ends if low < high}
    found = {each: words for each in headings if (words := tuple(_words(each))) in runs and words}
    return [each for each, words in found.items() if not any(set(words) < set(other) for other in found.values())]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
