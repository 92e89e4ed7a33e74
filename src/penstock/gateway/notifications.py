"""Notifications of buckets over HTTP: believed first, then read whole, then queued, and answered once durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import Notification
from penstock.documents.notifications import PARSERS, BearerTrust, Destination, NotificationMessage
from penstock.errors import InvalidInput, NotFound
from penstock.gateway.config import GatewayConfig
from penstock.gateway.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.routing import Route
from penstock.gateway.services import DocumentServices, one, whole_body
from penstock.gateway.tokens import Scope
from penstock.indexing import receive
from penstock.objects import parse_url

__all__ = ["NotificationRoutes"]


class NotificationRoutes:
    """Every shape of notification, by the name of its source."""

    def __init__(self, services: DocumentServices, config: GatewayConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._services, self._config, self._clock = services, config, clock

    def endpoints(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v1/notifications/{source}",
                Scope.WRITE,
                self.notify,
                "Queue the notifications of a bucket.",
                takes=("application/json",),
                query=("index",),
                tag="documents",
            )
        ]

    async def notify(self, exchange: HttpExchange) -> HttpAnswer:
        source = exchange.parameters["source"]
        if source not in PARSERS:
            raise NotFound(f"there is no source {source[:40]!r}", f"there are {', '.join(sorted(PARSERS))}")
        delivery = NotificationMessage(await whole_body(exchange, self._config), exchange.headers, self._clock.now_ms())
        credentials = self._services.credentials
        signed = credentials.signatures(self._services.doors.spec(self._services.url))
        if signed:
            signed.verify(delivery)
        if credentials.tokens:
            BearerTrust(credentials.tokens).check(delivery)
        name = await self._services.collection(exchange, one(exchange, "index", "default"))
        received = receive(source, delivery, Destination(name.tenant, name.index, name.model), credentials.sns())
        if received.reply is not None:
            return HttpAnswer(received.reply)
        self._check_buckets(received.notifications)
        traceparent = delivery.origin.traceparent
        if signed:
            # Notes of deliveries are written by code without a loop.
            await asyncio.to_thread(signed.claim, delivery)
        try:
            await self._services.queue(received.notifications, traceparent, source)
        except BaseException:
            if signed:
                await asyncio.to_thread(signed.release, delivery)
            raise
        queued = [{"bucket": event.bucket, "key": event.key} for event in received.notifications]
        return json_answer({"queued": queued, "ignored": list(received.ignored)}, 202)

    def _check_buckets(self, events: Sequence[Notification]) -> None:
        """Refuse buckets that are not on the list, and the store's own."""
        allowed = self._config.buckets
        own = {parse_url(self._services.url).place, parse_url(self._services.uploads_url).place}
        for event in events:
            bare = event.bucket.partition("://")[2] or event.bucket
            if (allowed and event.bucket not in allowed and bare not in allowed) or bare in own:
                raise InvalidInput(
                    f"the bucket {event.bucket[:80]!r} is not taken", "", "add it to `buckets` of the gateway"
                )
