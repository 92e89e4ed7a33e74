"""Markdown: it loses its markup and keeps its words, headings, code and tables.

HTML between paragraphs is read as in a page, and front matter (`---` or `+++` around the first lines) is a paragraph of
its own: its `title` is that of the document.
"""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import code_block, heading, verbatim
from penstock.documents.parsers.web.markup import fragment_text
from penstock.documents.parsers.web.page_titles import under_page_title

__all__ = ["parse_markdown"]

_BLOCKS: Final = frozenset({"paragraph", "block_text", "table_cell"})
# How front matter ends, by the line that it begins with.
_FENCES: Final = {"---": ("---", "..."), "+++": ("+++",)}
_FRONT_LINES_MAX: Final = 500
# A name and its value, or what goes on below one: an item, an indented line, a comment, the end of a list.
_FRONT_LINE: Final = re.compile(r"[\w\"'.-]+\s*[:=]|[\s#\]}-]|$")
_TITLE: Final = re.compile(r"title\s*[:=]\s*(.+)", re.IGNORECASE)
_HEADING: Final = re.compile(r"^#{1,6} (\S.*)$", re.MULTILINE)


def parse_markdown(data: bytes, limits: ParserLimits, content_type: str = "") -> ParsedDocument:
    import mistune

    read = decoded(data, declared_charset(content_type))
    front, source = _front_matter(read.text)
    tree: Any = mistune.create_markdown(renderer="ast", plugins=["table", "strikethrough"])(source)
    body = "\n\n".join(block for node in tree if (block := _block(node, limits)))
    first = _HEADING.search(body)
    title = _front_title(front) or (first.group(1) if first else None)
    text = under_page_title("\n\n".join(filter(None, (_front_text(front), body))), _front_title(front))
    return ParsedDocument(text.encode("utf-8", "replace"), Format.MARKDOWN, title, read.warnings, read.encoding)


def _front_matter(text: str) -> tuple[list[str], str]:
    """The lines of front matter, and the text behind it."""
    first, _, rest = text.replace("\r\n", "\n").removeprefix("\ufeff").partition("\n")
    ends = _FENCES.get(first.rstrip())
    if ends is None:
        return [], text
    lines = rest.split("\n", _FRONT_LINES_MAX)[:_FRONT_LINES_MAX]
    end = next((number for number, line in enumerate(lines) if line.rstrip() in ends), None)
    if not end or not all(_FRONT_LINE.match(line) for line in lines[:end]) or not lines[0].strip():
        return [], text
    return lines[:end], rest.split("\n", end + 1)[-1] if rest.count("\n") > end else ""


def _front_title(lines: list[str]) -> str | None:
    found = next((match for line in lines if (match := _TITLE.match(line))), None)
    return found.group(1).strip().strip("\"'").strip() or None if found else None


def _front_text(lines: list[str]) -> str:
    return verbatim("\n".join(line for line in lines if line.strip() and not _TITLE.match(line)))


def _block(node: dict[str, Any], limits: ParserLimits) -> str:
    """The text of one block and of those inside it."""
    kind = node["type"]
    if kind == "block_code":
        return code_block(str(node["raw"]).strip("\n"))
    if kind == "block_html":
        return fragment_text(str(node["raw"]), limits)
    if kind == "heading":
        return heading(_words(node), node["attrs"]["level"])
    if kind in _BLOCKS:
        return _words(node)
    if kind in ("table_head", "table_row"):
        return " | ".join(_words(cell) for cell in node["children"])
    children = [block for child in node.get("children", ()) if (block := _block(child, limits))]
    if kind == "list_item":
        return "- " + "\n".join(children)
    return ("\n" if kind in ("list", "table", "table_body") else "\n\n").join(children)


def _words(node: dict[str, Any]) -> str:
    """The words of a line, in order; a line break inside it stays one."""
    if node["type"] in ("softbreak", "linebreak"):
        return "\n"
    if node["type"] == "inline_html":
        return " " if node["raw"].lower().startswith("<br") else ""
    if "raw" in node:
        return str(node["raw"])
    return "".join(_words(child) for child in node.get("children", ()))
