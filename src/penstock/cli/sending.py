"""Puts notifications on the queue of a store, and tells whether there is something to do for a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.buffer import ConsumerConfig, Manifest, SyncProducer
from penstock.cli.plain import plain
from penstock.documents import Notification, UploadNotification, encode
from penstock.errors import NotFound
from penstock.objects import open_store
from penstock.pipelines.registry import SOURCE, VECTOR_PATH, pending_entries, subject_of
from penstock.vector import VectorReader, VectorStore

__all__ = ["described", "is_waiting", "send"]

# Notifications in one batch of the queue: a folder of any size is sent in bounded steps.
_EVENTS_PER_CALL: Final = 1000


def send(url: str, events: Sequence[Notification]) -> None:
    """Return when all are durable. Sent again, they change nothing: each carries its own order."""
    if not events:
        return
    with SyncProducer(url) as producer:
        starts = range(0, len(events), _EVENTS_PER_CALL)
        handles = [producer.produce(map(encode, events[start : start + _EVENTS_PER_CALL])) for start in starts]
        for handle in handles:
            handle.durable()


async def is_waiting(url: str) -> bool:
    """Whether a job would find something to do: in the queue, or begun by a run that did not come to its end."""
    try:
        async with await VectorStore.open_reader(url, VECTOR_PATH) as reader:
            if await _is_begun(reader):
                return True
            position = await reader.position(SOURCE)
    except NotFound:
        position = None
    return await _count_queued(url, position) > 0


def described(event: Notification) -> str:
    """An event for a person."""
    if isinstance(event, UploadNotification):
        return plain(f"upload {event.bucket}/{event.key} ({event.size_bytes:,} bytes)")
    return plain(f"delete {event.bucket}/{event.key}")


async def _is_begun(reader: VectorReader) -> bool:
    for name in await reader.collections():
        if subject_of(name) is not None:
            registry = await reader.collection(name.tenant, name.index, name.model)
            if await pending_entries(registry):
                return True
    return False


async def _count_queued(url: str, position: int | None) -> int:
    try:
        store = await open_store(url, read_only=True)
    except NotFound:
        return 0
    try:
        return Manifest((await store.get(ConsumerConfig().manifest_path)).data).count_after(position)
    except NotFound:
        return 0
    finally:
        await store.close()
