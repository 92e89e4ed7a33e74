"""Jupyter notebooks (.ipynb): prose as Markdown, code as code, and what the code printed.

Of an output with several forms the plain text is taken; pictures are no text. What is odd in one cell costs the text of
that cell's part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from penstock.documents.parsers.encodings import decoded
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import code_block
from penstock.documents.parsers.web.markdown import parse_markdown
from penstock.errors import InvalidInput
from penstock.undecodable import UNDECODABLE

__all__ = ["parse_notebook"]

_PLAIN: Final = "text/plain"


def parse_notebook(data: bytes, limits: ParserLimits) -> ParsedDocument:
    read = decoded(data, "")
    title, blocks = None, []
    for cell in _cells(read.text):
        source = _joined(cell.get("source", cell.get("input")))
        if cell.get("cell_type") == "markdown":
            prose = parse_markdown(source.encode("utf-8", "replace"), limits)
            title = title or prose.title
            blocks.append(prose.text.decode())
        else:
            blocks.append(code_block(source.strip("\n")))
            blocks += [code_block(text.strip("\n")) for text in _outputs(cell)]
    text = "\n\n".join(block for block in blocks if block.strip())
    return ParsedDocument(text.encode("utf-8", "replace"), Format.NOTEBOOK, title, read.warnings, read.encoding)


def _cells(text: str) -> list[dict[str, Any]]:
    """The cells of a notebook, or those of the worksheets that notebooks had before version 4."""
    try:
        value = msgspec.json.decode(text, type=dict[str, Any])
        sheets = value.get("worksheets", [value])
        return msgspec.convert([cell for sheet in sheets for cell in sheet["cells"]], list[dict[str, Any]])
    except (*UNDECODABLE, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            "a notebook cannot be read", f"{type(error).__name__}: {error}"[:300], "save it again"
        ) from error


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if not isinstance(output, dict):
            continue
        if output.get("output_type") == "error":
            yield f"{output.get('ename', '')}: {output.get('evalue', '')}"
            continue
        data = output.get("data")
        yield _joined(output.get("text") or (data.get(_PLAIN) if isinstance(data, dict) else None))


def _joined(source: Any) -> str:
    """A text, which may be kept as a list of its lines."""
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""
