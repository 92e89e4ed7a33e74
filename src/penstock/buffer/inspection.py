"""Looking at a queue from outside: nothing here takes the fence, moves a cursor or writes anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from penstock.buffer.consuming.fetch import UNREADABLE, ConsumedBatch, FetchHandle
from penstock.buffer.format.manifest import Descriptor, Manifest
from penstock.errors import AtCapacity, Corrupt, NotFound, PenstockError, Unsupported
from penstock.objects import ObjectStore, StoreSpec

__all__ = ["QueuedReading", "queued_now", "read_batches", "read_manifest"]

# Objects read at once: enough to hide latency, few enough to hold in memory.
_READS_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class QueuedReading:
    """One queued batch, or why it cannot be read."""

    descriptor: Descriptor
    batch: ConsumedBatch | None = None
    error: PenstockError | None = None


async def queued_now(store: ObjectStore, path: str) -> Manifest:
    """The current queue, empty if it was never written to. Only the parts that are read are checked."""
    try:
        return Manifest((await store.get(path)).data)
    except NotFound:
        return Manifest.empty()


async def read_manifest(store: ObjectStore, path: str) -> Manifest:
    """The queue as it is now; `NotFound` when it was never written to. Every byte is checked."""
    try:
        return Manifest.decode((await store.get(path)).data)
    except NotFound as error:
        raise NotFound(
            f"no queue at {path!r} in {store.url}", "it has no manifest", "check the URL and the path"
        ) from error
    except (Corrupt, Unsupported) as error:
        what = f"the queue at {path!r} in {store.url} cannot be read"
        raise type(error)(what, str(error), "check that the path is a manifest's; it was left as it is") from error


async def read_batches(store: ObjectStore, descriptors: list[Descriptor]) -> AsyncIterator[QueuedReading]:
    """Fetch and decode the batches of these descriptors, in order, a few ahead. One that fails stops no other."""
    handle = FetchHandle(store, StoreSpec(store.url))
    for first in range(0, len(descriptors), _READS_AT_ONCE):
        several = descriptors[first : first + _READS_AT_ONCE]
        for reading in await asyncio.gather(*(_read(handle, descriptor) for descriptor in several)):
            yield reading


async def _read(handle: FetchHandle, descriptor: Descriptor) -> QueuedReading:
    try:
        return QueuedReading(descriptor, await handle.fetch(descriptor))
    except (*UNREADABLE, AtCapacity) as error:
        return QueuedReading(descriptor, error=error)
