"""The queue on a real S3 server: the same promises over a network and another's idea of versions."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from penstock.buffer import (
    Collector,
    CollectorConfig,
    Compression,
    Consumer,
    ConsumerConfig,
    Descriptor,
    FetchHandle,
    Manifest,
    Producer,
    ProducerConfig,
    decode_batch,
)
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Fenced
from penstock.objects import StoreSpec
from penstock.testing import ManualClock
from penstock.testing.servers.object_stores import S3Server

pytestmark = pytest.mark.integration


@pytest.fixture
def spec(s3_server: S3Server, tmp_path: Path) -> StoreSpec:
    return StoreSpec(f"s3://penstock/{tmp_path.name}", s3_server.options)


def fetched(handle: FetchHandle, descriptor: Descriptor) -> list[bytes]:
    async def fetch() -> list[bytes]:
        try:
            return [bytes(record) for record in (await handle.fetch(descriptor)).records]
        finally:
            await handle.close()

    return asyncio.run(fetch())


def test_a_handle_fetches_in_another_process_with_the_options_it_was_given(spec: StoreSpec) -> None:
    async def handed_out() -> tuple[FetchHandle, list[Descriptor]]:
        store = await spec.open()
        async with Producer(store, ProducerConfig(compression=Compression.ZSTD)) as producer:
            await producer.produce([b"one", b"two"])
        async with Consumer(store, ConsumerConfig(collect=False)) as consumer:
            found = consumer.fetch_handle(spec), await consumer.next_descriptors(1)
        await store.close()
        return found

    handle, (descriptor,) = asyncio.run(handed_out())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(fetched, (handle, descriptor)) == [b"one", b"two"]


def test_a_manifest_names_objects_by_their_keys_in_the_whole_bucket(spec: StoreSpec) -> None:
    """Whoever opens the bucket with another prefix, or knows no prefixes, finds them."""
    folder = spec.url.removeprefix("s3://penstock/")

    async def main() -> None:
        store, bucket = await spec.open(), await StoreSpec("s3://penstock", spec.options).open()
        async with Producer(store) as producer:
            await producer.produce([b"one"])
        (entry,) = Manifest.decode((await bucket.get(f"{folder}/ingest/manifest")).data)
        assert entry.location.startswith(f"{folder}/ingest/")
        assert decode_batch((await bucket.get(entry.location)).data)[0] == b"one"
        paths: dict[str, Any] = {"data_path_prefix": f"{folder}/ingest", "manifest_path": f"{folder}/ingest/manifest"}
        async with Producer(bucket, ProducerConfig(**paths)) as producer:
            await producer.produce([b"two"])
        for reader, config in ((store, ConsumerConfig()), (bucket, ConsumerConfig(**paths))):
            async with Consumer(reader, config) as consumer:
                batches = [await consumer.next_batch() for _ in range(2)]
            assert [bytes(batch.records[0]) for batch in batches if batch is not None] == [b"one", b"two"]
        in_an_hour = ManualClock(SYSTEM_CLOCK.now_ms() + 3_600_000)
        assert (await Collector(store, clock=in_an_hour).collect()).deleted == 0, "all of them are queued"
        await bucket.close()
        await store.close()

    asyncio.run(main())


def test_producers_compete_a_zombie_is_fenced_and_garbage_goes(spec: StoreSpec) -> None:
    async def main() -> None:
        store = await spec.open()
        producers = [Producer(store, ProducerConfig(flush_interval_seconds=0.01)) for _ in range(4)]
        handles = [await producer.produce([b"x"]) for _ in range(5) for producer in producers]
        sequences = {await handle.durable() for handle in handles}
        assert sequences == set(range(max(sequences) + 1))
        for producer in producers:
            await producer.close()

        zombie = Consumer(store, ConsumerConfig(collect=False))
        first = await zombie.next_batch()
        assert first is not None
        async with Consumer(store, ConsumerConfig(collect=False), last_acked=first.sequence) as consumer:
            with pytest.raises(Fenced):
                await zombie.ack(first.sequence)
            while batch := await consumer.next_batch():
                await consumer.ack(batch.sequence)
        await zombie.close()

        assert (await Collector(store).collect()).deleted == 0
        in_an_hour = ManualClock(SYSTEM_CLOCK.now_ms() + 3_600_000)
        left = await Collector(store, clock=in_an_hour).collect()
        assert (left.deleted, left.waiting) == (0, len(sequences)), "nobody wrote the manifest in that hour"
        # The stamps of a bucket have whole seconds.
        await SYSTEM_CLOCK.sleep(3.0)
        async with Consumer(store, ConsumerConfig(collect=False)):
            brief = Collector(store, CollectorConfig(grace_seconds=1.0))
            assert (await brief.collect()).deleted == len(sequences)
        await store.close()

    asyncio.run(main())
