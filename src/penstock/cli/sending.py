"""Puts notifications on the queue of a store, and tells how many batches of it nobody has taken yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.buffer import ConsumerConfig, Manifest, SyncProducer
from penstock.documents import Notification, UploadNotification, encode
from penstock.errors import NotFound
from penstock.objects import open_store
from penstock.pipelines.registry import SOURCE, VECTOR_PATH
from penstock.vector import VectorStore

__all__ = ["count_waiting", "described", "send"]

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


async def count_waiting(url: str) -> int:
    """Batches of the queue that are not in the index yet."""
    try:
        store = await open_store(url, read_only=True)
    except NotFound:
        return 0
    try:
        manifest = Manifest((await store.get(ConsumerConfig().manifest_path)).data)
    except NotFound:
        return 0
    finally:
        await store.close()
    return manifest.count_after(await _position(url))


def described(event: Notification) -> str:
    """An event for a person."""
    if isinstance(event, UploadNotification):
        return f"upload {event.bucket}/{event.key} ({event.size_bytes:,} bytes)"
    return f"delete {event.bucket}/{event.key}"


async def _position(url: str) -> int | None:
    try:
        async with await VectorStore.open_reader(url, VECTOR_PATH) as reader:
            return await reader.position(SOURCE)
    except NotFound:
        return None
