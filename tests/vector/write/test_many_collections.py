"""A round of many small collections costs each of them the same, however many there are.

Work is counted, not timed: calls into and out of Python while a flush runs, and reads from the store below.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pyarrow as pa
import pytest

from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import VectorStore
from penstock.vector.collection import Changes

_SOME = 8
# One call a collection for each of the others would be 3 % and more.
_TOLERANCE = 1.005


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, called: object) -> None:
        calls[frame.f_code.co_qualname if event == "call" else event] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def gather(store: VectorStore, count: int, version: str) -> Changes:
    """One small document for each collection, and an entry for it in a collection beside."""
    changes = store.changes()
    for number in range(count):
        collection = await store.collection("tenant", f"index-{number}", "model", dimensions=2, analysis="leads")
        registry = await store.collection("tenant", f"index-{number}", "documents", dimensions=1)
        rows = {"id": ["row"], "vector": [[1.0, float(number)]], "text": ["Title\nabout\n\nThe text of a document."]}
        changes.upsert(collection, pa.table(rows), document="document", version=version)
        changes.flip(collection, "document", version)
        entry = {"id": ["document"], "vector": [[1.0]], "attributes": [{"status": "indexed", "version": version}]}
        changes.upsert(registry, pa.table(entry))
    return changes


async def calls_of_rounds(count: int) -> list[int]:
    """Calls while a round of so many is written: of new collections, and of the same ones again."""
    found = []
    async with await VectorStore.over(MemoryKeyValue(MemoryVolume())) as store:
        for version in ("v1", "v2"):
            changes = await gather(store, count, version)
            with counted_calls() as calls:
                await store.write(changes, durable=True)
            found.append(sum(calls.values()))
    return found


@pytest.mark.slow
def test_a_collection_costs_the_same_in_a_round_of_few_and_of_many() -> None:
    # What is made once in a process is made before anything is counted.
    asyncio.run(calls_of_rounds(1))
    some, more, most = (asyncio.run(calls_of_rounds(count)) for count in (_SOME, 2 * _SOME, 4 * _SOME))
    for first, second, third in zip(some, more, most, strict=True):
        # What each further collection costs: nothing of it is what a flush needs once.
        assert (third - second) / (2 * _SOME) <= _TOLERANCE * (second - first) / _SOME


def test_a_flush_reads_nothing_of_collections_that_are_known_to_be_new() -> None:
    """Whoever gathered rows for them has looked."""

    async def run() -> Counter[str]:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume())) as store:
            changes = await gather(store, _SOME, "v1")
            with counted_calls() as calls:
                await store.write(changes, durable=True)
            return calls

    calls = asyncio.run(run())
    assert calls["commit"] > 0
    assert [name for name in calls if name.startswith("_TableReader.")] == []
