"""Routing: a stable hash, layouts that move no data, and one object that everybody reads."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock.buffer import (
    ConsumerConfig,
    ProducerConfig,
    Routing,
    RoutingWatch,
    ShardKey,
    ShardLayout,
    change_routing,
    read_routing,
    shard_config,
    shard_path,
)
from penstock.buffer.routing_register import ROUTING_KEY
from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.objects import MemoryStore
from penstock.testing import ManualClock

TENANTS = [f"tenant-{number}" for number in range(4000)]


def test_a_tenant_has_the_same_shard_in_every_release() -> None:
    """These numbers are in stores: they may never change."""
    layout = ShardLayout(4)
    assert [layout.shard_of(name, "metrics") for name in ("acme", "", "default", "Zürich", "a" * 300)] == PINNED


PINNED = [1, 3, 3, 2, 0]


def test_tenants_are_spread_evenly() -> None:
    counts = Counter(ShardLayout(8).shard_of(name, "logs") for name in TENANTS)
    assert set(counts) == set(range(8))
    assert max(counts.values()) < 1.25 * len(TENANTS) / 8


def test_more_shards_move_tenants_only_to_the_new_ones() -> None:
    before, after = ShardLayout(3), ShardLayout(5)
    moved = [
        (before.shard_of(name, "logs"), after.shard_of(name, "logs"))
        for name in TENANTS
        if before.shard_of(name, "logs") != after.shard_of(name, "logs")
    ]
    assert moved
    assert all(target >= 3 for _, target in moved)
    assert len(moved) < len(TENANTS) / 2


def test_by_tenant_all_tables_of_one_are_together_and_by_table_they_are_not() -> None:
    tables = [f"table{number}" for number in range(50)]
    assert len({ShardLayout(8).shard_of("acme", table) for table in tables}) == 1
    assert len({ShardLayout(8, ShardKey.TENANT_AND_TABLE).shard_of("acme", table) for table in tables}) > 4


def test_readers_ask_every_shard_that_a_tenant_has_had() -> None:
    routing = Routing().changed_to(ShardLayout(4)).changed_to(ShardLayout(8))
    assert routing.version == 2
    for name in TENANTS[:200]:
        asked = routing.shards_of(name, "metrics")
        assert set(asked) == {0, ShardLayout(4).shard_of(name, "metrics"), ShardLayout(8).shard_of(name, "metrics")}
        assert asked[-1] == routing.layout.shard_of(name, "metrics")


def test_going_back_to_an_earlier_layout_forgets_no_shard_and_keeps_the_list_short() -> None:
    routing = Routing()
    for shards in (4, 1, 4, 1):
        routing = routing.changed_to(ShardLayout(shards))
    assert (routing.version, len(routing.layouts), routing.layout) == (4, 2, ShardLayout(1))
    assert routing.shards == range(4)
    assert routing.changed_to(ShardLayout(1)) is routing


@pytest.mark.parametrize("shards", [0, -1, 1025, 1.5, True])
def test_a_number_of_shards_that_cannot_be_is_refused(shards: object) -> None:
    with pytest.raises(InvalidInput, match="shards ="):
        ShardLayout(shards)  # type: ignore[arg-type]


def test_shard_0_lies_where_the_one_queue_lies() -> None:
    assert shard_path("series", 0) == "series"
    assert shard_path("series", 3) == "shards/0003/series"
    assert shard_path("telemetry/series", 3, "telemetry") == "telemetry/shards/0003/series"
    assert shard_path("", 3) == ""
    assert shard_config(ProducerConfig(), 0) == ProducerConfig()
    moved = shard_config(ConsumerConfig(poll_seconds=2.0), 2)
    assert (moved.data_path_prefix, moved.manifest_path, moved.poll_seconds) == (
        "shards/0002/ingest",
        "shards/0002/ingest/manifest",
        2.0,
    )
    with pytest.raises(InvalidInput, match="not below"):
        shard_path("elsewhere/series", 1, "telemetry")


def test_a_store_without_a_routing_has_one_queue() -> None:
    async def work() -> None:
        assert await read_routing(MemoryStore()) == Routing()

    asyncio.run(work())


def test_writers_that_change_it_at_once_leave_every_layout_in_the_list() -> None:
    async def work() -> None:
        store = MemoryStore()
        await asyncio.gather(*(change_routing(store, ShardLayout(shards), "telemetry") for shards in (2, 3, 4, 5)))
        found = await read_routing(store, "telemetry")
        assert found.version == 4
        assert {layout.shards for layout in found.layouts} == {1, 2, 3, 4, 5}
        assert await change_routing(store, found.layout, "telemetry") == found

    asyncio.run(work())


def test_a_watch_reads_again_after_its_time() -> None:
    async def work() -> None:
        store, clock = MemoryStore(), ManualClock()
        watch = RoutingWatch(store, refresh_seconds=10.0, clock=clock)
        assert (await watch.current()).version == 0
        await change_routing(store, ShardLayout(4))
        clock.advance(9.0)
        assert (await watch.current()).version == 0
        clock.advance(1.0)
        assert (await watch.current()).layout == ShardLayout(4)

    asyncio.run(work())


def test_damage_and_the_future_are_refused_by_name() -> None:
    async def work() -> None:
        store = MemoryStore()
        await change_routing(store, ShardLayout(4))
        body = bytearray((await store.get(ROUTING_KEY)).data)
        body[-10] ^= 1
        await store.put(ROUTING_KEY, bytes(body))
        with pytest.raises(Corrupt, match="checksum"):
            await read_routing(store)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"format":2,"routing":{"version":1}}', Unsupported),
        (b'{"format":1,"routing":{"version":1,"layouts":[]}}', Corrupt),
        (b'{"format":1,"routing":{"version":1,"layouts":[{"shards":0}]}}', Corrupt),
        (b'{"format":1,"routing":{"version":1,"layouts":[{"shards":2,"by":"moon"}]}}', Corrupt),
        (b"[]", Corrupt),
    ],
)
def test_a_payload_that_makes_no_sense_is_refused(data: bytes, error: type[Exception]) -> None:
    from penstock.buffer.routing_register import _RoutingCodec

    with pytest.raises(error):
        _RoutingCodec().decode(data)
