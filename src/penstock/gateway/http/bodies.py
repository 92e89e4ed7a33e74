"""Request bodies within bounds: refused by their announced length before a byte is read, cut off when they grow past
it, and decompressed no further than allowed, however little was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from penstock.errors import AtCapacity, InvalidInput
from penstock.telemetry import decompressed

__all__ = ["BodyTooLarge", "BodyTooSlow", "Disconnected", "Receive", "decompress", "read_body"]

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyTooLarge(InvalidInput):
    """The body, as sent or decompressed, has more bytes than the gateway takes."""

    usual_remedy = "send it in several requests, or raise the limit in the gateway's configuration"


class BodyTooSlow(InvalidInput):
    """The body did not arrive in time."""

    usual_remedy = "send it faster, or raise body_seconds_max"


class Disconnected(InvalidInput):
    """The client went away before its request was complete: nothing was done."""


async def read_body(receive: Receive, announced: int | None, bytes_max: int, seconds_max: float) -> bytes:
    """The whole body, which has at most `bytes_max` bytes and arrives within `seconds_max`."""
    if announced is not None and announced > bytes_max:
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds_max):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected("the client went away", "its request was not complete")
                part = message.get("body", b"")
                size += len(part)
                if size > bytes_max:
                    raise _too_large(bytes_max)
                if part:
                    parts.append(part)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise BodyTooSlow("the body came too slowly", f"it was not complete after {seconds_max:g} s") from None
    if announced is not None and size != announced:
        raise InvalidInput("the body is incomplete", f"{announced} bytes were announced, {size} arrived")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decompress(body: bytes, encoding: str | None, bytes_max: int) -> bytes:
    """The body as it was before its `Content-Encoding`: gzip, deflate, zstd or none."""
    try:
        return decompressed(body, encoding or "", bytes_max)
    except AtCapacity:
        raise _too_large(bytes_max) from None


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge("the body is too large", f"the limit is {bytes_max:,} bytes")
