"""How little of the manifest a consumer moves: counted in bytes and requests, never in time."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.buffer.consumers import MANIFEST, consumer, fill, queued, the_next
from tests.buffer.simulated import simulated

from penstock.buffer import DeadLetterPolicy, DeadLetters, DescriptorDraft, Manifest, encode_batch
from penstock.errors import Corrupt, Fenced
from penstock.objects import MemoryStore, Object, ObjectMeta
from penstock.objects.port import Body
from penstock.testing import Simulation
from penstock.testing.storage.hostile_stores import PassingStore


class CountingStore(PassingStore):
    """Counts the bytes of the manifest that are moved, and the requests for it."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(MemoryStore(clock=simulation.clock))
        self.requests: Counter[str] = Counter()
        self.moved = 0

    async def get(self, key: str) -> Object:
        return self._count("get", key, await super().get(key))

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        found = await super().get_if_changed(key, version=version)
        if found is None:
            self.requests["unchanged"] += key == MANIFEST
            return None
        return self._count("get", key, found)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        data = await super().get_range(key, start, end, version=version)
        if key == MANIFEST:
            self.requests["range"] += 1
            self.moved += len(data)
        return data

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        if key == MANIFEST:
            self.requests["put_if"] += 1
            self.moved += len(data)
        return await super().put_if(key, data, version=version)

    def _count(self, verb: str, key: str, found: Object) -> Object:
        if key == MANIFEST:
            self.requests[verb] += 1
            self.moved += len(found.data)
        return found

    def forget(self) -> None:
        self.moved = 0
        self.requests.clear()


async def backlog(simulation: Simulation, count: int) -> CountingStore:
    """So many entries, all of one batch object."""
    store = CountingStore(simulation)
    await store.put("ingest/one", encode_batch([b"record"]))
    await store.put(MANIFEST, Manifest.empty().append([DescriptorDraft("ingest/one")] * count).body)
    return store


@simulated
async def test_polling_an_unchanged_queue_moves_no_byte_of_its_manifest(simulation: Simulation) -> None:
    for count in (0, 3, 5_000):
        store = await backlog(simulation, count)
        made = consumer(simulation, store)
        assert len(await made.next_descriptors(count + 1)) == count
        store.forget()
        for _ in range(50):
            assert await made.next_batch() is None
            assert await made.next_descriptors(10) == []
            await made.len()
        assert store.moved == 0
        assert store.requests == {"unchanged": 150}


@pytest.mark.slow
@simulated
async def test_a_long_queue_is_drained_with_a_few_times_its_manifest_moved(simulation: Simulation) -> None:
    """Twice the queue, twice the bytes: each acknowledgement alone once moved the whole manifest."""
    moved = {}
    for count in (5_000, 10_000):
        store = await backlog(simulation, count)
        size = len((await store.get(MANIFEST)).data)
        made = consumer(simulation, store)
        store.forget()
        for sequence in range(count):
            assert (await the_next(made)).sequence == sequence
            await made.ack(sequence)
        await made.flush()
        assert await queued(store) == []
        assert store.moved < 16 * size
        moved[count] = store.moved
    assert moved[10_000] < 2.5 * moved[5_000]


@pytest.mark.slow
@simulated
async def test_a_long_queue_of_dead_letters_is_not_copied_for_each_of_them(simulation: Simulation) -> None:
    """As after somebody deleted the folder of the batch objects."""
    store = await backlog(simulation, 2_000)
    await store.delete("ingest/one")
    size = len((await store.get(MANIFEST)).data)
    made = consumer(simulation, store, dead_letter=DeadLetterPolicy.SET_ASIDE)
    store.forget()
    assert await made.next_batch() is None
    await made.flush()
    assert await queued(store) == []
    assert store.moved < 16 * size
    assert len(await DeadLetters(store, "ingest").sequences(0, 2_000)) == 2_000


@simulated
async def test_producers_at_work_do_not_make_the_consumer_read_its_backlog_again(simulation: Simulation) -> None:
    store = await backlog(simulation, 5_000)
    made = consumer(simulation, store)
    await made.start()
    for number in range(20):
        await fill(simulation, store, range(number, number + 1))
        store.forget()
        await made.ack((await the_next(made)).sequence)
        await simulation.clock.sleep(0.01)
        assert store.moved == 22, "the footer, once after each change"


@simulated
async def test_a_zombie_with_a_long_backlog_in_memory_is_fenced_at_its_next_call(simulation: Simulation) -> None:
    store = await backlog(simulation, 5_000)
    for at_successor in ("fence", "emptied"):
        zombie = consumer(simulation, store)
        batch = await the_next(zombie)
        successor = consumer(simulation, store)
        await successor.start()
        if at_successor == "emptied":
            await successor.next_descriptors(5_000)
            await successor.ack_through(4_999)
        await simulation.clock.sleep(0.01)
        for call in (
            zombie.next_batch,
            lambda z=zombie, b=batch: z.ack(b.sequence),
            lambda z=zombie: z.next_descriptors(2),
        ):
            with pytest.raises(Fenced):
                await call()


@simulated
async def test_acknowledged_batches_leave_the_queue_after_a_while_though_nothing_more_comes(
    simulation: Simulation,
) -> None:
    store = await backlog(simulation, 3)
    made = consumer(simulation, store, dequeue_every_seconds=5.0)
    for sequence in range(3):
        await the_next(made)
        await made.ack(sequence)
    assert await made.next_batch() is None
    assert await queued(store) == [0, 1, 2]
    await simulation.clock.sleep(5.0)
    assert await made.next_batch() is None
    assert await queued(store) == []
    store.forget()
    await simulation.clock.sleep(100.0)
    assert await made.next_batch() is None
    assert store.moved == 0


@pytest.mark.parametrize("numbers", [(0, 0), (0, 2), (1, 1), (9, 9), (2, 3)])
def test_a_manifest_that_does_not_follow_from_what_it_was_is_damaged(numbers: tuple[int, int]) -> None:
    """An empty queue whose next number went back would take batches that this consumer passes over."""

    @simulated
    async def check(simulation: Simulation) -> None:
        store = await backlog(simulation, 3)
        made = consumer(simulation, store)
        await made.next_descriptors(3)
        await made.ack_through(1)
        first, end = numbers
        grown = Manifest.empty().append([DescriptorDraft("ingest/one")] * end).with_fence(1)
        await store.put(MANIFEST, grown.dequeue_through(first - 1).body)
        if numbers == (2, 3):
            assert await made.next_descriptors(3) == []
            return
        with pytest.raises(Corrupt, match="contradicts its earlier state"):
            await made.next_descriptors(3)

    check()
