"""Followers: read what is durable, never too late and never of two moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.blocks import STORE, RecordKind
from penstock.blocks.format.keys import head_key
from penstock.coordinator import CoordinatorConfig
from penstock.errors import NotFound, Unavailable, Unsupported
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.testing import ManualClock
from penstock.vector import ALL_LISTS, VectorConfig, VectorReader, VectorStore, partial_blocks
from penstock.vector.format.keys import collection_prefix
from penstock.vector.format.state import StoreRecord
from penstock.vector.format.store_format import FORMAT, FORMAT_VERSION

Make = Callable[..., pa.Table]
_CONFIG = VectorConfig(list_rows=4, cache_bytes=1, staleness_seconds=2.0)


def follower(volume: MemoryVolume, clock: ManualClock, config: VectorConfig = _CONFIG) -> VectorReader:
    reader = MemoryFollower(volume, poll_interval_ms=1000, clock=clock)
    return VectorReader(reader, config, clock=clock)


async def written(volume: MemoryVolume) -> tuple[VectorStore, Any]:
    store = await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=4))
    return store, await store.collection("t", "i", "m", dimensions=2, metric="l2")


async def ids(collection: Any) -> list[str]:
    return sorted((await collection.search([[0.0, 0.0]], 200, probes=ALL_LISTS))["id"].to_pylist())


def test_it_sees_what_is_durable_and_not_what_is_only_visible(rows: Make) -> None:
    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store, collection = await written(volume)
        await collection.upsert(rows(["a"], [[1, 0]]), source="queue", position=4, durable=True)
        reader = follower(volume, clock)
        seen = await reader.collection("t", "i", "m")
        assert await ids(seen) == ["a"]
        assert await reader.position("queue") == 4
        assert [str(name) for name in await reader.collections()] == ["t/i/m"]
        volume.hold()
        await collection.upsert(rows(["b"], [[2, 0]]))
        await store.flush(durable=False)
        clock.advance(10)
        assert await ids(seen) == ["a"]
        volume.release()
        clock.advance(10)
        assert await ids(seen) == ["a", "b"]
        assert (await seen.get(["b"], ("id",))).num_rows == 1
        assert (await seen.verify()).problems == []
        await reader.close()
        await store.close()

    asyncio.run(run())


def test_it_is_never_later_than_allowed(rows: Make) -> None:
    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store, collection = await written(volume)
        await collection.upsert(rows(["r0"], [[1, 0]]), durable=True)
        async with follower(volume, clock) as reader:
            seen = await reader.collection("t", "i", "m")
            for number in range(1, 6):
                await collection.upsert(rows([f"r{number}"], [[1, number]]), durable=True)
                clock.advance(_CONFIG.staleness_seconds)
                assert len(await ids(seen)) == number + 1
        await store.close()

    asyncio.run(run())


def test_an_answer_is_of_one_moment_while_the_writer_replaces_everything(rows: Make) -> None:
    """Blocks vanish under the follower at any step: it begins again, and never mixes."""

    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store, collection = await written(volume)
        names = [f"r{n}" for n in range(30)]

        async def replace(number: int) -> None:
            table = rows(names, np.random.default_rng(number).standard_normal((30, 2)), generation=[number] * 30)
            await collection.upsert(table, durable=True)
            await store.compact()

        await replace(0)
        reader = follower(volume, clock)
        seen = await reader.collection("t", "i", "m")
        inner, step = reader._blocks.reader, 0
        get_many = inner.get_many

        async def interrupted(keys: Any) -> Any:
            nonlocal step
            step += 1
            if step in (2, 5, 9, 14):
                await replace(step)
                clock.advance(5)
            return await get_many(keys)

        inner.get_many = interrupted  # type: ignore[method-assign]
        for _ in range(6):
            answer = await seen.search([[0.0, 0.0]], 30, probes=ALL_LISTS, columns=("attributes",))
            assert sorted(answer["id"].to_pylist()) == sorted(names)
            assert len({row["generation"] for row in answer["attributes"].to_pylist()}) == 1
            assert partial_blocks(answer) == []
            clock.advance(5)
        assert step > 14
        await store.close()

    asyncio.run(run())


def test_a_collection_is_found_though_its_blocks_are_replaced_while_it_is_opened(rows: Make) -> None:
    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store, collection = await written(volume)
        names = [f"r{n}" for n in range(30)]

        async def replace(number: int) -> None:
            await collection.upsert(rows(names, np.random.default_rng(number).standard_normal((30, 2))), durable=True)
            await collection.delete(names[:number], durable=True)
            await store.compact()

        await replace(1)
        reader = follower(volume, clock)
        inner, get_many, step = reader._blocks.reader, reader._blocks.reader.get_many, 1

        async def interrupted(keys: Any) -> Any:
            nonlocal step
            step += 1
            if step < 6:
                await replace(step)
                clock.advance(5)
            return await get_many(keys)

        inner.get_many = interrupted  # type: ignore[method-assign]
        seen = await reader.collection("t", "i", "m")
        assert await ids(seen) == sorted(names[5:])
        await store.close()

    asyncio.run(run())


def test_one_that_can_never_keep_up_says_so(rows: Make) -> None:
    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store, collection = await written(volume)
        await collection.upsert(rows(["a"], [[1, 0]]), durable=True)
        reader = follower(volume, clock)
        seen = await reader.collection("t", "i", "m")
        inner, get_many, number = reader._blocks.reader, reader._blocks.reader.get_many, 0

        async def outrun(keys: Any) -> Any:
            nonlocal number
            number += 1
            await collection.upsert(rows(["a"], [[1, number]]), durable=True)
            await store.compact()
            clock.advance(5)
            return await get_many(keys)

        inner.get_many = outrun  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            await seen.search([[0.0, 0.0]])
        await store.close()

    asyncio.run(run())


def test_a_collection_that_is_not_there_and_a_newer_format_are_told_apart(rows: Make) -> None:
    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store, _ = await written(volume)
        with pytest.raises(NotFound, match="t/i/other"):
            await follower(volume, clock).collection("t", "i", "other")
        newer = FORMAT.encode_record(RecordKind.STORE, StoreRecord(FORMAT_VERSION + 1, 0))
        volume.land("keyvalue", [(STORE, newer)])
        with pytest.raises(Unsupported):
            await follower(volume, clock).collection("t", "i", "m")
        await store.close()

    asyncio.run(run())


def test_it_forgets_collections_beyond_its_bound(rows: Make) -> None:
    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store = await VectorStore.over(
            MemoryKeyValue(volume), VectorConfig(coordinator=CoordinatorConfig(flush_interval_seconds=900))
        )
        for number in range(5):
            collection = await store.collection("t", f"i{number}", "m", dimensions=2)
            await collection.upsert(rows(["a"], [[1, 0]]))
        await store.flush()
        reader = follower(volume, clock, VectorConfig(collections_open=2))
        for number in range(5):
            clock.advance(1)
            assert (await (await reader.collection("t", f"i{number}", "m")).stats()).rows == 1
        assert len(reader._states._seen) == 2
        await store.close()

    asyncio.run(run())


class _Advancing(MemoryFollower):
    """Sees nothing new until it has read a head, and all of it right after."""

    async def get(self, key: bytes) -> bytes | None:
        found = await super().get(key)
        if key == head_key(collection_prefix(0)):
            self._poll()
        return found


def test_a_state_is_of_one_moment_though_the_view_advances_while_it_is_read(rows: Make) -> None:
    """A row that was replaced meanwhile is dead in the new blocks and not yet born by the old head: it would be lost."""

    async def run() -> None:
        volume = MemoryVolume()
        store, collection = await written(volume)
        await collection.upsert(rows(["a", "b"], [[1, 0], [2, 0]]), durable=True)
        advancing = _Advancing(volume, poll_interval_ms=1e12, clock=ManualClock())
        reader = VectorReader(advancing, _CONFIG, clock=ManualClock())
        await collection.upsert(rows(["a"], [[3, 0]]), durable=True)
        seen = await reader.collection("t", "i", "m")
        assert await ids(seen) == ["a", "b"]
        assert (await seen.get(["a"], ("vector",))).to_pylist() == [{"vector": [3, 0]}]
        await reader.close()
        await store.close()

    asyncio.run(run())


def test_it_finds_lists_in_their_order_though_some_were_read_before_and_others_were_not(rows: Make) -> None:
    """Centres that it keeps and centres that it fetches make one array, by which lists are looked up."""

    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store, collection = await written(volume)
        vectors = np.random.default_rng(1).standard_normal((400, 2)).astype(np.float32)
        names = [f"r{n}" for n in range(400)]
        await collection.upsert(rows(names, vectors), durable=True)
        reader = follower(volume, clock, VectorConfig(list_rows=4, staleness_seconds=2.0))
        seen = await reader.collection("t", "i", "m")
        assert await ids(seen) == await ids(collection)
        lists = (await reader._states.state(seen.name)).centroids.lists
        assert len(lists) > 128
        for target in (0, len(lists) // 2):
            # Rows around one centre: its list splits, and the block of that centre alone is written again.
            state = await reader._states.state(seen.name)
            near = state.centroids.vectors[target] + np.linspace(0, 1e-3, 24)[:, None]
            await collection.upsert(rows([f"n{target}-{n}" for n in range(24)], near), durable=True)
            await store.tend()
            clock.advance(10)
            state = await reader._states.state(seen.name)
            assert (np.diff(state.centroids.lists) > 0).all()
            assert await ids(seen) == await ids(collection)
            near = await seen.search(vectors[:50], 3)
            assert near["query"].to_pylist() == sorted(near["query"].to_pylist())
        await reader.close()
        await store.close()

    asyncio.run(run())
