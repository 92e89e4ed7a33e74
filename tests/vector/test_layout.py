"""Which bucket arriving rows go to, and that they are found there whatever has become of its neighbours."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import collection_of, opened

from penstock.blocks.write import layout
from penstock.keyvalue import MemoryVolume
from penstock.vector.format.identity import identities_of

Make = Callable[..., pa.Table]


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows of the dictionary."""
    monkeypatch.setattr(layout, "BUCKET_BYTES", 96)
    monkeypatch.setattr(layout, "_BUCKET_BYTES_MAX", 192)


@pytest.mark.usefixtures("small_buckets")
def test_rows_are_found_though_the_buckets_before_theirs_have_lost_all_their_rows(rows: Make) -> None:
    async def work() -> None:
        store = await opened(MemoryVolume())
        collection = await collection_of(store)
        names = [f"r{n}" for n in range(40)]
        await collection.upsert(rows(names, np.ones((40, 2)), ["a few words"] * 40), durable=True)
        hashes = identities_of(pa.array(names)).high
        middle = np.uint64(1) << np.uint64(63)
        await collection.delete([name for name, high in zip(names, hashes, strict=True) if high < middle])
        await store.flush()
        await store.compact()
        fresh = [f"new{n}" for n in range(40)]
        for first in range(0, 40, 8):
            await collection.upsert(rows(fresh[first : first + 8], np.ones((8, 2))), durable=True)
        assert (await collection.get(fresh, ("id",)))["id"].to_pylist() == fresh
        assert (await collection.verify()).problems == []
        await store.close()

    asyncio.run(work())


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("seed", range(2))
def test_buckets_that_are_cut_emptied_and_merged_hold_what_a_dictionary_would(rows: Make, seed: int) -> None:
    async def work() -> None:
        entropy = random.Random(seed)
        store = await opened(MemoryVolume())
        collection = await collection_of(store)
        held: dict[str, float] = {}
        for step in range(15):
            some = entropy.sample(range(120), entropy.randrange(1, 60))
            if entropy.random() < 0.5:
                written = {f"r{n}": float(step + n) for n in some}
                texts = [f"word{entropy.randrange(40)} w{name}" for name in written]
                await collection.upsert(rows(list(written), [[value, 0] for value in written.values()], texts))
                held |= written
            else:
                await collection.delete([f"r{n}" for n in some])
                held = {name: value for name, value in held.items() if name not in {f"r{n}" for n in some}}
            if step % 3 == 0:
                await store.flush()
                await (store.compact() if entropy.random() < 0.3 else store.tend())
        await store.flush()
        found = await collection.get([f"r{n}" for n in range(120)], ("id", "vector"))
        assert {row["id"]: row["vector"][0] for row in found.to_pylist()} == held
        assert (await collection.verify()).problems == []
        await store.close()

    asyncio.run(work())
