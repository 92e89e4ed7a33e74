"""The processes of the queue's kill -9 test: producers that write down what was acknowledged, and a consumer.

The sink is one SQLite file: a batch's records and its sequence are stored in one transaction, or not at all.
A process is told to end by a file that appears; until then it is expected to be killed at any moment.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from penstock.buffer import (
    ConsumedBatch,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    Runner,
    RunnerConfig,
    Watermark,
)
from penstock.errors import Fenced, InvalidInput, PenstockError
from penstock.objects import ObjectStore, StoreSpec
from penstock.observability import Event, Observer, names

RECORDS_PER_CALL = 5
CALLS_AT_ONCE = 3


def produce(spec: StoreSpec, folder: Path, name: str) -> None:
    """Produce numbered records until told to stop; each acknowledged one gets a line in the journal of this process."""
    asyncio.run(_produce(spec, folder, name))


# The ways to consume: one by one, reading ahead, and by the runner.
WAYS = ("one", "ahead", "runner")


def consume(spec: StoreSpec, folder: Path, way: str) -> None:
    """Carry batches into the sink until producers have stopped and the queue is empty, or a successor takes over."""
    asyncio.run(_consume(spec, folder, way))


def holds_fence(folder: Path, pid: int) -> Path:
    """The file that appears once the consumer process `pid` has taken the fence."""
    return folder / f"consumer-{pid}.started"


def open_sink(folder: Path) -> sqlite3.Connection:
    sink = sqlite3.connect(folder / "sink.sqlite", isolation_level=None, timeout=30)
    sink.execute("create table if not exists record (name text, sequence integer)")
    sink.execute("create table if not exists batch (sequence integer)")
    return sink


def position_of(sink: sqlite3.Connection) -> int | None:
    position: int | None = sink.execute("select max(sequence) from batch").fetchone()[0]
    return position


def store(sink: sqlite3.Connection, batch: ConsumedBatch) -> None:
    """One transaction; a sequence that is there already, by a predecessor or a zombie, is left alone."""
    sink.execute("begin immediate")
    position = position_of(sink)
    if position is None or batch.sequence > position:
        rows = [(bytes(record).decode().rstrip(), batch.sequence) for record in batch.records]
        sink.executemany("insert into record values (?, ?)", rows)
        sink.execute("insert into batch values (?)", (batch.sequence,))
    sink.execute("commit")


async def _produce(spec: StoreSpec, folder: Path, name: str) -> None:
    journal = os.open(folder / f"{name}.journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    opened, number, stop = await spec.open(), 0, folder / "stop-producers"
    config = ProducerConfig(flush_interval_seconds=0.01, manifest_deadline_seconds=60.0)

    async def call(first: int) -> None:
        offered = [f"{name}.{first + index}" for index in range(RECORDS_PER_CALL)]
        # Padded, so that a batch is more than one write of the disk.
        handle = await producer.produce([each.ljust(500).encode() for each in offered])
        sequence = await handle.durable()
        os.write(journal, "".join(f"{each} {sequence}\n" for each in offered).encode())

    async with Producer(opened, config) as producer:
        while not stop.exists():
            await asyncio.gather(*(call(number + RECORDS_PER_CALL * index) for index in range(CALLS_AT_ONCE)))
            number += RECORDS_PER_CALL * CALLS_AT_ONCE
    await opened.close()


async def _consume(spec: StoreSpec, folder: Path, way: str) -> None:
    opened = await spec.open()
    with closing(open_sink(folder)) as sink, suppress(Fenced):
        if way == "runner":
            await _run(opened, sink, folder)
        else:
            async with await _started(opened, sink) as consumer:
                holds_fence(folder, os.getpid()).touch()
                await (_feed_ahead if way == "ahead" else _feed)(consumer, sink, folder)
    await opened.close()


class _Table:
    """The SQLite file as a runner knows it."""

    def __init__(self, sink: sqlite3.Connection) -> None:
        self._sink = sink

    async def position(self) -> int | None:
        return position_of(self._sink)

    async def store(self, batches: Sequence[ConsumedBatch]) -> None:
        for batch in batches:
            store(self._sink, batch)


class _Starter(Observer):
    """Makes the file that tells who holds the fence."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def event(self, event: Event, **fields: Any) -> None:
        if event is names.BUFFER_STARTED:
            self._file.touch()


async def _run(opened: ObjectStore, sink: sqlite3.Connection, folder: Path) -> None:
    config = ConsumerConfig(dequeue_every_acks=10, manifest_deadline_seconds=60.0, poll_seconds=0.01)
    observer = _Starter(holds_fence(folder, os.getpid()))
    runner = Runner(opened, _Table(sink), RunnerConfig(fetch_concurrency=4), config, observer=observer)

    async def stop() -> None:
        while not (folder / "producers-gone").exists():  # noqa: ASYNC110  another process makes it
            await asyncio.sleep(0.01)
        runner.stop()

    stopping = asyncio.create_task(stop())
    for _ in range(20):
        # A predecessor that is still alive may move the sink between asking it and taking the fence: ask again.
        with suppress(InvalidInput):
            if not stopping.done():
                await runner.run()
            await runner.run(until_empty=True)
            return
    raise PenstockError("the sink never stood still")


async def _started(opened: ObjectStore, sink: sqlite3.Connection) -> Consumer:
    """A predecessor that is still alive may move the sink between asking it and taking the fence: ask again."""
    config = ConsumerConfig(dequeue_every_acks=10, manifest_deadline_seconds=60.0)
    for _ in range(20):
        consumer = Consumer(opened, config, position_of(sink))
        try:
            await consumer.start()
        except InvalidInput:
            continue
        return consumer
    raise PenstockError("the sink never stood still")


async def _feed(consumer: Consumer, sink: sqlite3.Connection, folder: Path) -> None:
    while True:
        done = (folder / "producers-gone").exists()
        batch = await consumer.next_batch()
        if batch is not None:
            store(sink, batch)
            await consumer.ack(batch.sequence)
        elif done:
            return
        else:
            await asyncio.sleep(0.01)


async def _feed_ahead(consumer: Consumer, sink: sqlite3.Connection, folder: Path) -> None:
    handle, watermark = consumer.fetch_handle(), Watermark()
    while True:
        done = (folder / "producers-gone").exists()
        descriptors = await consumer.next_descriptors(16)
        for descriptor in descriptors:
            watermark.begin(descriptor.sequence)
        for batch in await asyncio.gather(*(handle.fetch(descriptor) for descriptor in descriptors)):
            store(sink, batch)
            watermark.complete(batch.sequence)
        if descriptors:
            assert watermark.value is not None
            await consumer.ack_through(watermark.value)
        elif done:
            return
        else:
            await asyncio.sleep(0.01)
