"""What a collector's answer means, as OTLP/HTTP defines it. Pure.

Retryable are 429, 502, 503 and 504, and nothing else; `Retry-After` says when, in seconds or as a date. Every other
status that is no success is permanent. A success may be partial: the collector has refused some items for good.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = [
    "PartialSuccess",
    "is_retryable",
    "is_success",
    "partial_success",
    "retry_after_seconds",
    "unpacked_answer",
]

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
# Zlib's way to say: gzip, with the largest window.
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class PartialSuccess:
    """Items that the collector refused, and why. Without refusals the message is a warning."""

    rejected: int
    message: str


def is_success(status: int) -> bool:
    return 200 <= status < 300


def is_retryable(status: int) -> bool:
    return status in _RETRYABLE


def retry_after_seconds(text: str | None, now_ms: int, most: float) -> float | None:
    """The pause that was asked for, up to `most`; None when there is none, or nobody can read it."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) < 12:
        return min(float(text), most)
    try:
        at = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, at - now_ms / 1000), most)


def unpacked_answer(body: bytes, encoding: str, most: int) -> bytes:
    """The body behind its encoding, up to `most` bytes; as it is where that is not gzip, the only one asked for."""
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        return body
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(body, most)
    except zlib.error:
        return b""


def partial_success(body: bytes) -> PartialSuccess | None:
    """From an `Export…ServiceResponse`, which is the same for all signals; None when everything was taken.

    A body that is no protobuf says nothing: the status was a success.
    """
    try:
        for number, value in _fields(memoryview(body)):
            if number == 1 and isinstance(value, memoryview):
                found = dict(_fields(value))
                rejected, message = found.get(1, 0), found.get(2, b"")
                if not isinstance(rejected, int) or isinstance(message, int):
                    return None
                # An int64 on the wire; below zero it makes no sense, and counts as none.
                count = rejected if rejected < 1 << 63 else 0
                text = bytes(message).decode("utf-8", "replace")
                return PartialSuccess(count, text) if count or text else None
    except (IndexError, ValueError):
        pass
    return None


def _fields(data: memoryview) -> list[tuple[int, int | memoryview]]:
    found: list[tuple[int, int | memoryview]] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            found.append((key >> 3, value))
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + length > len(data):
            raise ValueError("a field that is cut off")
        found.append((key >> 3, data[at : at + length]))
        at += length
    return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")
