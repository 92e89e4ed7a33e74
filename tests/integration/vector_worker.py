"""The writing process of the vector store's kill -9 test: numbered changes for ever, a line for each that is durable.

A change follows from its number alone, so whoever knows the last number that is in the store knows what the store
must hold. It is expected to be killed at any moment, in a flush, in a split or in a compaction.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.coordinator import CoordinatorConfig
from penstock.vector import Changes, Collection, VectorConfig, VectorStore

DIMENSIONS = 16
SOURCE = "changes"
IDS = 400
DOCUMENTS = 5
# Small lists, blocks and steps, so that every kind of upkeep is under way at some moment.
CONFIG = VectorConfig(
    list_rows=12,
    upkeep_bytes=40_000,
    coordinator=CoordinatorConfig(flush_interval_seconds=0.02, max_pending_bytes=20_000),
)
COMPACT_EVERY = 60
# It never pauses: upkeep that would wait for that is asked for.
TEND_EVERY = 7


def write(url: str, options: dict[str, Any], journal: Path) -> None:
    """Go on after the last change that is in the store, until killed."""
    asyncio.run(_write(url, options, journal))


async def collection_of(store: VectorStore) -> Collection:
    return await store.collection("tenant", "index", "model", dimensions=DIMENSIONS, metric="l2")


async def _write(url: str, options: dict[str, Any], journal: Path) -> None:
    lines = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    store = await VectorStore.open(url, "vectors", CONFIG, **options)
    collection = await collection_of(store)
    position = store.position(SOURCE)
    number = 0 if position is None else position + 1
    waiting: set[asyncio.Task[None]] = set()

    async def report(handle: Any, number: int) -> None:
        await handle.durable()
        os.write(lines, b"%d\n" % number)

    while True:
        changes = store.changes(SOURCE, number)
        apply(Writer(changes, collection), number)
        task = asyncio.create_task(report(await store.write(changes), number))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        number += 1
        if number % COMPACT_EVERY == 0:
            await store.compact()
        elif number % TEND_EVERY == 0:
            await store.tend()
        if len(waiting) > 6:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


def apply(target: Any, number: int) -> None:
    """Make the change of this number, to the store or to the plain dictionary that the test keeps."""
    random_ = random.Random(number)
    kind = random_.random()
    if kind < 0.55:
        target.upsert(rows(random_, random_.randrange(1, 60), number), None)
    elif kind < 0.7:
        target.delete([f"row-{random_.randrange(IDS)}" for _ in range(random_.randrange(40))])
    else:
        document, version = f"doc-{random_.randrange(DOCUMENTS)}", f"v{number}"
        target.upsert(rows(random_, random_.randrange(1, 12), number, prefix=document), (document, version))
        if random_.random() < 0.8:
            target.flip(document, version)
        elif random_.random() < 0.5:
            target.remove(document)


def rows(random_: random.Random, count: int, number: int, prefix: str = "row") -> dict[str, list[float]]:
    """Vectors by id; the first component is the number of the change."""
    ids = random_.sample(range(IDS), count)
    return {f"{prefix}-{each}": [float(number), *(random_.random() for _ in range(DIMENSIONS - 1))] for each in ids}


class Writer:
    """Changes to a store."""

    def __init__(self, changes: Changes, collection: Collection) -> None:
        self._changes = changes
        self._collection = collection

    def upsert(self, rows: dict[str, list[float]], version: tuple[str, str] | None) -> None:
        matrix = np.array(list(rows.values()), np.float32)
        table = pa.table(
            {
                "id": list(rows),
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMENSIONS),
                "text": [f"{name} of change {int(vector[0])}" for name, vector in rows.items()],
                "attributes": [{"change": int(vector[0])} for vector in rows.values()],
            }
        )
        document, number = version or (None, None)
        self._changes.upsert(self._collection, table, document=document, version=number)

    def delete(self, ids: list[str]) -> None:
        self._changes.delete(self._collection, ids)

    def flip(self, document: str, version: str) -> None:
        self._changes.flip(self._collection, document, version)

    def remove(self, document: str) -> None:
        self._changes.remove_document(self._collection, document)
