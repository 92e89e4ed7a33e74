"""The processes of the relay's kill -9 test: an edge that ingests and relays, and a consumer with a ledger.

The edge writes down each bundle before and after it was acknowledged. The sink is one SQLite file: rows, position and
the relay's marks are stored in one transaction. A process is told to end by a file that appears; until then it is
expected to be killed at any moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests.quiver.worlds import bundle, small

from penstock.buffer import ConsumedBatch, Consumer, ConsumerConfig, ProducerConfig
from penstock.errors import Fenced, Unsupported
from penstock.objects import StoreSpec
from penstock.quiver import Quiver
from penstock.relay import QueueOutlet, QueueOutletConfig, Relay, RelayConfig, RelayMarks, RelayStamp, decode_part

ROWS = 16


def edge(spec: StoreSpec, folder: Path, name: str) -> None:
    asyncio.run(_edge(spec, folder, name))


def consume(spec: StoreSpec, folder: Path, _name: str) -> None:
    asyncio.run(_consume(spec, folder))


async def _edge(spec: StoreSpec, folder: Path, name: str) -> None:
    ledger = os.open(folder / f"{name}.ledger", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    objects = await spec.open()
    store = await Quiver.open(f"{folder}/quiver", small())
    outlet = QueueOutlet(
        objects,
        f"{folder}/quiver/relay/queue-000.json",
        QueueOutletConfig(part_bytes=96),
        ProducerConfig(manifest_deadline_seconds=60.0),
        is_waiting=lambda number: "queue" in store.state.outstanding.get(number, ()),
    )
    await store.register("queue")
    relay = Relay(store, "queue", outlet, RelayConfig(retry_seconds_first=0.01, retry_seconds_max=0.1))
    running = asyncio.create_task(relay.run())
    number = 1000 * int(name.removeprefix("edge"))
    while not (folder / "stop").exists():
        number += 1
        os.write(ledger, f"began {number}\n".encode())
        await store.ingest(bundle(number, ROWS))
        os.write(ledger, f"acked {number}\n".encode())
    relay.stop()
    await running
    await store.flush()
    await Relay(store, "queue", outlet).run(until_empty=True)
    await outlet.close()
    await store.close()
    await objects.close()


def open_sink(folder: Path) -> sqlite3.Connection:
    sink = sqlite3.connect(folder / "sink.sqlite", isolation_level=None, timeout=30)
    sink.execute("create table if not exists row (number integer)")
    sink.execute("create table if not exists state (id integer primary key, position integer, marks text)")
    sink.execute("create table if not exists repeat (sequence integer)")
    return sink


def _state(sink: sqlite3.Connection) -> tuple[int | None, RelayMarks]:
    found = sink.execute("select position, marks from state").fetchone()
    if found is None:
        return None, RelayMarks()
    return found[0], RelayMarks({relay: (mark[0], mark[1]) for relay, mark in json.loads(found[1]).items()})


def _store(sink: sqlite3.Connection, batch: ConsumedBatch) -> None:
    sink.execute("begin immediate")
    position, marks = _state(sink)
    if position is None or batch.sequence > position:
        if _is_new(batch, marks):
            rows = [
                (value,)
                for tables in decode_part(batch.records).values()
                for table in tables
                for value in table.column("n").to_pylist()
            ]
            sink.executemany("insert into row values (?)", rows)
        else:
            sink.execute("insert into repeat values (?)", (batch.sequence,))
        sink.execute("insert or replace into state values (1, ?, ?)", (batch.sequence, json.dumps(marks.state)))
    sink.execute("commit")


def _is_new(batch: Any, marks: RelayMarks) -> bool:
    try:
        stamp = RelayStamp.decode(batch.metadata[0].payload)
    except Unsupported:
        return False
    return stamp is not None and marks.admit(stamp)


async def _consume(spec: StoreSpec, folder: Path) -> None:
    objects = await spec.open()
    config = ConsumerConfig(dequeue_every_acks=1, dequeue_percent=1, manifest_deadline_seconds=60.0, collect=False)
    with closing(open_sink(folder)) as sink, suppress(Fenced):
        async with Consumer(objects, config, _state(sink)[0]) as consumer:
            while True:
                is_last = (folder / "edge-gone").exists()
                batch = await consumer.next_batch()
                if batch is not None:
                    _store(sink, batch)
                    await consumer.ack(batch.sequence)
                elif is_last:
                    break
                else:
                    await asyncio.sleep(0.005)
    await objects.close()
