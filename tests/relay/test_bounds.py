"""What a relay holds in memory is bounded by its settings and not by the segment; and it runs beside plain threads."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.quiver.worlds import bundle
from tests.relay.edge import numbers, stamps, taken

from penstock.buffer import ProducerConfig
from penstock.clock import SYSTEM_CLOCK
from penstock.objects import open_store
from penstock.quiver import Bundle, Quiver, QuiverConfig, SegmentConfig, SyncQuiver
from penstock.relay import ParquetOutlet, QueueOutlet, QueueOutletConfig, Relay

MIB = 1 << 20


def test_a_large_segment_goes_into_the_queue_one_part_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    config = QuiverConfig(segment=SegmentConfig(target_size=64 * MIB))
    part, parts = MIB, 24

    async def main() -> int:
        objects = await open_store(f"file://{tmp_path}/store")
        async with await Quiver.open(f"{tmp_path}/quiver", config) as store:
            await store.register("queue")
            values = np.random.default_rng(0).integers(0, 1 << 60, parts * part // 8)
            await store.ingest(Bundle({"noise": pa.record_batch({"n": values})}))
            await store.flush()
            outlet = QueueOutlet(
                objects,
                f"{tmp_path}/quiver/relay/queue-000.json",
                QueueOutletConfig(part_bytes=part),
                ProducerConfig(),
                is_waiting=lambda number: "queue" in store.state.outstanding.get(number, ()),
            )
            del values
            before = pa.total_allocated_bytes()
            tracemalloc.start()
            await Relay(store, "queue", outlet).run(until_empty=True)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            await outlet.close()
            assert pa.total_allocated_bytes() - before < 4 * part
        batches = await taken(objects, clock=SYSTEM_CLOCK)
        assert [stamp.part for stamp in stamps(batches)] == list(range(1, parts + 1))
        assert len(numbers(batches)) == parts * part // 8
        await objects.close()
        return peak

    assert asyncio.run(main()) < 8 * part


def test_a_relay_runs_on_the_loop_of_a_store_that_threads_use(tmp_path: Path) -> None:
    with SyncQuiver(str(tmp_path / "quiver")) as quiver:
        quiver.register("parquet")
        threads = [threading.Thread(target=quiver.ingest, args=(bundle(number),)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        quiver.flush()

        async def drain(store: Quiver) -> None:
            outlet = ParquetOutlet(str(tmp_path / "files"))
            await Relay(store, "parquet", outlet).run(until_empty=True)
            await outlet.close()

        quiver.run(drain)
    tables = [pq.read_table(path) for path in (tmp_path / "files").glob("*.parquet")]
    assert set(pa.concat_tables(tables).column("n").to_pylist()) == set(range(8))
