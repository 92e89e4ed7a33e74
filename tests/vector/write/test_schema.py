"""What writes are checked against."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.vector.stores import SMALL, with_store

from penstock.coordinator import CoordinatorConfig
from penstock.errors import AtCapacity, InvalidInput
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import Collection, CollectionName, DistanceMetric, VectorStore
from penstock.vector.attributes import ATTRIBUTES_MAX, AttributeType
from penstock.vector.operations import CollectionSpec
from penstock.vector.write.schema import Schema

Make = Callable[..., pa.Table]
SPEC = CollectionSpec(CollectionName("t", "i", "m"), 2, DistanceMetric.L2)
INTEGER, STRING = {"n": AttributeType.INTEGER}, {"n": AttributeType.STRING}


def test_a_claim_keeps_others_from_another_type_until_it_ends() -> None:
    schema = Schema(SPEC, {})
    schema.claim(INTEGER)
    with pytest.raises(InvalidInput, match="'n' is string"):
        schema.claim(STRING)
    schema.settle(INTEGER, accepted=False)
    schema.claim(STRING)
    schema.settle(STRING, accepted=True)
    assert schema.types == STRING


def test_of_two_claims_one_that_is_accepted_decides() -> None:
    schema = Schema(SPEC, {})
    schema.claim(INTEGER)
    schema.claim(INTEGER)
    schema.settle(INTEGER, accepted=True)
    schema.settle(INTEGER, accepted=False)
    assert schema.types == INTEGER


def test_a_claim_that_is_refused_leaves_nothing() -> None:
    schema = Schema(SPEC, {f"a{n}": AttributeType.BOOL for n in range(ATTRIBUTES_MAX - 1)})
    with pytest.raises(InvalidInput, match="at most"):
        schema.claim({"x": AttributeType.BOOL, "y": AttributeType.BOOL})
    assert len(schema.types) == ATTRIBUTES_MAX - 1


def test_changes_that_were_never_written_give_no_attribute_a_type(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        store.changes().upsert(collection, rows(["a"], [[1, 0]], n=[1]))
        await collection.upsert(rows(["a"], [[1, 0]], n=["text"]), durable=True)
        assert (await collection.stats()).attributes == {"n": "string"}

    with_store(work)


def test_a_write_that_finds_no_room_gives_no_attribute_a_type(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[1, 0]]))
        with pytest.raises(AtCapacity):
            await collection.upsert(rows(["b"], [[1, 0]], n=[1]), timeout=0)
        await store.flush()
        await collection.upsert(rows(["b"], [[1, 0]], n=["text"]), durable=True)
        assert (await collection.stats()).attributes == {"n": "string"}

    config = CoordinatorConfig(max_buffered_writes=1, max_pending_writes=1, flush_interval_seconds=900)
    with_store(work, config=replace(SMALL, coordinator=config))


def test_types_that_differ_within_one_write_are_refused_and_the_store_goes_on(rows: Make) -> None:
    """Neither was known when its rows were given: taken, they would fail the flush."""

    async def work(store: VectorStore, collection: Collection) -> None:
        changes = store.changes().upsert(collection, rows(["a"], [[1, 0]], n=[1]))
        changes.upsert(collection, rows(["b"], [[1, 0]], n=["text"]))
        with pytest.raises(InvalidInput, match="'n' is integer and string"):
            await store.write(changes)
        one, other = (store.changes().upsert(collection, rows(["a"], [[1, 0]], n=[value])) for value in (1, "text"))
        await asyncio.gather(store.write(one), store.flush())
        with pytest.raises(InvalidInput, match="'n' is string"):
            await store.write(other)
        await store.flush()
        assert (await collection.stats()).attributes == {"n": "integer"}

    with_store(work)


class _SlowReader(MemoryKeyValue):
    """Whose snapshots answer the second question about a collection long after the first."""

    async def snapshot(self) -> Any:
        snapshot = await super().snapshot()
        answer, asked = snapshot.get, itertools.count()

        async def get(key: bytes) -> bytes | None:
            found = await answer(key)
            for _ in range(50 * next(asked)):
                await asyncio.sleep(0)
            return found

        snapshot.get = get  # type: ignore[method-assign]
        return snapshot


def test_two_who_open_a_collection_at_once_are_held_to_the_same_types(rows: Make) -> None:
    """Taken, both types would meet in one flush and fail it."""

    async def work() -> None:
        store = await VectorStore.over(_SlowReader(MemoryVolume()), SMALL)

        async def write(value: object) -> None:
            collection = await store.collection("t", "i", "m", dimensions=2)
            await collection.upsert(rows(["a"], [[1, 0]], n=[value]))

        told = await asyncio.gather(write(1), write("text"), return_exceptions=True)
        assert [type(each) for each in told] == [type(None), InvalidInput]
        await store.close()

    asyncio.run(work())
