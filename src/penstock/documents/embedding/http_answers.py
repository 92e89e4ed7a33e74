"""One request to a model's endpoint, and what its status means: 429, 408 and 5xx "later", 400, 413 and 422 "refused".

An endpoint is not trusted: its answer has one deadline from the request to its last byte, and a size; it is unpacked
only from gzip, and read as UTF-8 whatever it says of itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.clock import Clock
from penstock.documents.embedding.provider import Later, Refused
from penstock.documents.embedding.redaction import redacted
from penstock.errors import Corrupt, InvalidInput, NotFound, PermissionDenied

if TYPE_CHECKING:
    import httpx

__all__ = ["EndpointAnswer", "answer_of_status", "check_address", "client_for", "posted"]

_LATER: Final = frozenset({408, 409, 425, 429})
_REFUSED: Final = frozenset({400, 413, 422})
_REASON_CHARACTERS_MAX: Final = 300
# Of an answer that is no success: what is told of it is much less.
_FAULT_BYTES_MAX: Final = 1 << 16
# One packed in another way is not read: some ways make gigabytes of a few bytes in one step.
_ENCODINGS: Final = frozenset({"", "identity", "gzip"})
_OK: Final = 200
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class EndpointAnswer(NamedTuple):
    """An answer that came whole, or as much of a fault as is looked at."""

    status: int
    headers: httpx.Headers
    content: bytes


def check_address(what: str, url: str, headers: Mapping[str, str] = _NOTHING) -> None:
    """`InvalidInput` beginning with `what` for an address, or a key in `headers`, that no request can be sent with."""
    # Imported by whoever asks an endpoint: with it come a command line, colours and TLS, as much as a whole search.
    import httpx

    try:
        host = httpx.Request("POST", url, headers=headers).url.host
        why = "" if host else "it names no host"
    except UnicodeEncodeError:
        # Its text quotes the header, and so perhaps the key.
        why = "its key is not ASCII"
    except (httpx.InvalidURL, ValueError) as error:
        why = str(error)
    if why:
        raise InvalidInput(what, why, "check its address and its key")


def client_for(
    what: str, url: str, *, headers: Mapping[str, str], timeout: float, transport: httpx.AsyncBaseTransport | None
) -> httpx.AsyncClient:
    """A client of the endpoint at `url`; `InvalidInput` beginning with `what` where it cannot be asked."""
    import httpx

    check_address(what, url, headers)
    sent = {"accept-encoding": "gzip", **headers}
    return httpx.AsyncClient(base_url=url, headers=sent, timeout=timeout, transport=transport)


async def posted(
    client: httpx.AsyncClient,
    path: str,
    content: bytes,
    *,
    seconds: float,
    bytes_max: int,
    headers: Mapping[str, str] | None = None,
) -> EndpointAnswer | Later:
    """The answer to JSON that is posted; "later" when no whole one comes, `Corrupt` when it is over `bytes_max`."""
    import httpx

    sent = {"content-type": "application/json", **(headers or {})}
    try:
        async with (
            asyncio.timeout(seconds),
            client.stream("POST", path, content=content, headers=sent) as response,
        ):
            is_fault = response.status_code != _OK
            body = await _read(response, _FAULT_BYTES_MAX if is_fault else bytes_max, is_whole=not is_fault)
            return EndpointAnswer(response.status_code, response.headers, body)
    except TimeoutError:
        return Later(f"no whole answer came within {seconds:g} s")
    except httpx.RequestError as error:
        return Later(f"{type(error).__name__}: {redacted(str(error))}"[:_REASON_CHARACTERS_MAX])


async def _read(response: httpx.Response, bytes_max: int, *, is_whole: bool) -> bytes:
    """The body, so many bytes at most; of one that must be whole, no more may come."""
    import httpx

    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise httpx.DecodingError(f"the answer is packed as {encoding[:40]!r}", request=response.request)
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) <= bytes_max:
            continue
        if is_whole:
            raise Corrupt("an answer is too large", f"it has more than {bytes_max} bytes")
        break
    return bytes(body[:bytes_max])


def answer_of_status(
    response: EndpointAnswer, what: str, clock: Clock, *, secret: str | None = None, texts: Sequence[str] = ()
) -> Later | Refused:
    """The answer behind a status other than 200; `what` begins the error of those that no repeat can heal.

    A reason is stored and shown: without the `secret` that was sent, and without what it quotes of `texts`.
    """
    status, said = response.status, response.content.decode("utf-8", "replace")
    told = redacted(said, secrets=[secret], texts=texts)
    reason = f"{status}: {told[:_REASON_CHARACTERS_MAX]}"
    if status in _LATER or status >= 500:
        return Later(reason, _retry_after(response.headers.get("retry-after"), clock))
    if status in _REFUSED:
        return Refused(reason)
    if status in (401, 403):
        raise PermissionDenied(what, reason, "check its key")
    if status == 404:
        raise NotFound(what, reason, "check its address and the model's name")
    raise InvalidInput(what, reason)


def _retry_after(value: str | None, clock: Clock) -> float | None:
    """Seconds, or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    # A date is rare, and what reads one takes longer to load than to run.
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - clock.now_ms() / 1000)
    except (ValueError, TypeError):
        return None
