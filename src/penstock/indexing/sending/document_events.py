"""Notifications that a person sends of documents: read it again, or forget it.

Each stands behind everything the index has heard of the object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.documents import DeleteNotification, UploadNotification
from penstock.errors import InvalidInput, NotFound
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.sending.listing import deletion, upload_of
from penstock.indexing.stages.reading import Reading
from penstock.objects import ObjectMeta, ObjectStore
from penstock.vector import CollectionName

__all__ = ["forget_events", "heads_of", "retry_events"]

# Requests to one bucket at once.
_HEADS_AT_ONCE: Final = 16


def retry_events(
    name: CollectionName, entries: Sequence[DocumentEntry], reading: Reading, now_ms: int
) -> tuple[list[UploadNotification], list[DocumentEntry]]:
    """That objects are to be read again as they are now, and the documents whose objects are gone."""
    heads = asyncio.run(heads_of(entries, reading))
    found = [(entry, heads[entry.object_key]) for entry in entries if entry.object_key in heads]
    events = [
        upload_of(name, entry.bucket, head, now_ms, state=entry.state, told=entry.upload, reread=True)
        for entry, head in found
    ]
    return events, [entry for entry in entries if entry.object_key not in heads]


def forget_events(
    name: CollectionName, entries: Sequence[DocumentEntry], now_ms: int
) -> tuple[list[DeleteNotification], list[DocumentEntry]]:
    """That documents are to be forgotten, and those that are out of the index already."""
    events = [
        deletion(name, entry, now_ms, forgotten=entry.upload.etag if entry.upload else None)
        for entry in entries
        if not entry.state.tombstone
    ]
    return events, [entry for entry in entries if entry.state.tombstone]


async def heads_of(entries: Sequence[DocumentEntry], reading: Reading) -> dict[str, ObjectMeta]:
    """The objects of documents as they are now, by objectKey; those that are gone are left out."""
    heads: dict[str, ObjectMeta] = {}
    for bucket in dict.fromkeys(entry.bucket for entry in entries):
        if not bucket:
            raise InvalidInput("a record of the queue cannot be read again", "it is not a notification of a document")
        store = await reading.spec_of(bucket).open()
        try:
            heads |= await _heads_in(store, [entry for entry in entries if entry.bucket == bucket])
        finally:
            await store.close()
    return heads


async def _heads_in(store: ObjectStore, entries: Sequence[DocumentEntry]) -> dict[str, ObjectMeta]:
    gate = asyncio.Semaphore(_HEADS_AT_ONCE)

    async def head(entry: DocumentEntry) -> tuple[str, ObjectMeta] | None:
        async with gate:
            try:
                return entry.object_key, await store.head(entry.key)
            except NotFound:
                return None

    return dict([found for found in await asyncio.gather(*map(head, entries)) if found])
