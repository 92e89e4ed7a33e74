"""What handlers read of a request: a whole body, JSON as a struct, and parameters that may be given once."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from penstock.errors import InvalidInput
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.bodies import decompress, read_body
from penstock.gateway.http.exchange import HttpExchange
from penstock.undecodable import UNDECODABLE

__all__ = ["body_schema", "decoded", "one", "unpacked", "whole_body"]

T = TypeVar("T")


async def whole_body(exchange: HttpExchange, config: GatewayConfig) -> bytes:
    """The body as it was before its compression, within the bounds."""
    body = await read_body(exchange.receive, exchange.announced_bytes, config.body_bytes_max, config.body_seconds_max)
    return await unpacked(exchange, body, config.decompressed_bytes_max)


async def unpacked(exchange: HttpExchange, body: bytes, bytes_max: int) -> bytes:
    """A body without its `Content-Encoding`; what it unpacks to is held for the length of the request."""
    encoding = exchange.headers.get("content-encoding")
    if not encoding:
        return body
    # Little of it may become much: the loop does not wait for that.
    found = await asyncio.to_thread(decompress, body, encoding, bytes_max)
    exchange.hold(len(found))
    return found


def decoded(body: bytes, kind: type[T]) -> T:
    """A body of JSON as a struct, or `InvalidInput` that names the member."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise InvalidInput(
            "the body cannot be read", str(error)[:300], "send JSON as /openapi.json describes it"
        ) from error


def body_schema(kind: type[Any]) -> dict[str, Any]:
    """The JSON schema of a struct without structs inside."""
    found: dict[str, Any] = msgspec.json.schema(kind)["$defs"][kind.__name__]
    return found


def one(exchange: HttpExchange, name: str, default: str) -> str:
    """A parameter of the URL that may be given once."""
    values = exchange.query().get(name, [default])
    if len(values) > 1:
        raise InvalidInput(f"the parameter {name} is given {len(values)} times", "", "give it once")
    return values[0]
