"""Looking at a queue from outside: nothing here takes the fence, moves a cursor or writes anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.buffer.fetch import UNREADABLE, ConsumedBatch, FetchHandle
from penstock.buffer.manifest import Descriptor, Manifest
from penstock.errors import AtCapacity, NotFound, PenstockError
from penstock.objects import ObjectStore, StoreSpec

__all__ = ["BatchCheck", "check_batches", "gaps_of", "read_batches", "read_manifest"]

# Objects read at once: enough to hide latency, few enough to hold in memory.
_READS_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """One queued batch: what it holds, or why it cannot be read."""

    descriptor: Descriptor
    records: int = 0
    record_bytes: int = 0
    error: PenstockError | None = None


async def read_manifest(store: ObjectStore, path: str) -> Manifest:
    """The queue as it is now; `NotFound` when it was never written to. Every byte is checked."""
    try:
        return Manifest.decode((await store.get(path)).data)
    except NotFound as error:
        raise NotFound(
            f"no queue at {path!r} in {store.url}", "it has no manifest", "check the URL and the path"
        ) from error


async def read_batches(store: ObjectStore, descriptors: list[Descriptor]) -> AsyncIterator[ConsumedBatch]:
    """The batches of these descriptors, in order, a few read ahead."""
    handle = FetchHandle(store, StoreSpec(store.url))
    for first in range(0, len(descriptors), _READS_AT_ONCE):
        several = descriptors[first : first + _READS_AT_ONCE]
        for batch in await asyncio.gather(*(handle.fetch(descriptor) for descriptor in several)):
            yield batch


async def check_batches(store: ObjectStore, manifest: Manifest) -> AsyncIterator[BatchCheck]:
    """Fetch and decode every queued batch, in order."""
    handle, descriptors = FetchHandle(store, StoreSpec(store.url)), list(manifest)
    for first in range(0, len(descriptors), _READS_AT_ONCE):
        several = descriptors[first : first + _READS_AT_ONCE]
        for check in await asyncio.gather(*(_check(handle, descriptor) for descriptor in several)):
            yield check


def gaps_of(manifest: Manifest) -> list[tuple[int, int]]:
    """Neighbours in the manifest, and its end, between which sequences are missing."""
    sequences = [*(entry.sequence for entry in manifest), manifest.next_sequence]
    return [(before, after) for before, after in pairwise(sequences) if after != before + 1]


async def _check(handle: FetchHandle, descriptor: Descriptor) -> BatchCheck:
    try:
        batch = await handle.fetch(descriptor)
    except (*UNREADABLE, AtCapacity) as error:
        return BatchCheck(descriptor, error=error)
    return BatchCheck(descriptor, len(batch.records), batch.records.nbytes)
