"""Plain text and Markdown.

Text in UTF-8 passes as it is, a few bad bytes included: the chunker replaces and counts those. Every other encoding is
turned into UTF-8. Markdown loses its markup and keeps its words, headings, code and tables.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.headings import code_block, heading

__all__ = ["parse_markdown", "parse_text"]

_BLOCKS: Final = frozenset({"paragraph", "block_text", "table_cell"})


def parse_text(data: bytes, content_type: str = "") -> ParsedDocument:
    read = decoded(data, declared_charset(content_type))
    if read.encoding == "utf-8":
        return ParsedDocument(data.removeprefix(b"\xef\xbb\xbf"), Format.TEXT, encoding=read.encoding)
    return ParsedDocument(read.text.encode("utf-8", "replace"), Format.TEXT, None, read.warnings, read.encoding)


def parse_markdown(data: bytes, content_type: str = "") -> ParsedDocument:
    import mistune

    read = decoded(data, declared_charset(content_type))
    tree: Any = mistune.create_markdown(renderer="ast", plugins=["table", "strikethrough"])(read.text)
    title = next((_words(node) for node in tree if node["type"] == "heading"), None)
    text = "\n\n".join(block for node in tree if (block := _block(node)))
    return ParsedDocument(text.encode("utf-8", "replace"), Format.MARKDOWN, title, read.warnings, read.encoding)


def _block(node: dict[str, Any]) -> str:
    """The text of one block and of those inside it."""
    kind = node["type"]
    if kind == "block_code":
        return code_block(str(node["raw"]).strip("\n"))
    if kind == "heading":
        return heading(_words(node), node["attrs"]["level"])
    if kind in _BLOCKS:
        return _words(node)
    if kind in ("table_head", "table_row"):
        return " | ".join(_words(cell) for cell in node["children"])
    children = [block for child in node.get("children", ()) if (block := _block(child))]
    if kind == "list_item":
        return "- " + "\n".join(children)
    return ("\n" if kind in ("list", "table", "table_body") else "\n\n").join(children)


def _words(node: dict[str, Any]) -> str:
    """The words of a line, in order; a line break inside it stays one."""
    if node["type"] in ("softbreak", "linebreak"):
        return "\n"
    if node["type"] in ("inline_html", "block_html"):
        return ""
    if "raw" in node:
        return str(node["raw"])
    return "".join(_words(child) for child in node.get("children", ()))
