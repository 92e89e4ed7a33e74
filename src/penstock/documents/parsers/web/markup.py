"""HTML: what a reader of the page would read, without its menus, scripts and footers.

All text of the page is kept but for what its structure shows to be around the content (`boilerplate`); a part that
would take much text with it stays, and a page that would lose most of its text is taken whole. What was left out is
counted, and told as a warning when it was more than the odd line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.web.nesting import check_nesting
from penstock.documents.parsers.web.page_text import read_page
from penstock.documents.parsers.web.page_titles import under_page_title
from penstock.documents.parsers.web.shadow_roots import open_shadow_roots

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

__all__ = ["fragment_text", "parse_html"]

# Where a page declares its encoding, browsers look no further.
_DECLARATION_BYTES: Final = 4096
# A page that would keep less than this part of its text is taken whole: it has no content but its menus.
_KEPT_PART_MIN: Final = 0.2
# Text outside of links that may be left out without a word: a part of all, and so many characters.
_SILENT_PART_MAX: Final = 0.1
_SILENT_CHARACTERS_MAX: Final = 300


def parse_html(data: bytes, limits: ParserLimits, content_type: str = "") -> ParsedDocument:
    from selectolax.lexbor import LexborHTMLParser

    declared = declared_charset(content_type) or declared_charset(data[:_DECLARATION_BYTES].decode("latin-1"))
    read = decoded(data, declared)
    source = read.text.encode("utf-8", "replace")
    check_nesting(source, limits.depth)
    tree = LexborHTMLParser(open_shadow_roots(source))
    # Drawings have titles too.
    title = tree.css_first("head > title, body > title")
    name = title.text(strip=True) if title else None
    text, warnings = _content(tree.body) if tree.body else ("", ())
    warnings = (*read.warnings, *warnings)
    text = under_page_title(text, name)
    return ParsedDocument(text.encode("utf-8", "replace"), Format.HTML, name or None, warnings, read.encoding)


def fragment_text(source: str, limits: ParserLimits) -> str:
    """All text of some HTML that is no page, as it stands in other text."""
    from selectolax.lexbor import LexborHTMLParser

    data = source.encode("utf-8", "replace")
    check_nesting(data, limits.depth)
    body = LexborHTMLParser(data).body
    return read_page(body, whole=True).text() if body else ""


def _content(body: LexborNode) -> tuple[str, tuple[str, ...]]:
    """The text of a page, and what is to be said about the rest."""
    read = read_page(body, whole=False)
    if read.kept < _KEPT_PART_MIN * (read.kept + read.left_out + read.left_out_links):
        read = read_page(body, whole=True)
    total = read.kept + read.left_out
    if read.left_out <= max(_SILENT_CHARACTERS_MAX, _SILENT_PART_MAX * total):
        return read.text(), ()
    what = f"{read.left_out} of {total} characters were left out as menus, headers and footers of the page"
    return read.text(), (what,)
