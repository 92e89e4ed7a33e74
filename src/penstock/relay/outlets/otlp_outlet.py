"""Requests of segments to an upstream collector, by OTLP over HTTP with protobuf bodies.

A few requests are under way at once. A segment is delivered when the collector has answered every one of its requests:
with a success, or with a refusal for good, which makes the segment a dead letter once all others are sent. Requests
that were taken are not sent again while this process lives; after a crash they are, since OTLP has no identities.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import httpx

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput
from penstock.loops import Offload, Threads
from penstock.observability import SILENT, Observer, names
from penstock.quiver import Delivery
from penstock.relay.config import OtlpOutletConfig
from penstock.relay.outlets.otlp_answer import (
    is_retryable,
    is_success,
    partial_success,
    retry_after_seconds,
    unpacked_answer,
)
from penstock.relay.outlets.otlp_payload import OtlpRequest, requests_of
from penstock.relay.outlets.outlet import Delivered, RetryLater, SendAnswer, Undeliverable

__all__ = ["OtlpOutlet"]

# An answer is a count and a sentence: what is longer is not read.
_ANSWER_BYTES_MAX: Final = 64 * 1024
_REASON_CHARACTERS_MAX: Final = 300
_GZIP_LEVEL: Final = 6
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


@dataclass
class _Progress:
    """How far a segment has come: what was answered for good, and what stands in its way."""

    segment_seq: int
    answered: set[int] = field(default_factory=set)
    refusals: list[str] = field(default_factory=list)
    later: RetryLater | None = None

    def postpone(self, answer: RetryLater) -> None:
        """Of several answers, the one that asks for the longest pause counts."""
        if self.later is None or (answer.after_seconds or 0.0) > (self.later.after_seconds or 0.0):
            self.later = answer


class OtlpOutlet:
    """`url` is the collector's base address, as `http://host:4318`; signals have their usual paths below it."""

    def __init__(
        self,
        url: str,
        config: OtlpOutletConfig | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        offload: Offload | None = None,
        observer: Observer = SILENT,
    ) -> None:
        self._url = url.rstrip("/")
        # Without the user and password that it may have: for errors, which are kept and logged.
        self._shown = _checked_address(self._url)
        self._config = config or OtlpOutletConfig()
        self._clock = clock
        self._observer = observer
        self._threads = None if offload else Threads(1, "penstock-relay", "the relay")
        self._offload: Offload = offload or self._threads  # type: ignore[assignment]
        self._client = httpx.AsyncClient(
            headers={
                "accept-encoding": "gzip",
                **_checked_headers(headers or {}),
                "content-type": "application/x-protobuf",
            },
            timeout=self._config.timeout_seconds,
            limits=httpx.Limits(max_connections=self._config.concurrency),
        )
        self._progress: _Progress | None = None

    async def send(self, delivery: Delivery) -> SendAnswer:
        slots = await delivery.read()
        progress = self._progress
        if progress is None or progress.segment_seq != delivery.segment_seq:
            progress = self._progress = _Progress(delivery.segment_seq)
        requests = requests_of(
            slots, bytes_max=self._config.request_bytes_max, skip_others=self._config.skip_other_slots
        )
        try:
            await self._send_all(requests, progress)
        except InvalidInput as error:
            return Undeliverable(str(error))
        later, progress.later = progress.later, None
        if later is not None:
            return later
        if progress.refusals:
            first = progress.refusals[0]
            return Undeliverable(f"{len(progress.refusals)} of {len(progress.answered)} requests were refused: {first}")
        return Delivered()

    async def settled(self, delivery: Delivery) -> None:
        """A segment that is replayed is sent whole."""
        self._progress = None

    async def close(self) -> None:
        await self._client.aclose()
        if self._threads is not None:
            self._threads.close()

    async def _send_all(self, requests: Iterator[OtlpRequest], progress: _Progress) -> None:
        """The first alone, which finds out whether anybody answers; then so many at once as are configured."""
        first = next(requests, None)
        if first is None:
            return
        await self._send_one(first, progress)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._config.concurrency):
                group.create_task(self._worker(requests, progress))

    async def _worker(self, requests: Iterator[OtlpRequest], progress: _Progress) -> None:
        for request in requests:
            if progress.later is not None:
                return
            await self._send_one(request, progress)

    async def _send_one(self, request: OtlpRequest, progress: _Progress) -> None:
        if request.number in progress.answered:
            return
        try:
            status, headers, body = await self._post(request)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            self._observer.count(names.RELAY_OTLP_REQUESTS, answer="none")
            progress.postpone(RetryLater(f"no answer from {self._shown}: {str(error) or type(error).__name__}"))
            return
        self._judge(request, status, headers, body, progress)

    async def _post(self, request: OtlpRequest) -> tuple[int, httpx.Headers, bytes]:
        content, headers = bytes(request.body), {}
        if self._config.gzip:
            content = await self._offload(gzip.compress, content, _GZIP_LEVEL)
            headers = {"content-encoding": "gzip"}
        post = self._client.build_request("POST", f"{self._url}/v1/{request.signal}", content=content, headers=headers)
        async with asyncio.timeout(self._config.timeout_seconds):
            answer = await self._client.send(post, stream=True)
        try:
            return answer.status_code, answer.headers, await self._answer_body(answer)
        finally:
            await answer.aclose()

    async def _answer_body(self, answer: httpx.Response) -> bytes:
        """As much as comes. The status is the answer: a success with a broken body must not be sent again for ever."""
        body = b""
        with suppress(httpx.HTTPError, TimeoutError, OSError):
            async with asyncio.timeout(self._config.timeout_seconds):
                # As it is on the wire: the client would unpack it without a bound, and in several layers.
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > _ANSWER_BYTES_MAX:
                        break
        return unpacked_answer(body[:_ANSWER_BYTES_MAX], answer.headers.get("content-encoding", ""), _ANSWER_BYTES_MAX)

    def _judge(
        self, request: OtlpRequest, status: int, headers: httpx.Headers, body: bytes, progress: _Progress
    ) -> None:
        if is_retryable(status):
            self._observer.count(names.RELAY_OTLP_REQUESTS, answer="retryable")
            most = self._config.retry_after_seconds_max
            after = retry_after_seconds(headers.get("retry-after"), self._clock.now_ms(), most)
            progress.postpone(RetryLater(f"{self._shown} answered {status}", after))
            return
        progress.answered.add(request.number)
        if is_success(status):
            self._observer.count(names.RELAY_OTLP_REQUESTS, answer="success")
            self._tell_partial(request, body)
            return
        self._observer.count(names.RELAY_OTLP_REQUESTS, answer="permanent")
        text = body.decode("utf-8", "replace").strip()[:_REASON_CHARACTERS_MAX]
        progress.refusals.append(
            f"{self._shown}/v1/{request.signal} answered {status} to request {request.number}: {text}"
        )

    def _tell_partial(self, request: OtlpRequest, body: bytes) -> None:
        """Not to be sent again: the collector has taken the rest."""
        partial = partial_success(body)
        if partial is None:
            return
        self._observer.count(names.RELAY_OTLP_REJECTED, partial.rejected, signal=request.signal)
        self._observer.event(
            names.RELAY_OTLP_PARTIAL,
            signal=request.signal,
            rejected=partial.rejected,
            message=partial.message[:_REASON_CHARACTERS_MAX],
        )


def _checked_address(url: str) -> str:
    """The address without user and password. One that no request could be sent to is refused now, not tried for ever."""
    try:
        address = httpx.URL(url)
        if address.scheme in {"http", "https"} and address.host:
            return str(address.copy_with(userinfo=b"")).rstrip("/")
        why = "it must be of HTTP, and name a host"
    except httpx.InvalidURL as error:
        why = str(error)
    raise InvalidInput(f"{url!r} is not the address of a collector", why, "write http://host:4318")


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            # Not the value: it may be a secret.
            raise InvalidInput(
                f"the header {name!r} cannot be sent", "HTTP takes printable ASCII, and names without spaces"
            )
    return headers
