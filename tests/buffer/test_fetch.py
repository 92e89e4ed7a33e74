"""Fetch handles: shared by tasks and processes, touching nothing but the batch object."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
from pathlib import Path

import pytest

from penstock.buffer import Consumer, ConsumerConfig, Descriptor, FetchHandle, Producer, ProducerConfig, encode_batch
from penstock.buffer.format.batch import Compression
from penstock.errors import AtCapacity, Corrupt, NotFound, Unsupported
from penstock.objects import MemoryStore, StoreSpec, open_store
from penstock.observability import names
from penstock.testing import RecordingObserver


def fetched(handle: FetchHandle, descriptor: Descriptor) -> list[bytes]:
    """What a worker process does with a handle that was sent to it."""

    async def fetch() -> list[bytes]:
        try:
            return [bytes(record) for record in (await handle.fetch(descriptor)).records]
        finally:
            await handle.close()

    return asyncio.run(fetch())


@pytest.mark.processes
def test_a_handle_pickles_and_fetches_in_another_process(tmp_path: Path) -> None:
    async def handed_out() -> tuple[FetchHandle, list[Descriptor]]:
        store = await open_store(f"file://{tmp_path}")
        async with Producer(store, ProducerConfig(max_buffered_inputs=1)) as producer:
            for number in range(3):
                await producer.produce([b"%d" % number])
        async with Consumer(store, ConsumerConfig(collect=False)) as consumer:
            return consumer.fetch_handle(), await consumer.next_descriptors(3)

    handle, descriptors = asyncio.run(handed_out())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.starmap(fetched, [(handle, descriptor) for descriptor in descriptors]) == [[b"0"], [b"1"], [b"2"]]


def test_a_handle_that_came_by_pickle_opens_its_store_once_and_closes_it(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"file://{tmp_path}")
        for number in range(4):
            await store.put(f"b{number}", encode_batch([b"%d" % number]))
        handle = pickle.loads(pickle.dumps(FetchHandle(store, StoreSpec(f"file://{tmp_path}"))))
        batches = await asyncio.gather(*(handle.fetch(Descriptor(number, f"b{number}")) for number in range(4)))
        assert [bytes(batch.records[0]) for batch in batches] == [b"0", b"1", b"2", b"3"]
        await handle.close()
        await handle.close()
        assert (await handle.fetch(Descriptor(0, "b0"))).sequence == 0, "used again, it opens again"
        await handle.close()
        await store.close()

    asyncio.run(main())


def test_a_handle_on_a_store_in_memory_cannot_leave_its_process() -> None:
    with pytest.raises(Unsupported, match="another process"):
        pickle.dumps(FetchHandle(MemoryStore(), StoreSpec("memory://")))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"short", Corrupt),
        (b"x" * 20 + bytes.fromhex("00010000000100"), Corrupt),
        (bytes.fromhex("00000000000900"), Unsupported),
    ],
)
def test_an_unreadable_object_is_named_with_its_sequence_and_location(body: bytes, error: type[Exception]) -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.put("ingest/x", body)
        handle = FetchHandle(store, StoreSpec(store.url))
        with pytest.raises(error, match="batch 7 at 'ingest/x'"):
            await handle.fetch(Descriptor(7, "ingest/x"))
        with pytest.raises(NotFound, match="batch 8 at 'ingest/y'"):
            await handle.fetch(Descriptor(8, "ingest/y"))

    asyncio.run(main())


@pytest.mark.parametrize("location", ["", "../etc/passwd", "a//b"])
def test_a_location_no_store_can_hold_is_the_entrys_fault(location: str) -> None:
    async def main() -> None:
        with pytest.raises(Corrupt, match=r"batch 7 .* its location cannot be a key"):
            await FetchHandle(MemoryStore(), StoreSpec("memory://")).fetch(Descriptor(7, location))

    asyncio.run(main())


def test_a_large_compressed_batch_is_unpacked_within_the_bound() -> None:
    async def main() -> None:
        store, records = MemoryStore(), [bytes(1000) + b"%d" % number for number in range(2000)]
        body = encode_batch(records, Compression.ZSTD)
        await store.put("x", body)
        spec = StoreSpec(store.url)
        batch = await FetchHandle(store, spec).fetch(Descriptor(0, "x"))
        assert [bytes(record) for record in batch.records] == records
        with pytest.raises(AtCapacity):
            await FetchHandle(store, spec, decoded_bytes_max=1_000_000).fetch(Descriptor(0, "x"))

    asyncio.run(main())


def test_the_event_loop_goes_on_while_many_records_are_decoded() -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.put("x", encode_batch([b""] * 1_000_000, Compression.ZSTD))
        fetching = asyncio.create_task(FetchHandle(store, StoreSpec(store.url)).fetch(Descriptor(0, "x")))
        turns = 0
        while not fetching.done():
            await asyncio.sleep(0)
            turns += 1
        assert len((await fetching).records) == 1_000_000
        assert turns > 50

    asyncio.run(main())


def test_the_bound_on_records_travels_with_the_handle(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"file://{tmp_path}")
        await store.put("x", encode_batch([b""] * 11))
        handle = FetchHandle(store, StoreSpec(store.url), decoded_records_max=10)
        for one in (handle, pickle.loads(pickle.dumps(handle))):
            with pytest.raises(AtCapacity, match="decoded_records_max"):
                await one.fetch(Descriptor(0, "x"))
            await one.close()

    asyncio.run(main())


def test_fetches_are_measured_by_outcome() -> None:
    async def main() -> None:
        store, observer = MemoryStore(), RecordingObserver()
        handle = FetchHandle(store, StoreSpec(store.url), observer=observer)
        body = encode_batch([b"abc", b"d"])
        await store.put("x", body)
        await handle.fetch(Descriptor(0, "x"))
        with pytest.raises(NotFound):
            await handle.fetch(Descriptor(1, "y"))
        assert observer.counted(names.BUFFER_FETCHES, outcome="fetched") == 1
        assert observer.counted(names.BUFFER_FETCHES, outcome="unreadable") == 1
        assert observer.counted(names.BUFFER_FETCH_BYTES) == len(body)
        assert observer.counted(names.BUFFER_FETCH_RECORDS) == 2
        assert len(observer.observed(names.BUFFER_FETCH_SECONDS)) == 1

    asyncio.run(main())
