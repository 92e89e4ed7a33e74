"""Many cold searches at once read each block once, and a cache that is too small forgets only what left it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET

from penstock.blocks import BlockCache
from penstock.errors import Unavailable
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.keyvalue.memory import MemorySnapshot
from penstock.observability import names
from penstock.testing import ManualClock, RecordingObserver
from penstock.vector import VectorConfig, VectorReader, VectorStore
from penstock.vector.search import search as search_module
from penstock.vector.search.scan import PostingList

Make = Callable[..., pa.Table]

CONFIG = VectorConfig(list_rows=16, threads=1, upkeep_pause_seconds=float("inf"), coordinator=QUIET)
RANDOM = np.random.default_rng(5)
VECTORS = RANDOM.standard_normal((2000, 8)).astype(np.float32)
QUERY = RANDOM.standard_normal(8).astype(np.float32)


class Reads:
    """Counts what is read of a store by key, lets others run meanwhile, and fails or stops when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: Counter[bytes] = Counter()
        self.fail_first = False
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        for kind in (MemorySnapshot, MemoryFollower):
            monkeypatch.setattr(kind, "get_many", self._wrapped(kind.get_many))

    def _wrapped(self, get_many: Any) -> Any:
        async def counted(reader: Any, keys: Sequence[bytes]) -> list[bytes | None]:
            self.keys.update(keys)
            if self.gate is not None:
                self.begun.set()
                await self.gate.wait()
            await asyncio.sleep(0)
            if self.fail_first:
                self.fail_first = False
                raise Unavailable("the store is away", "for this one read")
            return await get_many(reader, keys)

        return counted

    @property
    def repeated(self) -> dict[bytes, int]:
        return {key: count for key, count in self.keys.items() if count > 1}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


async def loaded(rows: Make, volume: MemoryVolume) -> None:
    async with await VectorStore.over(MemoryKeyValue(volume), CONFIG) as store:
        collection = await store.collection("t", "i", "m", dimensions=8, metric="cosine")
        named = [f"r{place}" for place in range(len(VECTORS))]
        await collection.upsert(rows(named, VECTORS, [f"text {name}" for name in named], n=list(range(2000))))
        await store.flush()
        await store.tend()


async def reopened(volume: MemoryVolume, **options: Any) -> tuple[VectorStore, Any]:
    store = await VectorStore.over(MemoryKeyValue(volume), CONFIG, **options)
    return store, await store.collection("t", "i", "m", dimensions=8, metric="cosine")


def test_equal_cold_searches_read_every_block_once(rows: Make, reads: Reads) -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await loaded(rows, volume)
        store, collection = await reopened(volume)
        reads.keys.clear()
        asked = [collection.search(QUERY, 10, probes=9, columns=["text", "attributes"]) for _ in range(50)]
        answers = await asyncio.gather(*asked)
        assert all(answer.equals(answers[0]) for answer in answers)
        assert answers[0].num_rows == 10
        assert reads.keys
        assert reads.repeated == {}
        await store.close()

    asyncio.run(run())


def test_followers_that_open_a_collection_together_read_it_once(rows: Make, reads: Reads) -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await loaded(rows, volume)
        reads.keys.clear()
        reader = VectorReader(MemoryFollower(volume, poll_interval_ms=1000, clock=ManualClock()), CONFIG)
        opened = await asyncio.gather(*[reader.collection("t", "i", "m") for _ in range(20)])
        await asyncio.gather(*[collection.search(QUERY, 10, probes=9) for collection in opened])
        assert reads.repeated == {}
        await reader.close()

    asyncio.run(run())


