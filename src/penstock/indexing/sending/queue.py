"""Puts notifications on the queue of a store, and tells whether there is something to do for a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.buffer import queued_now
from penstock.clock import SYSTEM_CLOCK
from penstock.documents import Notification, encode
from penstock.errors import NotFound
from penstock.indexing.registry.entries import SOURCE, pending_entries, subject_of
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.objects import open_store
from penstock.observability import Observer, names, trace_id
from penstock.vector import VectorReader

__all__ = ["in_trace", "is_waiting", "send"]

# Notifications in one batch of the queue: a folder of any size is sent in bounded steps.
_EVENTS_PER_CALL: Final = 1000


def send(url: str, events: Sequence[Notification], doors: StoreDoors = PLAIN_DOORS) -> None:
    """Return when all are durable. Sent again, they change nothing: each carries its own order."""
    if not events:
        return
    observer, began_ms = doors.observer, SYSTEM_CLOCK.now_ms()
    with observer.span(names.INDEXING_NOTIFY, events=len(events)):
        _send(url, events, doors)
        observer.event(names.INDEXING_NOTIFIED, store=url, events=len(events))
        here = trace_id(observer.traceparent())
    for trace, count in Counter(event.traceparent for event in events).items():
        if trace_id(trace) not in (None, here):
            observer.past_span(names.INDEXING_NOTIFY, began_ms, SYSTEM_CLOCK.now_ms(), parent=trace, events=count)


def in_trace(events: Sequence[Notification], observer: Observer) -> list[Notification]:
    """The events; those that came without a trace are of the one that is under way."""
    here = observer.traceparent()
    if here is None:
        return list(events)
    return [event if event.traceparent else msgspec.structs.replace(event, traceparent=here) for event in events]


def _send(url: str, events: Sequence[Notification], doors: StoreDoors) -> None:
    with doors.producer(url) as producer:
        starts = range(0, len(events), _EVENTS_PER_CALL)
        handles = [producer.produce(map(encode, events[start : start + _EVENTS_PER_CALL])) for start in starts]
        for handle in handles:
            handle.durable()


async def is_waiting(url: str, doors: StoreDoors = PLAIN_DOORS) -> bool:
    """Whether a job would find something to do: in the queue, or begun by a run that did not come to its end."""
    try:
        async with await doors.reader(url) as reader:
            if await _is_begun(reader):
                return True
            position = await reader.position(SOURCE)
    except NotFound:
        position = None
    return await _count_queued(url, position, doors) > 0


async def _is_begun(reader: VectorReader) -> bool:
    for name in await reader.collections():
        if subject_of(name) is not None:
            registry = await reader.collection(name.tenant, name.index, name.model)
            if await pending_entries(registry):
                return True
    return False


async def _count_queued(url: str, position: int | None, doors: StoreDoors) -> int:
    try:
        store = await open_store(url, read_only=True, **doors.spec(url).options)
    except NotFound:
        return 0
    try:
        return (await queued_now(store, doors.manifest_path)).count_after(position)
    finally:
        await store.close()
