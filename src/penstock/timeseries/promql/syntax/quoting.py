"""String literals: single or double quotes with escapes, back quotes without."""

from __future__ import annotations

import re

__all__ = ["unquote"]

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_SIMPLE = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
}
_BYTE_MAX = 255


def unquote(literal: str) -> str:
    """The text of a literal with its quotes. Escapes may spell bytes, which together must be UTF-8."""
    quote, body = literal[0], literal[1:-1]
    if quote == "`":
        return body
    if "\\" not in body:
        return body
    text = _ESCAPE.sub(lambda match: _escaped(match.group(1), quote.encode()), body.encode("utf-8", "surrogatepass"))
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ValueError("the escapes of this string are not UTF-8") from None


def _escaped(escape: bytes, quote: bytes) -> bytes:
    kind = escape[:1]
    if len(escape) == 1:
        other_quote = escape in (b"'", b'"') and escape != quote
        if escape not in _SIMPLE or other_quote:
            raise ValueError(f"unknown escape sequence \\{escape.decode(errors='replace')}")
        return _SIMPLE[escape]
    if kind == b"x":
        return bytes([int(escape[1:], 16)])
    if kind in (b"u", b"U"):
        try:
            return chr(int(escape[1:], 16)).encode()
        except (ValueError, OverflowError):
            raise ValueError("escape sequence is no Unicode code point") from None
    value = int(escape, 8)
    if value > _BYTE_MAX:
        raise ValueError("octal escape sequence above 255")
    return bytes([value])
