"""One request as the gateway sees it, and the answers it gives: a thin layer over ASGI for the hot routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from penstock.errors import InvalidInput
from penstock.gateway.access.held_bytes import ByteLease
from penstock.gateway.access.tokens import Principal
from penstock.gateway.http.bodies import Receive

__all__ = ["AsgiScope", "HttpAnswer", "HttpExchange", "Message", "Send", "json_answer"]

AsgiScope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_LENGTH_DIGITS_MAX: Final = 15
# Headers that say who asks whom for what, and where a body ends.
_ONCE: Final = frozenset(
    {"authorization", "content-encoding", "content-length", "content-type", "host", "origin", "transfer-encoding"}
)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole response."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send) -> None:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        headers.append((b"content-length", b"%d" % len(self.body)))
        if self.body or self.content_type != "application/json":
            headers.append((b"content-type", self.content_type.encode("latin-1")))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(msgspec.json.encode(value), status, headers=headers or {})


@dataclass(slots=True)
class HttpExchange:
    """A request. Its body is read once, by whoever handles it, within the bounds of its route."""

    scope: AsgiScope
    receive: Receive
    # Set by the guard before a handler sees the request.
    principal: Principal = field(default_factory=lambda: Principal("", frozenset()))
    # What the pattern of the route found in the path.
    parameters: dict[str, str] = field(default_factory=dict)
    # Bytes of the body that came so far.
    received_bytes: int = 0
    # What it holds of the bytes of all requests; a request that was not admitted holds nothing.
    lease: ByteLease | None = None
    _headers: dict[str, str] | None = None
    _announced: int | None = None

    def count_body(self, lease: ByteLease, arrived: Callable[[int], None]) -> None:
        """From now on, hold what comes of the body; `arrived` hears of each part of it, and may refuse it."""
        receive = self.receive
        self.lease = lease

        async def counting() -> Message:
            message = await receive()
            size = len(message.get("body", b""))
            lease.take(size)
            self.received_bytes += size
            arrived(size)
            return message

        self.receive = counting

    def hold(self, count: int) -> None:
        """Hold more bytes than came, such as those of a body that was unpacked."""
        if self.lease is not None:
            self.lease.take(count)

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def headers(self) -> dict[str, str]:
        """By name in lower case. One that was sent twice is a list; where that could mean two things it is refused."""
        if self._headers is None:
            found: dict[str, str] = {}
            for raw_name, raw_value in self.scope["headers"]:
                name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
                if name in found and name in _ONCE:
                    # A proxy before us may have believed the other one.
                    raise InvalidInput(f"the header {name} was sent twice", "", "send it once")
                between = "; " if name == "cookie" else ", "
                found[name] = f"{found[name]}{between}{value}" if name in found else value
            self._headers = found
        return self._headers

    @property
    def client(self) -> str:
        """The address of whoever connected."""
        found = self.scope.get("client")
        return str(found[0]) if found else ""

    @property
    def announced_bytes(self) -> int | None:
        """The length that the client announced, if it did."""
        text = self.headers.get("content-length")
        if text is None or self._announced is not None:
            return self._announced
        if not (text.isascii() and text.isdigit() and len(text) <= _LENGTH_DIGITS_MAX):
            raise InvalidInput(f"Content-Length {text[:40]!r} is not a number")
        self._announced = int(text)
        return self._announced

    @property
    def content_type(self) -> str:
        """Without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def query(self) -> dict[str, list[str]]:
        """The parameters of the URL, each with all of its values."""
        return form_of(self.scope.get("query_string", b""))


def form_of(data: bytes) -> dict[str, list[str]]:
    """A query string or a form, as names and their values."""
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=1_000, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidInput("the parameters cannot be read", str(error)) from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found
