"""HTML: what a reader of the page would read, without its menus, scripts and footers.

`trafilatura` finds the article; where it finds too little of the page (an index, a reference, a form) the page's whole
text is taken instead. Nesting is measured before any parser sees the page, because parsers slow down or break on depth.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.errors import AtCapacity

__all__ = ["parse_html"]

_TAG: Final = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9-]*)[^>]*?(/?)>")
# Elements that end by themselves: a page may open thousands of them and never close one.
_SELF_ENDING: Final = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd tr td th thead tbody tfoot option "
    b"optgroup rp rt colgroup".split()
)
_CHARSET: Final = re.compile(rb"charset\s*=\s*[\"']?\s*([a-zA-Z0-9._-]+)", re.IGNORECASE)
# An article shorter than this part of the page's text has lost something.
_ARTICLE_PART: Final = 0.4
_BLOCKS: Final = (
    "address, article, aside, blockquote, br, dd, details, div, dl, dt, fieldset, figcaption, figure, footer, form, "
    "h1, h2, h3, h4, h5, h6, header, hr, li, main, nav, ol, p, pre, section, table, tr, ul"
)


def parse_html(data: bytes, limits: ParserLimits) -> ParsedDocument:
    import trafilatura
    from selectolax.lexbor import LexborHTMLParser

    check_depth(data, limits.depth)
    source, warnings = _decoded(data)
    tree = LexborHTMLParser(source)
    title = tree.css_first("title")
    name = title.text(strip=True) if title else None
    tree.strip_tags(["script", "style", "noscript", "template", "svg", "iframe"])
    page = _page_text(tree)
    article = trafilatura.extract(source, include_comments=False, include_tables=True) or ""
    text = article if len(article) >= _ARTICLE_PART * len(page) else page
    return ParsedDocument(text.encode("utf-8", "replace"), Format.HTML, name or None, warnings)


def check_depth(data: bytes, depth_max: int) -> None:
    """Refuse a page that is nested too deep, in one pass over its tags."""
    depth = 0
    for closing, name, closed in _TAG.findall(data):
        if closed or name.lower() in _SELF_ENDING:
            continue
        depth = max(0, depth - 1) if closing else depth + 1
        if depth > depth_max:
            raise AtCapacity(
                f"a page of {len(data)} bytes is nested deeper than {depth_max} elements",
                "parsers break on such pages",
                "raise the depth limit if the page is meant to be so",
            )


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    """UTF-8 where it is valid, else what the page says of itself, else Windows-1252, as browsers do."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace"), ()
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError:
        declared = _CHARSET.search(data[:4096])
        charset = declared.group(1).decode("ascii").lower() if declared else "windows-1252"
    try:
        return data.decode(charset), ()
    except (UnicodeDecodeError, LookupError):
        return data.decode("utf-8", "replace"), (f"bytes that are neither UTF-8 nor {charset} were replaced",)


def _page_text(tree: object) -> str:
    """All text of the body, a line a block."""
    body = tree.body  # type: ignore[attr-defined]
    if body is None:
        return ""
    for node in body.css(_BLOCKS):
        node.insert_before("\n")
        node.insert_after("\n")
    lines = (" ".join(line.split()) for line in body.text(deep=True).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
