"""Rich text (RTF): its words, without formats and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.errors import AtCapacity, InvalidInput

__all__ = ["parse_rtf"]

# Pictures and embedded objects as hexadecimal digits are most of a file, and no text.
_PICTURE: Final = re.compile(rb"\s[0-9a-fA-F\r\n]{512,}")
_GROUPS_MAX: Final = 2_000
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_TITLE: Final = re.compile(rb"\{\\title ([^{}\\]{1,500})\}")


def parse_rtf(data: bytes) -> ParsedDocument:
    from striprtf import striprtf

    # It comes without types.
    rtf_to_text: Callable[..., str] = striprtf.rtf_to_text

    slim = _PICTURE.sub(b" ", data)
    _check_groups(slim)
    try:
        text = rtf_to_text(slim.decode("latin-1"), errors="replace")
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise InvalidInput("a rich text document cannot be read", str(error), "save it again") from error
    text = _BLANK_LINES.sub("\n\n", text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
    found = _TITLE.search(slim)
    title = found.group(1).decode("latin-1").strip() if found else None
    return ParsedDocument(text.encode("utf-8", "replace"), Format.RTF, title or None)


def _check_groups(data: bytes) -> None:
    depth = 0
    for sign in re.finditer(rb"(?<!\\)[{}]", data):
        depth += 1 if sign.group() == b"{" else -1
        if depth > _GROUPS_MAX:
            raise AtCapacity(
                f"a rich text document is nested deeper than {_GROUPS_MAX} groups", "real documents have fewer"
            )
