"""The text of a page in the order of reading, and how much of it was left out as menus, headers and footers.

What looks like a menu is decided when it ends: only then is it known how much of it is text and how much links.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.documents.parsers.headings import code_block, heading_mark
from penstock.documents.parsers.web.boilerplate import (
    INVISIBLE,
    is_around,
    is_content,
    is_menu,
    is_note,
    is_pager_link,
    is_permalink,
    leads_away,
    may_be_text,
    names,
)
from penstock.documents.parsers.web.page_head import PageHead

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

__all__ = ["PageReader", "read_page"]

_BLOCKS: Final = names(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol option p pre section summary table "
    "tbody tfoot thead title tr ul"
)
_SPACED: Final = names("blockquote div dl figure h1 h2 h3 h4 h5 h6 ol p pre section table ul")
_HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_VERBATIM: Final = frozenset(("pre", "textarea", "listing", "xmp"))
_CELLS: Final = frozenset(("td", "th"))
# Of a drawing, its labels are read; its title and description repeat what an icon shows.
_DRAWING: Final = "svg"
_LABELS: Final = frozenset(("text", "foreignObject"))
# Tags that mean something to the text; all others are passed over unless their attributes do.
_TELLING: Final = _BLOCKS | _VERBATIM | _CELLS | _LABELS | {"a", "br", _DRAWING}
# Characters outside of links that a menu, a header or a footer has at most; with more it is a text.
_MENU_CHARACTERS_MAX: Final = 600
# The same a link in a line of links that turn pages: `Next:`, `Previous:`.
_PAGER_CHARACTERS_MAX: Final = 10
_BLANK_LINES: Final = re.compile(r"\n{3,}")


@dataclass(slots=True)
class _Part:
    """An element that was entered and not left yet."""

    tag: str
    # What there was when it was entered.
    pieces: int
    linked: int
    unlinked: int
    links: int
    pagers: int
    words: int
    attributes: dict[str, str | None]
    menu: bool
    content: bool


@dataclass(slots=True)
class PageReader:
    """Pieces of text in order, and how many characters that are no blanks went where."""

    whole: bool
    pieces: list[str] = field(default_factory=list)
    # None for one that means nothing to the text.
    parts: list[_Part | None] = field(default_factory=list)
    linked: int = 0
    unlinked: int = 0
    left_out: int = 0
    left_out_links: int = 0
    # Links so far, and those that turn pages; how many links, links to other pages, verbatim elements, named contents,
    # drawings and labels of drawings the reader is in.
    links: int = 0
    pagers: int = 0
    in_links: int = 0
    in_links_away: int = 0
    in_verbatim: int = 0
    in_contents: int = 0
    in_drawings: int = 0
    in_labels: int = 0
    # Line feeds to write before the next word, and the mark of a heading behind them.
    feeds: int = 0
    mark: str = ""
    head: PageHead = field(default_factory=PageHead)

    @property
    def kept(self) -> int:
        return self.linked + self.unlinked

    def text(self) -> str:
        lines = "".join(self.pieces).split("\n")
        text = _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines))
        # A soft hyphen only says where a word may be broken.
        return text.replace("\0", " ").replace("\xad", "").strip("\n")

    def add(self, text: str) -> None:
        if self.in_drawings and not self.in_labels:
            return
        words = text.split()
        size = sum(map(len, words))
        if self.in_links:
            self.linked += size
        else:
            self.unlinked += size
        if not self.head.is_over and not self.in_links_away:
            self.head.add(text, size)
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
        if self.in_drawings and not self.in_labels and tag not in _LABELS:
            self.parts.append(None)
            return True
        attributes = node.attributes
        content = is_content(tag, attributes)
        menu = not self.whole and (is_menu if self.in_contents else is_around)(tag, attributes)
        if tag not in _TELLING and not content and not menu:
            self.parts.append(None)
            return True
        self._separate(tag)
        if tag in _HEADINGS:
            self.mark = heading_mark(int(tag[1]))
        part = _Part(
            tag=tag,
            pieces=len(self.pieces),
            linked=self.linked,
            unlinked=self.unlinked,
            links=self.links,
            pagers=self.pagers,
            words=self.head.words,
            attributes=attributes,
            menu=menu,
            content=content,
        )
        self.parts.append(part)
        self._count(part, 1)
        if tag == "a":
            self.links += 1
            self.pagers += is_pager_link(attributes)
        return True

    def leave(self) -> None:
        part = self.parts.pop()
        if part is None:
            return
        self._count(part, -1)
        if part.tag == "a" and is_permalink("".join(self.pieces[part.pieces :]), part.attributes):
            self._forget(part)
        linked, unlinked = self.linked - part.linked, self.unlinked - part.unlinked
        if (part.menu and self._is_menu(part, linked, unlinked)) or self._turns_pages(part, unlinked):
            self._forget(part)
            self.left_out += unlinked
            self.left_out_links += linked
        elif not self.head.is_over and not self.whole and part.tag in _BLOCKS:
            self._follow_head(part, linked)
        if part.tag in _HEADINGS:
            self.mark = ""
        if part.tag in _BLOCKS or part.tag in _LABELS:
            self._separate(part.tag)

    def _is_menu(self, part: _Part, linked: int, unlinked: int) -> bool:
        """Whether a part that looks like a menu is one, and no text in a strange place."""
        if is_note(part.attributes):
            return False
        if may_be_text(part.tag, part.attributes) and (self.links == part.links or _is_remark(part, linked, unlinked)):
            return False
        return unlinked <= _MENU_CHARACTERS_MAX or unlinked < linked

    def _turns_pages(self, part: _Part, unlinked: int) -> bool:
        """Whether a part has nothing but links to the pages around this one."""
        pagers, links = self.pagers - part.pagers, self.links - part.links
        if not pagers or self.whole or part.tag not in _BLOCKS:
            return False
        return 2 * pagers >= links and unlinked <= _PAGER_CHARACTERS_MAX * links

    def _follow_head(self, part: _Part, linked: int) -> None:
        """What stands above the title, up to the title itself."""
        if self.head.words == part.words and linked and not part.content:
            self.head.add_block(part.pieces, len(self.pieces), linked)
        elif part.tag == "h1" and self.head.words > part.words:
            left_out = self.head.end(self.pieces)
            self.linked -= left_out
            self.left_out_links += left_out

    def _count(self, part: _Part, sign: int) -> None:
        self.in_links += sign * (part.tag == "a")
        self.in_links_away += sign * (part.tag == "a" and leads_away(part.attributes))
        self.in_verbatim += sign * (part.tag in _VERBATIM)
        self.in_contents += sign * part.content
        self.in_drawings += sign * (part.tag == _DRAWING)
        self.in_labels += sign * (part.tag in _LABELS)

    def _forget(self, part: _Part) -> None:
        del self.pieces[part.pieces :]
        self.linked, self.unlinked, self.pagers = part.linked, part.unlinked, part.pagers

    def _separate(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.feeds = max(self.feeds, 2 if tag in _SPACED else 1)
        elif tag in _LABELS and not self._at_start():
            self.pieces.append(" ")
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


def _is_remark(part: _Part, linked: int, unlinked: int) -> bool:
    """Whether an aside has more words than links: links of a menu are all of its words."""
    return part.tag == "aside" and unlinked > linked


def read_page(body: LexborNode, *, whole: bool) -> PageReader:
    """Every text of the body in order, without recursion: pages are deeper than stacks."""
    reader = PageReader(whole)
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
