"""Runs a queue's consumer for a command: the queue, the store that it feeds, and an end in good order."""

from __future__ import annotations

import asyncio
import signal
from typing import Any, TypeAlias

from penstock.buffer import ConsumerConfig
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import store_options
from penstock.cli.settings.wiring import Wiring
from penstock.indexing import url_of
from penstock.objects import ObjectStore, open_store
from penstock.observability import Observer
from penstock.relay import QueueConsumer, RejectedRecords, RelayConfig, SeriesSink, StoreSink, VectorSink

__all__ = ["consume_samples", "consume_vectors"]

# The last sequence that is in the store, and how many records were set aside.
Consumed: TypeAlias = tuple[int | None, int]


def consume_samples(
    settings: Settings, observer: Observer, place: tuple[str, str], queue: str, source: str | None, *, follow: bool
) -> Consumed:
    async def work(objects: ObjectStore) -> Consumed:
        async with await Wiring(settings, observer).series_writer(url_of(place[0]), place[1]) as store:
            rejected = _rejected(settings, observer, objects, "timeseries")
            sink = SeriesSink(store, source or _source(settings, queue), rejected, observer=observer)
            return await _consume("timeseries", objects, sink, settings, observer, follow=follow)

    return asyncio.run(_with_queue(settings, observer, queue, work))


def consume_vectors(
    settings: Settings, observer: Observer, place: tuple[str, str], queue: str, source: str | None, *, follow: bool
) -> Consumed:
    async def work(objects: ObjectStore) -> Consumed:
        async with await Wiring(settings, observer).writer(url_of(place[0]), place[1]) as store:
            rejected = _rejected(settings, observer, objects, "vector")
            sink = VectorSink(store, source or _source(settings, queue), rejected, observer=observer)
            return await _consume("vector", objects, sink, settings, observer, follow=follow)

    return asyncio.run(_with_queue(settings, observer, queue, work))


async def _with_queue(settings: Settings, observer: Observer, queue: str, work: Any) -> Consumed:
    url = url_of(queue)
    objects = await open_store(url, observer=observer, **store_options(settings, url))
    try:
        found: Consumed = await work(objects)
        return found
    finally:
        await objects.close()


async def _consume(
    name: str, objects: ObjectStore, sink: StoreSink[Any], settings: Settings, observer: Observer, *, follow: bool
) -> Consumed:
    consumer = QueueConsumer(
        name, objects, sink, settings.of(RelayConfig), settings.of(ConsumerConfig), observer=observer
    )
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        # What is under way is stored first; a second signal ends the process at once.
        loop.remove_signal_handler(number)
        consumer.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    await consumer.run(until_empty=not follow)
    return await sink.position(), sink.rejected.count


def _rejected(settings: Settings, observer: Observer, objects: ObjectStore, name: str) -> RejectedRecords:
    return RejectedRecords(objects, settings.of(ConsumerConfig).data_path_prefix, name, observer=observer)


def _source(settings: Settings, queue: str) -> str:
    """A queue is known to a store by its URL and the manifest in it."""
    return f"{url_of(queue)}#{settings.of(ConsumerConfig).manifest_path}"
