"""A write of more rows than the buffer holds is taken, and does what one write would have done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.vector.stores import collection_of, found, opened

from penstock.coordinator import CoordinatorConfig
from penstock.errors import AtCapacity, InvalidInput
from penstock.keyvalue import MemoryVolume
from penstock.vector import VectorConfig
from penstock.vector.operations import Change, Upsert
from penstock.vector.write.pieces import pieces_of

Make = Callable[..., pa.Table]

_TIGHT = VectorConfig(
    list_rows=8, threads=1, coordinator=CoordinatorConfig(max_pending_bytes=2000, max_buffered_bytes=4000)
)
_COUNT = 100


def _table(rows: Make, count: int = _COUNT) -> pa.Table:
    return rows([f"r{number:03}" for number in range(count)], [[number, 1] for number in range(count)])


def _run(work: Callable[..., Any], volume: MemoryVolume | None = None) -> None:
    async def run() -> None:
        async with await opened(volume or MemoryVolume(), _TIGHT) as store:
            await work(store, await collection_of(store))

    asyncio.run(run())


def test_an_upsert_larger_than_the_buffer_is_taken_whole(rows: Make) -> None:
    async def work(store: Any, collection: Any) -> None:
        handle = await collection.upsert(_table(rows), source="queue", position=7)
        await handle.durable()
        assert sorted(await found(collection, k=_COUNT)) == [f"r{number:03}" for number in range(_COUNT)]
        assert store.position("queue") == 7

    _run(work)


def test_a_version_larger_than_the_buffer_stays_hidden_until_it_is_flipped_to(rows: Make) -> None:
    async def work(_: Any, collection: Any) -> None:
        await collection.upsert(_table(rows), document="d", version="v1", durable=True)
        assert await found(collection, k=_COUNT) == []
        await collection.flip("d", "v1", durable=True)
        assert len(await found(collection, k=_COUNT)) == _COUNT

    _run(work)


def test_the_pieces_hold_every_row_once_in_order_and_the_position_is_with_the_last(rows: Make) -> None:
    async def work(_: Any, collection: Any) -> None:
        upsert = collection.upserting_versions(_table(rows), [("a", "1", 30), ("b", "1", 0), ("c", "2", 70)])
        pieces = pieces_of(Change(((collection.spec, upsert),), "queue", 3), 2000)
        cuts = [piece.operations[0][1] for piece in pieces]
        assert all(isinstance(cut, Upsert) and cut.size_bytes <= 2000 for cut in cuts)
        assert [name for cut in cuts for name in cut.rows.names.to_pylist()] == upsert.rows.names.to_pylist()
        assert [value for cut in cuts for value in cut.versioned.high] == list(upsert.versioned.high)
        assert all(sum(count for _, count in cut.versions) == len(cut.rows) for cut in cuts)
        totals: dict[str, int] = {}
        for version, count in (each for cut in cuts for each in cut.versions):
            totals[version.document] = totals.get(version.document, 0) + count
        assert totals == {"a": 30, "c": 70}
        assert [piece.position for piece in pieces] == [None] * (len(pieces) - 1) + [3]

    _run(work)


def test_what_belongs_together_is_refused_and_not_taken_apart(rows: Make) -> None:
    async def work(store: Any, collection: Any) -> None:
        changes = store.changes().upsert(collection, _table(rows)).delete(collection, ["r001"])
        with pytest.raises(InvalidInput, match="split it"):
            await store.write(changes)
        with pytest.raises(InvalidInput, match="split it"):
            await collection.upsert(rows(["large"], [[1, 0]], texts=["x" * 5000]))

    _run(work)


def test_a_piece_without_room_in_time_is_given_back_with_all_that_follow_it(rows: Make) -> None:
    volume = MemoryVolume()

    async def work(store: Any, collection: Any) -> None:
        volume.hold()
        with pytest.raises(AtCapacity) as refused:
            await collection.upsert(_table(rows), timeout=0.01)
        left = [name for change in refused.value.rejected.changes for name in _names(change)]
        assert 0 < len(left) < _COUNT
        volume.release()
        for change in refused.value.rejected.changes:
            await store.write(change)
        await store.flush()
        assert len(await found(collection, k=_COUNT)) == _COUNT

    _run(work, volume)


def _names(change: Change) -> list[str]:
    return [name for _, operation in change.operations for name in operation.rows.names.to_pylist()]  # type: ignore[union-attr]
