"""How long the record of a small tenant waits in a queue that a large one floods: prints JSON.

Arguments: the engine (`local` or `spark`), how many batches the flood has in the second part, how many cores. In the
first part the large tenant sends a batch of 10,000 rows ten times a second, and the small one 10 rows a second, for
twenty seconds. In the second part the large tenant sends its batches as fast as they become durable, and the small one
sends behind them. A record has arrived when the catalog lists it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from _landing_work import ROWS, batch_of, session
from penstock.buffer import Producer, ProducerConfig
from penstock.catalog import Catalog, CatalogConfig
from penstock.landing import LandingLimits, LocalTelemetryJob, TelemetryConfig, settle_memory
from penstock.objects import open_store
from penstock.telemetry import encode_records

SMALL_ROWS = 10
STEADY_SECONDS = 20
FLOOD_SECONDS = 0.1
WARM_SECONDS_MAX = 60.0
# Of the job, between the beginnings of two rounds.
INTERVAL_SECONDS = 1.0


def small_batch(number: int) -> pa.Table:
    rows = batch_of(number).slice(0, SMALL_ROWS)
    return rows.set_column(0, "tenant", pa.array(["small"] * SMALL_ROWS))


class Watch:
    """Sends records, and sees when the small tenant's are listed."""

    def __init__(self, producer: Producer, catalog: Catalog) -> None:
        self._producer, self._catalog = producer, catalog
        self._sent = 0

    async def flood(self, number: int) -> None:
        await (await self._producer.produce(*encode_records({"metrics": batch_of(number)}))).durable()

    async def small(self) -> float:
        """Send, and wait until it is there; seconds since it was durable."""
        self._sent += SMALL_ROWS
        wanted = self._sent
        await (await self._producer.produce(*encode_records({"metrics": small_batch(self._sent)}))).durable()
        began = time.perf_counter()
        while await self._listed() < wanted:  # noqa: ASYNC110  the job tells nobody
            await asyncio.sleep(0.02)
        return time.perf_counter() - began

    async def _listed(self) -> int:
        return sum(file.row_count for file in await self._catalog.files(tenant="small"))


async def measured(config: TelemetryConfig, batches: int) -> dict[str, Any]:
    store = await open_store(config.url)
    async with (
        Producer(store, ProducerConfig(max_buffered_inputs=1)) as producer,
        await Catalog.open(store, config.catalog_path, CatalogConfig(staleness_seconds=0.0)) as catalog,
    ):
        watch = Watch(producer, catalog)
        async with asyncio.timeout(WARM_SECONDS_MAX):
            await watch.small()
        alone = await watch.small()
        began, delays = time.perf_counter(), []
        for second in range(STEADY_SECONDS):
            delays.append(asyncio.ensure_future(watch.small()))
            for part in range(round(1 / FLOOD_SECONDS)):
                await watch.flood(second * 10 + part)
                rest = began + second + (part + 1) * FLOOD_SECONDS - time.perf_counter()
                await asyncio.sleep(max(0.0, rest))
        steady = sorted(await asyncio.gather(*delays))
        await asyncio.gather(*(watch.flood(number) for number in range(batches)))
        behind = await watch.small()
    await store.close()
    middle = steady[len(steady) // 2]
    return {"alone": alone, "p50": middle, "max": steady[-1], "behind": behind, "ahead": batches * ROWS}


def main(engine: str, batches: int, cores: int) -> None:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    settle_memory()
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    config = TelemetryConfig(
        f"file://{folder}/store", limits=LandingLimits(interval_seconds=INTERVAL_SECONDS, bytes_per_task=8 << 20)
    )
    try:
        job: Any
        if engine == "spark":
            from penstock.pipelines import TelemetryJob

            job = TelemetryJob(session(cores), config)
        else:
            job = LocalTelemetryJob(config)
        with job:
            job.start()
            told = asyncio.run(measured(config, batches))
        print(json.dumps(told), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
