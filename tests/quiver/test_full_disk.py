"""A small tmpfs that fills up: refused clearly, drained, resumed, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import StorageFull
from penstock.quiver import Bundle, Quiver, QuiverConfig, RetentionConfig, SegmentConfig, WalConfig, WriteMode

CONFIG = QuiverConfig(
    segment=SegmentConfig(target_size=64 << 10, max_open_duration=60.0),
    wal=WalConfig(max_size=1 << 20, rotation_size=128 << 10, spare_files=1),
    retention=RetentionConfig(size_cap=1 << 30),
    ack_log_file_size=16 << 10,
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def bundle(number: int) -> Bundle:
    return Bundle({"logs": pa.record_batch({"n": pa.array([number] * 500, pa.int64())})})


async def drained(store: Quiver) -> list[int]:
    found: list[int] = []
    while (delivery := await store.next("s", 0.2)) is not None:
        found += dict.fromkeys((await delivery.table()).column("n").to_pylist())
        await delivery.ack()
    return found


@pytest.mark.parametrize("mode", [WriteMode.AUTO, WriteMode.BUFFERED])
def test_a_full_disk_is_refused_clearly_drains_and_resumes(small_disk: Path, mode: WriteMode) -> None:
    async def scenario() -> None:
        config = replace(CONFIG, wal=replace(CONFIG.wal, write_mode=mode))
        store = await Quiver.open(f"{small_disk}/store", config)
        await store.register("s")
        stored = []
        with pytest.raises(StorageFull) as refused:
            for number in range(2000):
                await store.ingest(bundle(number), timeout=20.0)
                stored.append(number)
        assert "No space left" in refused.value.why
        assert len(stored) > 100
        seen = await drained(store)
        await store.sweep()
        for number in range(5000, 5010):
            await store.ingest(bundle(number), timeout=20.0)
            stored.append(number)
        await store.close()
        store = await Quiver.open(f"{small_disk}/store", config)
        assert store.findings.lost_bundles == []
        await store.register("s")
        await store.flush()
        assert seen + await drained(store) == stored
        await store.close()

    asyncio.run(scenario())
