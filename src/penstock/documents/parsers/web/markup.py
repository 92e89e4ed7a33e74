"""HTML: what a reader of the page would read, without its menus, scripts and footers.

All text of the page is kept but for what its structure shows to be around the content (`boilerplate`); a part that
would take much text with it stays, and a page that would lose most of its text is taken whole. What was left out is
counted, and told as a warning when it was more than the odd line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import code_block, heading_mark
from penstock.documents.parsers.web.boilerplate import (
    INVISIBLE,
    is_around,
    is_content,
    is_menu,
    is_permalink,
    may_be_text,
    names,
)
from penstock.documents.parsers.web.nesting import check_nesting
from penstock.documents.parsers.web.page_titles import under_page_title

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

__all__ = ["parse_html"]

# Where a page declares its encoding, browsers look no further.
_DECLARATION_BYTES: Final = 4096
_BLOCKS: Final = names(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol option p pre section summary table "
    "tbody tfoot thead title tr ul"
)
_SPACED: Final = names("blockquote div dl figure h1 h2 h3 h4 h5 h6 ol p pre section table ul")
_HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_VERBATIM: Final = frozenset(("pre", "textarea", "listing", "xmp"))
_CELLS: Final = frozenset(("td", "th"))
# Tags that mean something to the text; all others are passed over unless their attributes do.
_TELLING: Final = _BLOCKS | _VERBATIM | _CELLS | {"a", "br"}
# Characters outside of links that a menu, a header or a footer has at most; with more it is a text.
_MENU_CHARACTERS_MAX: Final = 600
# A page that would keep less than this part of its text is taken whole: it has no content but its menus.
_KEPT_PART_MIN: Final = 0.2
# Text outside of links that may be left out without a word: a part of all, and so many characters.
_SILENT_PART_MAX: Final = 0.1
_SILENT_CHARACTERS_MAX: Final = 300
_BLANK_LINES: Final = re.compile(r"\n{3,}")


def parse_html(data: bytes, limits: ParserLimits, content_type: str = "") -> ParsedDocument:
    from selectolax.lexbor import LexborHTMLParser

    declared = declared_charset(content_type) or declared_charset(data[:_DECLARATION_BYTES].decode("latin-1"))
    read = decoded(data, declared)
    source = read.text.encode("utf-8", "replace")
    check_nesting(source, limits.depth)
    tree = LexborHTMLParser(source)
    title = tree.css_first("title")
    name = title.text(strip=True) if title else None
    text, warnings = _content(tree.body) if tree.body else ("", ())
    warnings = (*read.warnings, *warnings)
    text = under_page_title(text, name)
    return ParsedDocument(text.encode("utf-8", "replace"), Format.HTML, name or None, warnings, read.encoding)


def _content(body: LexborNode) -> tuple[str, tuple[str, ...]]:
    """The text of a page, and what is to be said about the rest."""
    read = _read(body, whole=False)
    if read.kept < _KEPT_PART_MIN * (read.kept + read.left_out + read.left_out_links):
        read = _read(body, whole=True)
    total = read.kept + read.left_out
    if read.left_out <= max(_SILENT_CHARACTERS_MAX, _SILENT_PART_MAX * total):
        return read.text(), ()
    what = f"{read.left_out} of {total} characters were left out as menus, headers and footers of the page"
    return read.text(), (what,)


@dataclass(slots=True)
class _Part:
    """An element that was entered and not left yet."""

    tag: str
    # What there was when it was entered.
    pieces: int
    linked: int
    unlinked: int
    links: int
    attributes: dict[str, str | None]
    menu: bool
    content: bool


@dataclass(slots=True)
class _Reader:
    """Pieces of text in order, and how many characters that are no blanks went where."""

    whole: bool
    pieces: list[str] = field(default_factory=list)
    # None for one that means nothing to the text.
    parts: list[_Part | None] = field(default_factory=list)
    linked: int = 0
    unlinked: int = 0
    left_out: int = 0
    left_out_links: int = 0
    # Links so far; and how many links, verbatim elements and named contents the reader is in.
    links: int = 0
    in_links: int = 0
    in_verbatim: int = 0
    in_contents: int = 0
    # Line feeds to write before the next word, and the mark of a heading behind them.
    feeds: int = 0
    mark: str = ""

    @property
    def kept(self) -> int:
        return self.linked + self.unlinked

    def text(self) -> str:
        lines = "".join(self.pieces).split("\n")
        text = _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines))
        return text.replace("\0", " ").strip("\n")

    def add(self, text: str) -> None:
        words = text.split()
        size = sum(map(len, words))
        if self.in_links:
            self.linked += size
        else:
            self.unlinked += size
        if self.in_verbatim:
            self._feed()
            # Empty lines of code are no ends of paragraphs: `text` gives the blank back that they hold.
            self.pieces.append(code_block(text).replace("\n \n", "\n\0\n").replace("\n \n", "\n\0\n"))
        elif words:
            self._feed()
            if self.mark:
                self.pieces.append(self.mark)
                self.mark = ""
            space = " " if text[0].isspace() and not self._at_start() else ""
            self.pieces.append(f"{space}{' '.join(words)}{' ' if text[-1].isspace() else ''}")
        elif text and not self._at_start():
            self.pieces.append(" ")

    def enter(self, node: LexborNode, tag: str) -> bool:
        """Whether to go inside."""
        if tag in INVISIBLE:
            return False
        attributes = node.attributes
        content = is_content(tag, attributes)
        menu = not self.whole and (is_menu if self.in_contents else is_around)(tag, attributes)
        if tag not in _TELLING and not content and not menu:
            self.parts.append(None)
            return True
        self._separate(tag)
        if tag in _HEADINGS:
            self.mark = heading_mark(int(tag[1]))
        self.parts.append(
            _Part(tag, len(self.pieces), self.linked, self.unlinked, self.links, attributes, menu, content)
        )
        self._count(tag, content, 1)
        self.links += tag == "a"
        return True

    def leave(self) -> None:
        part = self.parts.pop()
        if part is None:
            return
        self._count(part.tag, part.content, -1)
        if part.tag == "a" and is_permalink("".join(self.pieces[part.pieces :]), part.attributes):
            self._forget(part)
        linked, unlinked = self.linked - part.linked, self.unlinked - part.unlinked
        if part.menu and self._is_menu(part, linked, unlinked):
            self._forget(part)
            self.left_out += unlinked
            self.left_out_links += linked
        if part.tag in _HEADINGS:
            self.mark = ""
        if part.tag in _BLOCKS:
            self._separate(part.tag)

    def _is_menu(self, part: _Part, linked: int, unlinked: int) -> bool:
        """Whether a part that looks like a menu is one, and no text in a strange place."""
        if self.links == part.links and may_be_text(part.tag, part.attributes):
            return False
        return unlinked <= _MENU_CHARACTERS_MAX or unlinked < linked

    def _count(self, tag: str, content: bool, sign: int) -> None:
        self.in_links += sign * (tag == "a")
        self.in_verbatim += sign * (tag in _VERBATIM)
        self.in_contents += sign * content

    def _forget(self, part: _Part) -> None:
        del self.pieces[part.pieces :]
        self.linked, self.unlinked = part.linked, part.unlinked

    def _separate(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.feeds = max(self.feeds, 2 if tag in _SPACED else 1)
        elif tag == "br":
            self.feeds = min(self.feeds + 1, 2)
        elif tag in _CELLS and not self.feeds and self.pieces and not self.pieces[-1].endswith((" | ", "\n")):
            self.pieces[-1] = self.pieces[-1].rstrip(" ")
            self.pieces.append(" | ")

    def _feed(self) -> None:
        if self.feeds and self.pieces:
            if self.pieces[-1] == " | ":
                self.pieces.pop()
            self.pieces.append("\n" * self.feeds)
        self.feeds = 0

    def _at_start(self) -> bool:
        """Whether a blank would be the first of its line, or a second one."""
        return bool(self.feeds) or not self.pieces or self.pieces[-1].endswith((" ", "\n"))


def _read(body: LexborNode, *, whole: bool) -> _Reader:
    """Every text of the body in order, without recursion: pages are deeper than stacks."""
    reader = _Reader(whole)
    # Elements that were entered: asking a node for its parent makes a new one each time.
    entered: list[LexborNode] = []
    node: LexborNode | None = body.first_child
    while node is not None:
        below: LexborNode | None = None
        if node.is_text_node:
            reader.add(node.text_content or "")
        elif node.is_element_node and (tag := node.tag) and reader.enter(node, tag):
            below = node.first_child
            if below is None:
                reader.leave()
            else:
                entered.append(node)
        node = below or node.next
        while node is None and entered:
            reader.leave()
            node = entered.pop().next
    return reader
