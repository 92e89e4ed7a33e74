"""The store in memory is deterministic and shared by whoever holds it. Its verbs: tests/contracts/test_object_store.py."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.errors import AtCapacity, Conflict
from penstock.objects import MemoryStore
from penstock.testing import ManualClock


async def history(store: MemoryStore) -> list[object]:
    first = await store.put("b", b"1")
    await store.put("a", b"2")
    await store.put_if("b", b"3", version=first.version)
    await store.delete("a")
    return [await store.put("c", b"4"), *[meta async for page in store.list() for meta in page]]


def test_the_same_calls_give_the_same_answers() -> None:
    stores = [MemoryStore(clock=ManualClock()) for _ in range(2)]
    first, second = (asyncio.run(history(store)) for store in stores)
    assert first == second


def test_no_verb_yields_to_another_task() -> None:
    """So one verb is one step of a simulation."""

    with pytest.raises(StopIteration):
        history(MemoryStore()).send(None)


def test_a_body_is_not_changed_by_its_writer_afterwards() -> None:
    async def promise() -> None:
        store, body = MemoryStore(), bytearray(b"before")
        await store.put("object", body)
        body[:] = b"after!"
        assert (await store.get("object")).data == b"before"

    asyncio.run(promise())


def test_a_listing_survives_writes_between_its_pages() -> None:
    async def promise() -> None:
        store = MemoryStore()
        for key in "bdfh":
            await store.put(key, b"")
        found = []
        async for page in store.list(page_size=1):
            found += [meta.key for meta in page]
            await store.delete(page[0].key)
            await store.put("a", b"")
            await store.put("e", b"")
        assert found == ["b", "d", "e", "f", "h"]

    asyncio.run(promise())


def test_the_bound_of_get_is_the_stores_own() -> None:
    async def promise() -> None:
        store = MemoryStore(get_bytes_max=3)
        await store.put("object", b"1234")
        with pytest.raises(AtCapacity):
            await store.get("object")

    asyncio.run(promise())


def test_several_loops_in_several_threads_may_share_it() -> None:
    store = MemoryStore()

    async def increment() -> None:
        for _ in range(200):
            while True:
                found = await store.get("counter")
                try:
                    await store.put_if("counter", b"%d" % (int(found.data) + 1), version=found.meta.version)
                except Conflict:
                    continue
                break

    asyncio.run(store.put("counter", b"0"))  # type: ignore[arg-type]
    threads = [threading.Thread(target=lambda: asyncio.run(increment())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(store.get("counter")).data == b"800"  # type: ignore[arg-type]
