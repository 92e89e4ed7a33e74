"""Notifications of buckets over HTTP: believed first, then read whole, then queued, and answered once durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import Notification
from penstock.documents.notifications import PARSERS, Destination, HmacTrust, NotificationMessage, Received, SnsTrust
from penstock.errors import InvalidInput, NotFound, PermissionDenied
from penstock.gateway.access.tokens import Forbidden, Scope, Unauthenticated
from penstock.gateway.config import GatewayConfig
from penstock.gateway.documents.senders import NotificationSenders, Sender
from penstock.gateway.documents.services import DocumentServices
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.guard import Guard
from penstock.gateway.http.inputs import one, whole_body
from penstock.gateway.http.routing import Route
from penstock.indexing import bucket_url, is_own_bucket, receive, target_of
from penstock.objects import parse_url

__all__ = ["NotificationRoutes"]


class NotificationRoutes:
    """Every shape of notification, by the name of its source."""

    def __init__(
        self,
        services: DocumentServices,
        config: GatewayConfig,
        guard: Guard,
        senders: NotificationSenders | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._services, self._config, self._guard, self._clock = services, config, guard, clock
        spec = services.doors.spec(services.url)
        self._senders = senders or NotificationSenders(config.notifications, {}, spec, guard.address)

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
                proves_itself=self._senders.proves_itself,
            )
        ]

    async def notify(self, exchange: HttpExchange) -> HttpAnswer:
        source = exchange.parameters["source"]
        if source not in PARSERS:
            raise NotFound(f"there is no source {source[:40]!r}", f"there are {', '.join(sorted(PARSERS))}")
        body, target = await whole_body(exchange, self._config), target_of(source, one(exchange, "index", "default"))
        delivery = NotificationMessage(body, exchange.headers, self._clock.now_ms(), target=target)
        with self._guard.counted_failures(exchange):
            sender = self._senders.sender(exchange, delivery)
        if exchange.principal.tenant:
            return await self._taken(exchange, source, delivery, sender)
        exchange.principal = sender.principal
        with self._guard.admitted(exchange):
            return await self._taken(exchange, source, delivery, sender)

    async def _taken(
        self, exchange: HttpExchange, source: str, delivery: NotificationMessage, sender: Sender
    ) -> HttpAnswer:
        name = await self._services.collection(exchange, one(exchange, "index", "default"))
        destination = Destination(name.tenant, name.index, name.model)
        received = await self._received(exchange, source, delivery, destination, sender.sns)
        if received.reply is not None:
            return HttpAnswer(received.reply)
        self._check_buckets(name.tenant, received.notifications)
        signed = sender.signed
        if signed:
            # Notes of deliveries are written by code without a loop.
            await asyncio.to_thread(_claim, signed, delivery)
        try:
            await self._services.queue(received.notifications, delivery.origin.traceparent, source)
        except BaseException:
            if signed:
                await asyncio.to_thread(signed.release, delivery)
            raise
        queued = [{"bucket": event.bucket, "key": event.key} for event in received.notifications]
        return json_answer({"queued": queued, "ignored": list(received.ignored)}, 202)

    async def _received(
        self,
        exchange: HttpExchange,
        source: str,
        delivery: NotificationMessage,
        destination: Destination,
        sns: SnsTrust | None,
    ) -> Received:
        """What a delivery says. A message of SNS that is not its topic's own is a failure to prove who sent it."""
        with self._guard.counted_failures(exchange):
            try:
                # The certificate of SNS is fetched by code without a loop.
                return await asyncio.to_thread(receive, source, delivery, destination, sns)
            except PermissionDenied as error:
                raise Unauthenticated(error.what, error.why, error.remedy) from error

    def _check_buckets(self, tenant: str, events: Sequence[Notification]) -> None:
        """Refuse buckets that the tenant may not name, and the store's own."""
        allowed = self._config.notifications.buckets.get(tenant, self._config.buckets)
        is_listed = tenant in self._config.notifications.buckets or bool(allowed)
        own = [self._services.doors.spec(url) for url in (self._services.url, self._services.uploads_url)]
        places = [parse_url(spec.url).place for spec in own]
        for event in events:
            bare = event.bucket.partition("://")[2] or event.bucket
            is_own = any(bare == place or bare.startswith(f"{place}/") for place in places)
            is_own = is_own or any(is_own_bucket(spec, parse_url(bucket_url(event.bucket))) for spec in own)
            if is_own or (is_listed and event.bucket not in allowed and bare not in allowed):
                raise InvalidInput(
                    f"the bucket {event.bucket[:80]!r} is not allowed",
                    "",
                    "add it to `buckets` of the gateway, or of its notifications for the tenant",
                )


def _claim(signed: HmacTrust, delivery: NotificationMessage) -> None:
    """Note that a delivery was taken; one that was taken before is refused."""
    try:
        signed.claim(delivery)
    except PermissionDenied as error:
        raise Forbidden(error.what, error.why, error.remedy) from error
