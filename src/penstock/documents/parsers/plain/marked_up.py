"""reStructuredText, AsciiDoc, Org and LaTeX: the text as it stands, with its headings as headings.

Markup inside of paragraphs is mostly words, and is left alone. Every language is read line by line, in one pass.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.headings import heading, verbatim

__all__ = ["MARKED_UP_SUFFIXES", "parse_marked_up"]

# What underlines a title in reStructuredText: one sign, over the whole line.
_RULE_SIGNS: Final = frozenset("=-~^\"'`#*+.:_<>")
# A longer line is a paragraph.
_TITLE_CHARACTERS_MAX: Final = 300
_WIDE: Final = ("W", "F")
_ASCIIDOC: Final = re.compile(r"(={1,6})[ \t]+(\S.*)$")
# A title may be closed as it was opened.
_CLOSED: Final = (" ", "\t")
# Blocks whose lines are no headings: listings, literals, passages through, comments.
_ASCIIDOC_FENCE: Final = re.compile(r"(-{4,}|\.{4,}|\+{4,}|/{4,}|`{3,})$")
_ORG: Final = re.compile(r"(\*+)[ \t]+(\S.*)$")
_ORG_TITLE: Final = re.compile(r"#\+title:[ \t]*(\S.*)$", re.IGNORECASE)
_ORG_BLOCK: Final = re.compile(r"[ \t]*#\+(begin|end)_", re.IGNORECASE)
_LATEX: Final = re.compile(r"[ \t]*\\(title|part|chapter|(?:sub){0,2}section|paragraph)\*?(?:\[[^\]\n]*\])?\{(.*)\}")
_LATEX_LEVELS: Final = {"title": 1, "part": 1, "chapter": 1, "section": 1, "subsection": 2, "subsubsection": 3}
_LATEX_COMMAND: Final = re.compile(r"\\[a-zA-Z]+\*?[ \t]*|[{}]")
_HEADING: Final = re.compile(r"^#{1,6} (\S.*)$", re.MULTILINE)


def parse_marked_up(data: bytes, name: str, content_type: str = "") -> ParsedDocument:
    read = decoded(data, declared_charset(content_type))
    lines = read.text.replace("\r\n", "\n").split("\n")
    text = "\n".join(_READERS[name.rpartition(".")[2].lower()](lines))
    first = _HEADING.search(text)
    title = first.group(1) if first else None
    return ParsedDocument(text.encode("utf-8", "replace"), Format.MARKED_UP, title, read.warnings, read.encoding)


def _restructured(lines: list[str]) -> Iterator[str]:
    """Titles are underlined, and may have a line above; which sign is which level, the order of their first use says."""
    levels: dict[tuple[str, bool], int] = {}
    number = 0
    while number < len(lines):
        over = _sign(lines[number])
        title = number + 1 if over else number
        under = _sign(lines[title + 1]) if title + 1 < len(lines) else ""
        if under and over in ("", under) and _is_title(lines, title, indented=bool(over)):
            yield heading(lines[title], levels.setdefault((under, bool(over)), len(levels) + 1))
            number = title + 2
        else:
            yield verbatim(lines[number])
            number += 1


def _sign(line: str) -> str:
    """The sign that a line consists of; nothing where there are others."""
    bare = line.rstrip()
    return bare[0] if bare and bare[0] in _RULE_SIGNS and bare == bare[0] * len(bare) else ""


def _is_title(lines: list[str], place: int, *, indented: bool) -> bool:
    """Whether a line is as wide as what underlines it, and no part of a paragraph."""
    title, under = lines[place].rstrip(), lines[place + 1].rstrip()
    if not title or len(title) > _TITLE_CHARACTERS_MAX or _sign(title) or (title[0].isspace() and not indented):
        return False
    before = place - 2 if indented else place - 1
    width = sum(2 if unicodedata.east_asian_width(letter) in _WIDE else 1 for letter in title.strip())
    return width <= len(under) and (before < 0 or not lines[before].strip() or bool(_sign(lines[before])))


def _asciidoc(lines: list[str]) -> Iterator[str]:
    fence = ""
    for line in lines:
        bare = line.rstrip()
        found = _ASCIIDOC.match(bare) if not fence else None
        if _ASCIIDOC_FENCE.match(bare):
            fence = "" if bare == fence else fence or bare
        yield heading(_unclosed(found.group(2)), len(found.group(1))) if found else verbatim(line)


def _unclosed(title: str) -> str:
    bare = title.rstrip("=")
    return bare if bare.endswith(_CLOSED) else title


def _org(lines: list[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        if block := _ORG_BLOCK.match(line):
            inside = block.group(1).lower() == "begin"
        if not inside and (title := _ORG_TITLE.match(line)):
            yield heading(title.group(1), 1)
            continue
        found = _ORG.match(line) if not inside else None
        yield heading(found.group(2), len(found.group(1))) if found else verbatim(line)


def _latex(lines: list[str]) -> Iterator[str]:
    for line in lines:
        found = _LATEX.match(line)
        if not found:
            yield verbatim(line)
            continue
        words, rest = _braced(found.group(2) + line[found.end(2) :])
        yield heading(_LATEX_COMMAND.sub("", words), _LATEX_LEVELS.get(found.group(1), 4))
        if rest.strip():
            yield verbatim(rest)


def _braced(text: str) -> tuple[str, str]:
    """What stands before the brace that closes the one in front of `text`, and what stands behind it."""
    depth = 1
    for place, letter in enumerate(text):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if not depth:
            return text[:place], text[place + 1 :]
    return text, ""


_READERS: Final[dict[str, Callable[[list[str]], Iterator[str]]]] = {
    "rst": _restructured,
    "rest": _restructured,
    "adoc": _asciidoc,
    "asciidoc": _asciidoc,
    "org": _org,
    "tex": _latex,
    "latex": _latex,
}
MARKED_UP_SUFFIXES: Final = frozenset(_READERS)
