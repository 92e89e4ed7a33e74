"""The registry lists every document it knows, however many, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from penstock.documents import ObjectState
from penstock.indexing.registry.entries import (
    REGISTRY_DIMENSIONS,
    REGISTRY_METRIC,
    BatcherCount,
    DocumentEntry,
    batcher_row,
    entry_rows,
    list_entries,
)
from penstock.vector import VectorStore

# More than one search returns.
MANY = 10_500


def test_all_documents_are_listed_in_the_order_of_their_keys_and_without_the_count_of_batches() -> None:
    state = ObjectState(at=datetime(2026, 1, 1, tzinfo=UTC))
    entries = [
        DocumentEntry(object_key=f"{number:064x}", bucket="b", key=f"{number:06}", state=state)
        for number in range(MANY)
    ]

    async def written_and_read() -> list[DocumentEntry]:
        async with await VectorStore.open("memory://", "vectors") as store:
            registry = await store.collection("t", "i", "r", dimensions=REGISTRY_DIMENSIONS, metric=REGISTRY_METRIC)
            await registry.upsert(entry_rows(reversed(entries)))
            await registry.upsert(batcher_row(BatcherCount(7, 8)))
            await store.flush()
            return await list_entries(registry)

    assert asyncio.run(written_and_read()) == entries
