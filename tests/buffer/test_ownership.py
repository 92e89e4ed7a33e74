"""One folder, one queue: the second manifest is refused before it can harm the first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.buffer.producers import MANIFEST, built, contents, faulty
from tests.buffer.simulated import simulated

from penstock.buffer import Consumer, ConsumerConfig, Producer, ProducerConfig, SyncConsumer, SyncProducer
from penstock.errors import Closed, Corrupt, InvalidInput, NotFound, StorageFull, Unsupported
from penstock.objects import MemoryStore, ObjectMeta
from penstock.objects.port import Body
from penstock.testing import Fate, Simulation
from penstock.testing.storage.hostile_stores import PassingStore

MARKER = "ingest/queue-owner.json"
OTHER = "other/manifest"


@simulated
async def test_a_producer_marks_its_folder_and_a_second_queue_is_refused_at_open(simulation: Simulation) -> None:
    producer, store = built(simulation)
    async with producer:
        assert (await store.get(MARKER)).data == b'{"version":1,"manifest":"ingest/manifest"}'
        await producer.produce([b"x"])
    second, _ = built(simulation, store, manifest_path=OTHER)
    with pytest.raises(InvalidInput, match=r"belongs to another queue: .*'ingest/manifest'.*'other/manifest'"):
        async with second:
            pass
    third = Consumer(store, ConsumerConfig(manifest_path=OTHER), clock=simulation.clock, entropy=simulation.entropy)
    with pytest.raises(InvalidInput, match="belongs to another queue"):
        await third.start()
    with pytest.raises(NotFound):
        await store.get(OTHER)
    assert await contents(store) == [[b"x"]]


@simulated
async def test_a_producer_that_is_not_opened_learns_it_before_anything_is_enqueued(simulation: Simulation) -> None:
    first, store = built(simulation)
    async with first:
        second, _ = built(simulation, store, manifest_path=OTHER)
        with pytest.raises(InvalidInput, match="belongs to another queue"):
            await (await second.produce([b"x"])).durable()
        with pytest.raises(Closed, match="belongs to another queue"):
            await second.produce([b"y"])
    with pytest.raises(NotFound):
        await store.get(OTHER)


@simulated
async def test_a_consumer_marks_the_folder_of_a_queue_that_has_no_marker_yet(simulation: Simulation) -> None:
    producer, store = built(simulation)
    async with producer:
        await producer.produce([b"x"])
    await store.delete(MARKER)
    async with Consumer(store, clock=simulation.clock, entropy=simulation.entropy) as consumer:
        assert await consumer.len() == 1
    assert b"ingest/manifest" in (await store.get(MARKER)).data


@simulated
async def test_of_two_queues_that_open_one_folder_at_once_one_is_refused(simulation: Simulation) -> None:
    store = faulty(simulation)
    store.script("put_if", Fate.ERROR_AFTER)
    paths = [MANIFEST, OTHER]
    opened = [
        Producer(
            store,
            ProducerConfig(manifest_path=path),
            clock=simulation.clock,
            entropy=simulation.entropy.fork(path),
        ).start()
        for path in paths
    ]
    results = await asyncio.gather(*opened, return_exceptions=True)
    assert sorted(str(type(result).__name__) for result in results) == ["InvalidInput", "NoneType"]
    winner = paths[results.index(None)]
    assert winner.encode() in (await store.get(MARKER)).data


@simulated
async def test_a_marker_of_a_newer_release_or_a_damaged_one_is_left_as_it_is(simulation: Simulation) -> None:
    for body, kind in ((b'{"version":2,"manifest":"ingest/manifest"}', Unsupported), (b"garbage", Corrupt)):
        store = MemoryStore(clock=simulation.clock)
        await store.put(MARKER, body)
        with pytest.raises(kind):
            await built(simulation, store)[0].start()
        assert (await store.get(MARKER)).data == body


class Full(PassingStore):
    """A disk with room for the manifest and for no new name."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        if version is None:
            raise StorageFull("no room")
        return await super().put_if(key, data, version=version)


@simulated
async def test_a_full_disk_without_a_marker_can_still_be_drained(simulation: Simulation) -> None:
    producer, store = built(simulation)
    async with producer:
        await producer.produce([b"x"])
    await store.delete(MARKER)
    async with Consumer(Full(store), clock=simulation.clock, entropy=simulation.entropy) as consumer:
        batch = await consumer.next_batch()
        assert batch is not None
        await consumer.ack(batch.sequence)
    assert await contents(store) == []


def test_doors_refuse_a_second_queue_when_they_are_made(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    with SyncProducer(url):
        with pytest.raises(InvalidInput, match="belongs to another queue"):
            SyncProducer(url, ProducerConfig(manifest_path=OTHER))
        with pytest.raises(InvalidInput, match="belongs to another queue"):
            SyncConsumer(url, ConsumerConfig(manifest_path=OTHER))
        SyncProducer(url, ProducerConfig(manifest_path=OTHER, data_path_prefix="other")).close()


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig])
def test_a_manifest_cannot_take_the_markers_name(kind: type[ProducerConfig] | type[ConsumerConfig]) -> None:
    with pytest.raises(InvalidInput, match="marker"):
        kind(manifest_path=MARKER)
