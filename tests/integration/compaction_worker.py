"""The processes of compaction's kill -9 test: a writer that keeps a ledger, and compactors.

A process is told to end by a file that appears; until then it is expected to be killed at any moment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.catalog.parquet_files import HOUR, put, rows

from penstock.catalog import Catalog, CatalogConfig, CompactionPolicy
from penstock.errors import PenstockError
from penstock.lake import CompactionConfig, Compactor, LocalMerging, MergePlace
from penstock.objects import StoreSpec

PREFIX = "lake"
ROWS = 40
HOURS = 3
CONFIG = CatalogConfig(
    staleness_seconds=0.0,
    inline_files_max=16,
    lease_seconds=1.0,
    grace_seconds=3600.0,
    compaction=CompactionPolicy(hour_files=3, day_files=3, closed_after_seconds=1e9),
)


def write(spec: StoreSpec, folder: Path, name: str) -> None:
    """Register files until told to stop; each that was acknowledged gets a line: its name, and the sequence."""

    async def work(catalog: Catalog) -> None:
        ledger = os.open(folder / f"{name}.ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in range(10_000):
            if (folder / "stop").exists():
                return
            label = f"{name}-{number:05}"
            hour = number % HOURS
            labels = pa.array([f"{label}-{at:03}" for at in range(ROWS)])
            table = rows(ROWS, start=hour * HOUR + number * 1_000_000, label=labels).drop_columns(["n"])
            position = await catalog.register([await put(catalog, f"acme/cpu/{label}.parquet", table)])
            os.write(ledger, f"{label} {position['']}\n".encode())

    asyncio.run(_on(spec, work))


def compact(spec: StoreSpec, folder: Path, name: str) -> None:
    """Merge until told to stop."""

    async def work(catalog: Catalog) -> None:
        config = CompactionConfig(tasks_per_pass=2, memory_bytes=1 if name.endswith("small") else 1 << 28)
        compactor = Compactor(catalog, LocalMerging(MergePlace(spec, PREFIX), 2), config, owner=name)
        while not (folder / "stop").exists():
            try:
                await compactor.run_once()
            except PenstockError as error:
                print(f"{name}: {error}")
            await catalog.clock.sleep(0.01)

    asyncio.run(_on(spec, work))


async def _on(spec: StoreSpec, work: Callable[[Catalog], Awaitable[Any]]) -> Any:
    store = await spec.open()
    try:
        async with await Catalog.open(store, PREFIX, CONFIG) as catalog:
            return await work(catalog)
    finally:
        await store.close()


def on_catalog(spec: StoreSpec, work: Callable[[Catalog], Awaitable[Any]]) -> Any:
    return asyncio.run(_on(spec, work))
