"""A store behind a fork says so, where it would otherwise wait forever for threads that are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.forks import in_a_fork

from penstock.keyvalue import KeyValue, WriteBatch, open_follower, open_keyvalue


@pytest.mark.processes
def test_a_store_is_refused_behind_a_fork_even_if_opened_there(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"

    async def session() -> None:
        store = await open_keyvalue(url, "db")
        await (await store.write(WriteBatch().put(b"key", b"value"))).durable()
        reads = {
            "get": lambda: asyncio.run(_value(store)),
            "write": lambda: asyncio.run(_written(store)),
            "close": lambda: asyncio.run(store.close()),
            "open": lambda: asyncio.run(open_keyvalue(url, "other")),
            "follow": lambda: asyncio.run(open_follower(url, "db")),
        }
        for name, read in reads.items():
            assert "forked" in await asyncio.to_thread(in_a_fork, read), name
        assert await store.get(b"key") == b"value"
        await store.close()

    asyncio.run(session())


async def _value(store: KeyValue) -> bytes | None:
    return await store.get(b"key")


async def _written(store: KeyValue) -> None:
    await store.write(WriteBatch().put(b"key", b"other"))
