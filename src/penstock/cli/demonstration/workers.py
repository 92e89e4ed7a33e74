"""The processes of the demo, made to be killed: producers that note what was acknowledged, and a consumer.

The consumer's sink is a key-value store that takes each batch and its sequence in one write, which is
all that exactly-once delivery asks of a sink.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from penstock.buffer import ConsumedBatch, Consumer, ConsumerConfig, Producer, ProducerConfig
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.observing import Watching
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Fenced
from penstock.keyvalue import KeyValue, Reader, WriteBatch, open_keyvalue
from penstock.objects import open_store
from penstock.observability import Observer

__all__ = ["POSITION", "SINK_PATH", "consume", "produce", "records_in"]

SINK_PATH: Final = "demo/sink"
POSITION: Final = b"position"
_BATCH_PREFIX: Final = b"batch/"
_RECORDS_A_CALL: Final = 50
# Calls waiting for their acknowledgement at once, in each producer.
_CALLS_IN_FLIGHT: Final = 8
# Short, because producers that wait for each batch are to be seen at work.
_FLUSH_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.02
FENCED_EXIT: Final = 3


@click.command("demo-produce", hidden=True)
@click.argument("url")
@click.argument("name")
@click.argument("count", type=int)
@click.argument("noted", type=click.Path(path_type=Path))
@long_running
def produce(url: str, name: str, count: int, noted: Path, settings: Settings, watching: Watching) -> None:
    """Produce `count` records and note each once it is durable."""
    config = settings.of(ProducerConfig, flush_interval_seconds=_FLUSH_SECONDS)
    with watching.opened() as observer:
        asyncio.run(_produce(url, name, count, noted, config, observer))


@click.command("demo-consume", hidden=True)
@click.argument("url")
@click.argument("stop", type=click.Path(path_type=Path))
@click.argument("noted", type=click.Path(path_type=Path))
@long_running
def consume(url: str, stop: Path, noted: Path, settings: Settings, watching: Watching) -> None:
    """Consume into the sink until the file `stop` exists and the queue is empty; note that the first batch is stored."""
    try:
        with watching.opened() as observer:
            asyncio.run(_consume(url, stop, noted, settings.of(ConsumerConfig), observer))
    except Fenced:
        raise SystemExit(FENCED_EXIT) from None


async def records_in(sink: Reader) -> list[bytes]:
    """Every record the sink holds, in the order of the queue."""
    blocks = [value async for block in sink.scan_prefix(_BATCH_PREFIX) for _, value in block]
    return [record for block in blocks for record in block.split(b"\n") if record]


async def _produce(url: str, name: str, count: int, noted: Path, config: ProducerConfig, observer: Observer) -> None:
    store = await open_store(url, observer=observer)
    with noted.open("ab") as notes:
        async with Producer(store, config, observer=observer) as producer:

            async def work(groups: Iterator[range]) -> None:
                for group in groups:
                    records = [f"{name}-{number:06d}".encode() for number in group]
                    handle = await producer.produce(records, name.encode())
                    await handle.durable()
                    notes.write(b"\n".join(records) + b"\n")
                    notes.flush()

            groups = iter(
                [range(start, min(start + _RECORDS_A_CALL, count)) for start in range(0, count, _RECORDS_A_CALL)]
            )
            await asyncio.gather(*(work(groups) for _ in range(_CALLS_IN_FLIGHT)))
    await store.close()


async def _consume(url: str, stop: Path, noted: Path, config: ConsumerConfig, observer: Observer) -> None:
    store = await open_store(url, observer=observer)
    sink = await open_keyvalue(url, SINK_PATH, observer=observer)
    position = await sink.get(POSITION)
    last_acked = None if position is None else int.from_bytes(position, "big")
    async with Consumer(store, config, last_acked, observer=observer) as consumer:
        while True:
            batch = await consumer.next_batch()
            if batch is not None:
                await _store(sink, batch)
                await consumer.ack(batch.sequence)
                await asyncio.to_thread(noted.touch)
            elif await asyncio.to_thread(stop.exists):
                break
            else:
                await SYSTEM_CLOCK.sleep(_IDLE_SECONDS)
    await sink.close()
    await store.close()


async def _store(sink: KeyValue, batch: ConsumedBatch) -> None:
    """The batch and its place in the queue, in one write: neither is ever there without the other."""
    sequence = batch.sequence.to_bytes(8, "big")
    together = WriteBatch().put(_BATCH_PREFIX + sequence, b"\n".join(batch.records)).put(POSITION, sequence)
    handle = await sink.write(together)
    await handle.durable()
