"""What the document routes stand on: opened by whoever runs the gateway, shared by all requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from penstock.buffer import RestartingProducer
from penstock.documents import Notification, encode
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import NotFound
from penstock.gateway.access.naming import check_index
from penstock.gateway.http.exchange import HttpExchange
from penstock.indexing import Provider, StoreDoors, in_trace, target_in
from penstock.objects import ObjectStore
from penstock.observability import names
from penstock.vector import CollectionName, VectorReader

__all__ = ["DocumentServices", "KeptReader"]


class KeptReader:
    """The index, opened on first use: before a job has run there is none."""

    def __init__(self, open: Callable[[], Awaitable[VectorReader]]) -> None:
        self._open, self._opening = open, asyncio.Lock()
        self._reader: VectorReader | None = None

    async def reader(self) -> VectorReader:
        """`NotFound` as long as nothing was indexed."""
        async with self._opening:
            if self._reader is None:
                self._reader = await self._open()
            return self._reader

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()


@dataclass(frozen=True)
class DocumentServices:
    """The index, the queue, and the store of uploads."""

    # URL of the store with queue and index, for errors and for notes of deliveries.
    url: str
    index: KeptReader
    producer: RestartingProducer
    # Where the queue is.
    producer_store: ObjectStore
    doors: StoreDoors
    # Where uploads are kept: never inside the store itself, which no job may read as a bucket.
    uploads_url: str
    uploads: ObjectStore
    provider: Provider = field(default_factory=Provider)

    async def collection(self, exchange: HttpExchange, index: str) -> CollectionName:
        """The collection that answers for an index of the tenant, also before anything was indexed."""
        tenant = exchange.principal.tenant
        try:
            return (await target_in(await self.index.reader(), tenant, check_index(index), None)).name
        except NotFound:
            return CollectionName(tenant, check_index(index), EMBEDDED_MODEL)

    async def queue(self, events: Sequence[Notification], traceparent: str | None = None, source: str = "http") -> None:
        """Return once the events are durable in the queue."""
        if not events:
            return
        observer = self.doors.observer
        parent = traceparent or events[0].traceparent
        with observer.span(names.INDEXING_RECEIVE, parent=parent, source=source):
            handle = await self.producer.produce([encode(event) for event in in_trace(events, observer)])
            await handle.durable()
