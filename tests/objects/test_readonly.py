"""A store opened read-only reads as the one below and sends no write."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import PermissionDenied
from penstock.objects import MemoryStore, ObjectStore
from penstock.objects.readonly import ReadOnlyStore


def test_reads_pass_and_writes_are_refused() -> None:
    async def promise() -> None:
        inner = MemoryStore("name")
        meta = await inner.put("object", b"0123456789")
        store: ObjectStore = ReadOnlyStore(inner)
        assert store.url == "memory://name"
        assert await store.get("object") == await inner.get("object")
        assert await store.head("object") == meta
        assert await store.get_range("object", 1, 3, version=meta.version) == b"12"
        assert await store.get_ranges("object", [(0, 1), (5, 6)]) == [b"0", b"5"]
        assert [page async for page in store.list("o")] == [[meta]]
        for write in (
            store.get_durable("object"),
            store.put("object", b""),
            store.put_if("object", b"", version=meta.version),
            store.delete("object"),
            store.delete_many(["object"]),
        ):
            with pytest.raises(PermissionDenied, match="opened read-only"):
                await write
        assert await inner.head("object") == meta
        await store.close()

    asyncio.run(promise())
