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

from penstock.buffer import ConsumedBatch, Consumer, Producer, ProducerConfig
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Fenced
from penstock.keyvalue import KeyValue, Reader, WriteBatch, open_keyvalue
from penstock.objects import open_store

__all__ = ["POSITION", "SINK_PATH", "consume", "produce", "records_in"]

SINK_PATH: Final = "demo/sink"
POSITION: Final = b"position"
_BATCH_PREFIX: Final = b"batch/"
_RECORDS_A_CALL: Final = 50
# Calls waiting for their acknowledgement at once, in each producer.
_CALLS_IN_FLIGHT: Final = 8
_IDLE_SECONDS: Final = 0.02
FENCED_EXIT: Final = 3


@click.command("demo-produce", hidden=True)
@click.argument("url")
@click.argument("name")
@click.argument("count", type=int)
@click.argument("noted", type=click.Path(path_type=Path))
def produce(url: str, name: str, count: int, noted: Path) -> None:
    """Produce `count` records and note each once it is durable."""
    asyncio.run(_produce(url, name, count, noted))


@click.command("demo-consume", hidden=True)
@click.argument("url")
@click.argument("stop", type=click.Path(path_type=Path))
@click.argument("noted", type=click.Path(path_type=Path))
def consume(url: str, stop: Path, noted: Path) -> None:
    """Consume into the sink until the file `stop` exists and the queue is empty; note that the first batch is stored."""
    try:
        asyncio.run(_consume(url, stop, noted))
    except Fenced:
        raise SystemExit(FENCED_EXIT) from None


async def records_in(sink: Reader) -> list[bytes]:
    """Every record the sink holds, in the order of the queue."""
    blocks = [value async for block in sink.scan_prefix(_BATCH_PREFIX) for _, value in block]
    return [record for block in blocks for record in block.split(b"\n") if record]


async def _produce(url: str, name: str, count: int, noted: Path) -> None:
    store = await open_store(url)
    with noted.open("ab") as notes:
        async with Producer(store, ProducerConfig(flush_interval_seconds=0.02)) as producer:

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


async def _consume(url: str, stop: Path, noted: Path) -> None:
    store = await open_store(url)
    sink = await open_keyvalue(url, SINK_PATH)
    position = await sink.get(POSITION)
    last_acked = None if position is None else int.from_bytes(position, "big")
    async with Consumer(store, last_acked=last_acked) as consumer:
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
