"""A small quiver on a torn disk, with outlets beside it, for the tests of relays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.quiver.worlds import PATH, bundle, small

from penstock.buffer import ConsumedBatch, Consumer, ConsumerConfig
from penstock.errors import Unsupported
from penstock.objects import ObjectStore
from penstock.quiver import Bundle, Quiver
from penstock.relay import QueueOutlet, QueueOutletConfig, RelayStamp, decode_part
from penstock.testing import ManualClock, SeededEntropy, TornDisk, inline

JOURNAL = f"{PATH}/relay/queue-000.json"


def torn(clock: Any = None) -> TornDisk:
    return TornDisk(entropy=SeededEntropy(0), clock=clock or ManualClock())


async def opened(disk: Any, *, clock: Any = None, offload: Any = inline, path: str = PATH) -> Quiver:
    doors = {"clock": clock or ManualClock(), "entropy": SeededEntropy(1), "offload": offload}
    return await Quiver.open(path, small(), disk=disk, **doors)


async def filled(store: Quiver, segments: Sequence[Sequence[Bundle]], *subscribers: str) -> None:
    """Segments of these bundles, which wait for these subscribers."""
    for subscriber in subscribers:
        await store.register(subscriber)
    for bundles in segments:
        for one in bundles:
            await store.ingest(one)
        await store.flush()


def rows(number: int, count: int = 16) -> Bundle:
    return bundle(number, count)


def queue_outlet(store: ObjectStore, quiver: Quiver, disk: Any, name: str = "queue", **given: Any) -> QueueOutlet:
    doors = {"clock": ManualClock(), "entropy": SeededEntropy(2), "offload": inline, **given}
    config = doors.pop("config", QueueOutletConfig(part_bytes=96))
    return QueueOutlet(
        store,
        doors.pop("journal", JOURNAL),
        config,
        doors.pop("producer", None),
        is_waiting=lambda number: name in quiver.state.outstanding.get(number, ()),
        disk=disk,
        **doors,
    )


async def taken(store: ObjectStore, last_acked: int | None = None, **doors: Any) -> list[ConsumedBatch]:
    """Everything that is queued, acknowledged."""
    doors = {"clock": ManualClock(), "entropy": SeededEntropy(3), **doors}
    found = []
    async with Consumer(store, ConsumerConfig(collect=False), last_acked, **doors) as consumer:
        while (batch := await consumer.next_batch()) is not None:
            found.append(batch)
            await consumer.ack(batch.sequence)
    return found


def stamps(batches: Sequence[ConsumedBatch]) -> list[RelayStamp]:
    """Those of batches that a relay sent."""
    found = []
    for batch in batches:
        try:
            stamp = RelayStamp.decode(batch.metadata[0].payload)
        except Unsupported:
            continue
        assert stamp is not None
        found.append(stamp)
    return found


def numbers(batches: Sequence[ConsumedBatch], column: str = "n") -> list[Any]:
    return [
        value
        for batch in batches
        for tables in decode_part(batch.records).values()
        for table in tables
        for value in table.column(column).to_pylist()
    ]
