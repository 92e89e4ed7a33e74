"""Small stores for tests: bundles of a few rows, tiny segments, torn disks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.disk import Disk
from penstock.quiver import Bundle, Quiver, QuiverConfig, RetentionConfig, SegmentConfig, WalConfig, WriteMode
from penstock.testing import ManualClock, SeededEntropy, TornDisk, inline

PATH = "/store"
HOME = f"{PATH}/instance-000"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def names(disk: TornDisk, folder: str) -> list[str]:
    return [name for name, _ in disk.scan(f"{HOME}/{folder}")]


async def killed(disk: TornDisk) -> None:
    """The process dies where it stands; its page cache stays."""
    await asyncio.sleep(0)
    disk.revive()


def bundle(number: int, rows: int = 4, slot: str = "logs", **columns: Any) -> Bundle:
    """Rows that all carry the bundle's number, so that a test can tell which bundles came out."""
    batch = pa.record_batch({"n": pa.array([number] * rows, pa.int64()), **columns})
    return Bundle({slot: batch}, signal="logs", identity=f"b{number}")


def small(**changes: Any) -> QuiverConfig:
    """Segments of about 8 bundles, log files of a few."""
    config = QuiverConfig(
        segment=SegmentConfig(target_size=256, max_open_duration=5.0),
        wal=WalConfig(max_size=1 << 20, rotation_size=16384, spare_files=1),
        retention=RetentionConfig(size_cap=1 << 24),
        ack_log_file_size=12288,
        checkpoint_records=20,
        maintenance_seconds=30.0,
    )
    return replace(config, **changes)


def with_mode(config: QuiverConfig, mode: WriteMode) -> QuiverConfig:
    return replace(config, wal=replace(config.wal, write_mode=mode))


def torn(seed: int = 0, **settings: Any) -> TornDisk:
    return TornDisk(entropy=SeededEntropy(seed), clock=ManualClock(), **settings)


async def opened(disk: Disk, config: QuiverConfig | None = None, **doors: Any) -> Quiver:
    settings = {"clock": ManualClock(), "entropy": SeededEntropy(1), "offload": inline, **doors}
    return await Quiver.open(PATH, config or small(), disk=disk, **settings)


async def numbers(delivery: Any) -> list[int]:
    """Which bundles a delivery holds, once each, in order."""
    found: list[int] = []
    for tables in (await delivery.read()).values():
        for table in tables:
            found += dict.fromkeys(table.column("n").to_pylist())
    return found


async def drained(store: Quiver, name: str = "s", timeout: float = 0.0) -> list[int]:
    """Everything that waits for a subscriber, acknowledged."""
    found: list[int] = []
    while (delivery := await store.next(name, timeout)) is not None:
        found += await numbers(delivery)
        await delivery.ack()
    return found