def test_recall_is_measured_once_for_searches_that_ask_for_it_together(
    rows: Make, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    calibrate = search_module.calibrate  # type: ignore[attr-defined]
    monkeypatch.setattr(search_module, "calibrate", lambda *a: (measured.append(a), calibrate(*a))[1])

    async def run() -> None:
        volume = MemoryVolume()
        await loaded(rows, volume)
        store, collection = await reopened(volume)
        reads.keys.clear()
        answers = await asyncio.gather(*[collection.search(QUERY, 10) for _ in range(20)])
        assert all(answer.equals(answers[0]) for answer in answers)
        assert len(measured) == 1
        assert reads.repeated == {}
        await store.close()

    asyncio.run(run())


def test_a_read_that_fails_fails_one_search_and_no_other(rows: Make, reads: Reads) -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await loaded(rows, volume)
        store, collection = await reopened(volume)
        await collection.stats()
        reads.fail_first = True
        answers = await asyncio.gather(
            *[collection.search(QUERY, 10, probes=9) for _ in range(10)], return_exceptions=True
        )
        assert sum(isinstance(answer, Unavailable) for answer in answers) == 1
        good = [answer for answer in answers if isinstance(answer, pa.Table)]
        assert len(good) == 9
        assert all(answer.equals(good[0]) for answer in good)
        await store.close()

    asyncio.run(run())


def test_a_search_that_is_cancelled_while_it_reads_for_all_leaves_nobody_waiting(rows: Make, reads: Reads) -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await loaded(rows, volume)
        store, collection = await reopened(volume)
        await collection.stats()
        reads.gate = asyncio.Event()
        first, *others = [asyncio.create_task(collection.search(QUERY, 10, probes=9)) for _ in range(10)]
        await reads.begun.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        reads.gate.set()
        answers = await asyncio.gather(*others)
        assert all(answer.equals(answers[0]) and answer.num_rows == 10 for answer in answers)
        await store.close()

    asyncio.run(run())


def test_a_block_that_leaves_the_cache_takes_nothing_along_that_is_kept_of_others(
    rows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One list is evicted: the next search looks for that one and prepares it again, and finds the others at hand."""
    prepared, looked_for = [], []
    init, get = PostingList.__init__, BlockCache.get
    monkeypatch.setattr(PostingList, "__init__", lambda made, parts: (prepared.append(made), init(made, parts))[1])
    monkeypatch.setattr(
        BlockCache, "get", lambda cache, name, kind: (looked_for.append(name), get(cache, name, kind))[1]
    )

    async def run() -> None:
        volume = MemoryVolume()
        await loaded(rows, volume)
        store, collection = await reopened(volume)
        cache = store._snapshot().blocks.cache
        answers = [await collection.search(QUERY, 10, probes=60, rerank=False) for _ in range(2)]
        assert len(prepared) == 60
        list_name = next(name for name, entry in cache._blocks.items() if isinstance(entry.block, PostingList))
        cache._blocks.move_to_end(list_name, last=False)
        cache._blocks[list_name].used = False
        cache._evict()
        looked_for.clear()
        answers += [await collection.search(QUERY, 10, probes=60, rerank=False) for _ in range(2)]
        assert len(prepared) == 61
        # Before it is read; from then on it is at hand.
        assert looked_for == [list_name]
        assert all(answer.equals(answers[0]) for answer in answers)
        await store.close()

    asyncio.run(run())


def test_a_cache_too_small_for_all_lists_finds_most_of_them_in_it_and_stays_within_its_bound(rows: Make) -> None:
    async def searched(cache_bytes: int, volume: MemoryVolume) -> tuple[list[pa.Table], float, BlockCache]:
        observer = RecordingObserver()
        config = replace(CONFIG, cache_bytes=cache_bytes)
        async with await VectorStore.over(MemoryKeyValue(volume), config, observer=observer) as store:
            collection = await store.collection("t", "i", "m", dimensions=8, metric="cosine")
            cache = store._snapshot().blocks.cache
            answers = []
            for query in VECTORS[:300]:
                answers.append(await collection.search(query, 5, probes=4, rerank=False))
                assert cache.size_bytes <= cache_bytes
            return answers, observer.counted(names.BLOCKS_CACHE_READS, store="vector", outcome="miss"), cache

    async def run() -> None:
        volume = MemoryVolume()
        await loaded(rows, volume)
        expected, _, large = await searched(1 << 24, volume)
        lists = [entry.block for entry in large._blocks.values() if isinstance(entry.block, PostingList)]
        found, misses, small = await searched(3 * sum(each.size_bytes for each in lists) // 4, volume)
        assert small.evictions > 0
        assert all(one.equals(other) for one, other in zip(found, expected, strict=True))
        assert misses < 0.6 * 300 * (4 + 1)

    asyncio.run(run())
