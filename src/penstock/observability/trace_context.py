"""The W3C header `traceparent`, which carries a trace from whoever sends an event to whoever works on it. Pure.

A header that cannot be read is left out, never refused: a sender's tracing must not stop its documents.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["checked_traceparent", "trace_id"]

# version - trace id - span id - flags; a later version may have more behind it.
_FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,200})?"
)


def checked_traceparent(header: object) -> str | None:
    """The header, if it is one."""
    text = header.strip().lower() if isinstance(header, str) else ""
    return text if _FORM.fullmatch(text) else None


def trace_id(traceparent: str | None) -> str | None:
    """The 32 hexadecimal digits that every span of a trace shares."""
    found = _FORM.fullmatch(traceparent) if traceparent else None
    return found[1] if found else None
